"""The report's words and tables as Markdown, for a code host or a chat."""

from __future__ import annotations

from collections.abc import Sequence

from audit.report import phrases as words
from audit.report.figures import Figures
from audit.report.formatting import MISSING, figure, number
from audit.report.labels import measure_label, where_label
from audit.report.safe_text import markdown_text
from audit.report.tables import paper_tables
from audit.results import AuditResult

_HEADINGS = {
    "finding": "What was found",
    "detail": "Condition by condition",
    "comparison": "How the models compare",
    "caution": "What limits this",
}


def markdown_report(result: AuditResult) -> str:
    """Summary, headline figures, tables in the papers' layouts, and the validity ledger."""
    figures = Figures(result)
    said = words.summary(figures)
    parts = [f"# {markdown_text(result.title)}", markdown_text(words.asked(figures))]
    for kind, heading in _HEADINGS.items():
        lines = [f"- {markdown_text(s.text)}" for s in said if s.kind == kind]
        if lines:
            parts += [f"## {heading}", "\n".join(lines)]
    for info in result.suites:
        parts.append(f"## {markdown_text(info.title)}")
        rows = [
            [f"{measure_label(name)}: {where_label(where)}"]
            + [
                MISSING if (m := figures.get(info.name, name, where, model)) is None else figure(m)
                for model in figures.models
            ]
            for name, where in figures.headline(info.name)
        ]
        parts.append(_table(["Figure", *figures.models], rows))
        for table in paper_tables(figures, info.name):
            spans = [label for label, span in table.groups for _ in range(span)] or [""] * len(table.columns)
            heads = [f"{c}, {g}" if g else c for g, c in zip(spans, table.columns, strict=True)]
            measured = [
                [
                    f"{block.heading}: {row.label}" if block.model is not None else row.label,
                    *(c.text for c in row.cells),
                ]
                for block in table.blocks
                if not block.published
                for row in block.rows
            ]
            parts += [f"### {markdown_text(table.title)}", _table([table.stub, *heads], measured)]
            parts += [markdown_text(table.note)] if table.note else []
    parts += ["## How sound the answers are", _ledger(result), "## Provenance", _provenance(result)]
    return "\n\n".join(parts) + "\n"


def _provenance(result: AuditResult) -> str:
    limit = "all items" if result.limit is None else f"at most {result.limit} items a suite"
    models = "; ".join(f"{m.name}: {m.backend}, fingerprint {m.fingerprint_id}" for m in result.models)
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return markdown_text(
        f"Brackets are {100 * result.confidence:g} % intervals, clustered by what the items share. A figure without "
        f"value is missing, never zero. Run {result.run_id}, started {result.started}, seed {result.seed}, {limit}. "
        f"{models}. {versions}."
    )


def _ledger(result: AuditResult) -> str:
    return _table(
        ["Model", "Suite", "Answered", "Lowest coverage", "Only bounds known", "Not readable"],
        [
            [
                e.model,
                e.suite,
                f"{e.answered:,} of {e.n_items:,}",
                MISSING if e.probability_mass is None else f"{number(100 * e.probability_mass, 1)} %",
                f"{e.censored:,}",
                f"{sum(e.failures.values()):,}",
            ]
            for e in result.data_quality
        ],
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join(
        "| " + " | ".join(cell if i == 1 else markdown_text(cell) for cell in line) + " |"
        for i, line in enumerate(lines)
    )

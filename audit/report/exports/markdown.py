"""The report's sentences and tables as Markdown, for a code host or a chat."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from audit.report.figures import Figures
from audit.report.formatting import MISSING, figure, measure_label, percent, where_label
from audit.report.phrases.first_page import plain_rows
from audit.report.phrases.overview import overview
from audit.report.phrases.problems import prompts_below
from audit.report.phrases.summary import HEADINGS, run_provenance
from audit.report.plain_text import markdown_text
from audit.report.tables import PaperTable, paper_tables
from audit.report.templating import environment
from audit.results import AuditResult, DataQuality


def markdown_report(result: AuditResult) -> str:
    """Summary, headline figures, tables in the papers' layouts, and the quality of the answers."""
    figures = Figures(result)
    facts = overview(figures)
    text = environment().get_template("report.md.j2").render(
        **facts | {"plain": _plain(figures)},
        said={heading: [s.text for s in facts["summary"] if s.kind == kind] for kind, heading in HEADINGS.items()},
        suites=[
            (info.title, _headline(figures, info.name), [_paper_table(t) for t in paper_tables(figures, info.name)])
            for info in result.suites
        ],
        quality=_data_quality(result),
        provenance=run_provenance(result),
    )  # fmt: skip
    return f"{text.strip()}\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns but the first hold numbers."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = [[markdown_text(cell) for cell in line] for line in (header, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))


def _plain(figures: Figures) -> list[str]:
    """The headline figures in plain words, a table a suite."""
    titles = {info.name: info.title for info in figures.result.suites}
    tables = []
    for suite, of_suite in itertools.groupby(plain_rows(figures), key=lambda row: row.suite):
        rows = [
            [f"{row.words} ({row.condition})" if row.condition else row.words, *(cell.points for cell in row.cells)]
            for row in of_suite
        ]
        tables.append(markdown_table([titles[suite] if len(titles) > 1 else "", *figures.models], rows))
    return tables


def _headline(figures: Figures, suite: str) -> str:
    rows = []
    for name, where in figures.headline(suite):
        by_model = [figures.get(suite, name, where, model) for model in figures.models]
        cells = [MISSING if m is None else figure(m) for m in by_model]
        rows.append([f"{measure_label(name)}: {where_label(where)}", *cells])
    return markdown_table(["Figure", *figures.models], rows)


def _paper_table(table: PaperTable) -> tuple[str, str, Sequence[str]]:
    """(title, measured rows, remarks)."""
    measured = [
        [f"{block.heading}: {row.label}" if block.model is not None else row.label, *(c.text for c in row.cells)]
        for block in table.blocks
        if not block.published
        for row in block.rows
    ]
    header = [table.stub, *table.column_names(lambda group, column: f"{column}, {group}")]
    return table.title, markdown_table(header, measured), table.remarks


def _data_quality(result: AuditResult) -> str:
    header = ["Model", "Suite", "Answered", "Prompts with coverage below 10 %", "Coverage: median (lowest)"]
    rows = [
        [e.model, e.suite, f"{e.answered:,} of {e.n_items:,}", *_coverage(e), f"{e.censored:,}",
         f"{sum(e.failures.values()):,}"]
        for e in result.data_quality
    ]  # fmt: skip
    return markdown_table([*header, "Only bounds known", "Not readable"], rows)


def _coverage(entry: DataQuality) -> tuple[str, str]:
    """How many prompts have little; then median and lowest, or the lowest mean in results of older versions."""
    if entry.prompt_coverage:
        whole = entry.prompt_coverage[0]
        return prompts_below(whole), f"{percent(whole.median)} ({percent(whole.lowest)})"
    return MISSING, MISSING if entry.probability_mass is None else percent(entry.probability_mass)

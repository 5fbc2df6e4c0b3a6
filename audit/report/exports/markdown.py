"""The report's sentences and tables as Markdown, for a code host or a chat."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from audit.report.figures import Figures
from audit.report.formatting import MISSING, figure, markdown_text, measure_label, percent, where_label
from audit.report.phrases import (
    HEADINGS,
    asked,
    captions,
    limit_lines,
    limits_overview,
    plain_rows,
    prompts_below,
    scope,
    summary,
)
from audit.report.phrases.methods import run_provenance
from audit.report.tables import PaperTable, paper_tables
from audit.results import AuditResult, DataQuality


def markdown_report(result: AuditResult) -> str:
    """Summary, headline figures, tables in the papers' layouts, and the quality of the answers."""
    figures = Figures(result)
    sentences = summary(figures)
    parts = [f"# {markdown_text(result.title)}", markdown_text(scope(figures))]
    parts += _first_page(figures)
    if overview := limits_overview(result):
        lines = [f"- {markdown_text(line.text)}" for line in limit_lines(result)]
        parts += ["## Limits", markdown_text(overview), "\n".join(lines)]
    for kind, heading in HEADINGS.items():
        lines = [f"- {markdown_text(s.text)}" for s in sentences if s.kind == kind]
        if lines:
            parts += [f"## {heading}", "\n".join(lines)]
    for info in result.suites:
        parts += [f"## {markdown_text(info.title)}", _headline(figures, info.name)]
        for table in paper_tables(figures, info.name):
            parts += [f"### {markdown_text(table.title)}", _paper_table(table)]
            parts += [markdown_text(remark) for remark in table.remarks]
    parts += [f"## {captions.DATA_QUALITY_TITLE}", _data_quality(result)]
    parts += ["## Provenance", markdown_text(run_provenance(result))]
    return "\n\n".join(parts) + "\n"


def _first_page(figures: Figures) -> list[str]:
    """One question with its answers, and the headline figures in plain words."""
    parts = []
    questions = (asked(figures, info.name) for info in figures.result.suites)
    if (one := next((question for question in questions if question is not None), None)) is not None:
        answers = [f"- **{markdown_text(model)}** {markdown_text(answer)}" for model, answer in one.answers]
        quoted = [f"> {markdown_text(line)}" for line in one.question.splitlines()]
        parts += ["## What was asked", "\n".join(quoted), "\n".join(answers), markdown_text(one.remark)]
    titles = {info.name: info.title for info in figures.result.suites}
    parts.append("## In plain words")
    for suite, of_suite in itertools.groupby(plain_rows(figures), key=lambda row: row.suite):
        rows = [
            [f"{row.words} ({row.condition})" if row.condition else row.words, *(cell.points for cell in row.cells)]
            for row in of_suite
        ]
        parts.append(_table([titles[suite] if len(titles) > 1 else "", *figures.models], rows))
    return [part for part in parts if part]


def _headline(figures: Figures, suite: str) -> str:
    rows = []
    for name, where in figures.headline(suite):
        by_model = [figures.get(suite, name, where, model) for model in figures.models]
        cells = [MISSING if m is None else figure(m) for m in by_model]
        rows.append([f"{measure_label(name)}: {where_label(where)}", *cells])
    return _table(["Figure", *figures.models], rows)


def _paper_table(table: PaperTable) -> str:
    measured = [
        [f"{block.heading}: {row.label}" if block.model is not None else row.label, *(c.text for c in row.cells)]
        for block in table.blocks
        if not block.published
        for row in block.rows
    ]
    return _table([table.stub, *table.column_names(lambda group, column: f"{column}, {group}")], measured)


def _data_quality(result: AuditResult) -> str:
    return _table(
        [
            "Model",
            "Suite",
            "Answered",
            "Prompts with coverage below 10 %",
            "Coverage: median (lowest)",
            "Only bounds known",
            "Not readable",
        ],
        [
            [
                e.model,
                e.suite,
                f"{e.answered:,} of {e.n_items:,}",
                *_coverage(e),
                f"{e.censored:,}",
                f"{sum(e.failures.values()):,}",
            ]
            for e in result.data_quality
        ],
    )


def _coverage(entry: DataQuality) -> Iterator[str]:
    """How many prompts have little; then median and lowest, or the lowest mean in results of older versions."""
    coverage = next(iter(entry.prompt_coverage), None)
    yield MISSING if coverage is None else prompts_below(coverage)
    if coverage is not None:
        yield f"{percent(coverage.median)} ({percent(coverage.lowest)})"
    else:
        yield MISSING if entry.probability_mass is None else percent(entry.probability_mass)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = [[markdown_text(cell) for cell in line] for line in (header, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))

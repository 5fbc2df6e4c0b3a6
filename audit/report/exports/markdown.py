"""The report's sentences and tables as Markdown, for a code host or a chat."""

from __future__ import annotations

from audit.report.figures import Figures
from audit.report.phrases.first_page import plain_rows
from audit.report.phrases.summary import HEADINGS, overview, run_provenance
from audit.report.tables import PaperTable, paper_tables
from audit.report.templating import environment
from audit.results import AuditResult


def markdown_report(result: AuditResult) -> str:
    """Summary, headline figures, tables in the papers' layouts, and the quality of the answers."""
    figures = Figures(result)
    facts = overview(figures)
    text = environment().get_template("report.md.j2").render(
        **facts,
        models=figures.models,
        said={heading: [s.text for s in facts["summary"] if s.kind == kind] for kind, heading in HEADINGS.items()},
        rows=list(plain_rows(figures)),
        tables={info.name: [_measured(t) for t in paper_tables(figures, info.name)] for info in result.suites},
        provenance=run_provenance(result),
    )  # fmt: skip
    return f"{text.strip()}\n"


def _measured(table: PaperTable) -> tuple[PaperTable, list[str], list[list[str]]]:
    """The table, its header, and its measured rows."""
    rows = [
        [f"{block.heading}: {row.label}" if block.model is not None else row.label, *(c.text for c in row.cells)]
        for block in table.blocks
        if not block.published
        for row in block.rows
    ]
    return table, [table.stub, *table.column_names(lambda group, column: f"{column}, {group}")], rows

"""A result as a notebook shows it: the first page's table and sentences, without style sheet or script."""

from __future__ import annotations

import html

from audit.report.figures import Figures
from audit.report.page.rendering import render_sheet
from audit.report.phrases import first_rows, limit_lines, limits_overview, scope, summary
from audit.report.phrases.checks.parts import cut_off_lines, part_lines
from audit.results import AuditResult

_SENTENCES = 8


def result_html(result: AuditResult) -> str:
    """A fragment of HTML; every value is escaped."""
    if result.shard is not None or result.is_cut_off:
        lines = part_lines(result) if result.shard is not None else cut_off_lines(result)
        return "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    figures = Figures(result)
    said = [sentence for sentence in summary(figures) if sentence.kind in ("finding", "caution")]
    return render_sheet(
        "notebook.html.j2",
        result=result,
        scope=scope(figures),
        plain=first_rows(figures),
        limits_overview=limits_overview(result),
        limits=limit_lines(result)[:_SENTENCES],
        sentences=said[:_SENTENCES],
    )

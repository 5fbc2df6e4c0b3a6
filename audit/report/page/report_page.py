"""The report of a run as one HTML file: sentences, plots, tables, and the data behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from audit.report.charts.differences import forest_plot, ladder_plot
from audit.report.charts.drawn import panel_svg
from audit.report.charts.plots import FigureTable, Plot
from audit.report.charts.suite_charts import headline_plot, suite_plots
from audit.report.charts.vega_specs import CONFIG
from audit.report.figures import Figures
from audit.report.formatting import level
from audit.report.page.examples import shown_examples
from audit.report.page.payload import figure_data, plot_data
from audit.report.page.rendering import render_page
from audit.report.phrases.comparisons import comparison_rows
from audit.report.phrases.first_page import missing_kinds
from audit.report.phrases.next_steps import next_steps, store_option
from audit.report.phrases.summary import HEADINGS, overview, suite_summary
from audit.report.plain_text import one_line
from audit.report.tables import PaperTable, paper_tables, rank_rows
from audit.results import AuditResult, SuiteInfo


def report_page(result: AuditResult, *, trend: bool = False, runs: str | None = None) -> str:
    """The whole page; with ``trend`` it links to a trend.html beside it, with ``runs`` to a list of runs."""
    figures, table, plots = Figures(result), FigureTable(), list[Plot]()
    headline = _numbered(plots, headline_plot(figures, table))
    suites = [_suite(figures, table, plots, info) for info in result.suites]
    _number_the_rest(table, result, [t for suite in suites for t in suite["tables"]])
    examples, left_out = shown_examples(result, {m.id: number for number, m in enumerate(table.measures)})
    data = {
        "run": result.run_id,
        "store": store_option(result.source),
        "models": [one_line(name) for name in figures.models],
        "suites": [one_line(info.title) for info in result.suites],
        "confidence": level(result.confidence),
        "config": CONFIG,
        "plots": [plot_data(plot) for plot in plots],
        "figures": figure_data(figures, table),
        "examples": examples,
    }
    return render_page(
        "report.html.j2",
        ("page.js", "report.js"),
        data,
        **overview(figures),
        runs=runs,
        figures=figures,
        headings=HEADINGS,
        compared=comparison_rows(figures),
        next_steps=next_steps(figures),
        headline=headline,
        static=_static([headline, *(entry for suite in suites for entry in (*suite["plots"][:1], suite["ladder"]))]),
        suites=suites,
        missing_kinds=missing_kinds(next((m.levels for m in result.measures if m.spec.primary), {})),
        left_out=left_out,
        shown=len(examples),
        figure_number=table.number,
        trend=trend,
    )


def _numbered(plots: list[Plot], plot: Plot | None) -> tuple[int, Plot] | None:
    """Add a plot to the page's: (number, plot); None if there is no plot."""
    if plot is None:
        return None
    plots.append(plot)
    return len(plots) - 1, plot


def _static(shown: Sequence[tuple[int, Plot] | None]) -> dict[int, list[Markup]]:
    """The panels of the plots that no fold hides, drawn: they stand in the page before any script, and on paper."""
    return {
        number: [Markup(panel_svg(plot, panel)) for panel in range(len(plot.panels))]
        for number, plot in filter(None, shown)
    }


def _suite(figures: Figures, table: FigureTable, plots: list[Plot], info: SuiteInfo) -> dict[str, Any]:
    """A suite's section of the page."""
    drawn = suite_plots(figures, table, info.name, info.charts)
    titles = {plot.title for plot in drawn}
    return {
        "info": info,
        "undrawn": [title for chart in info.charts if (title := one_line(chart["title"])) not in titles],
        "summary": suite_summary(figures, info.name),
        "plots": [_numbered(plots, plot) for plot in drawn],
        "ladder": _numbered(plots, ladder_plot(figures, info.name)),
        "forest": _numbered(plots, forest_plot(figures, info.name)),
        "ranks": rank_rows(figures, info.name),
        "tables": paper_tables(figures, info.name),
    }


def _number_the_rest(table: FigureTable, result: AuditResult, tables: Sequence[PaperTable]) -> None:
    """Add the figures of the page's tables that no plot shows."""
    cells = [cell for one in tables for block in one.blocks for row in block.rows for cell in row.cells]
    for measure in [*(m for m in result.measures if not m.is_subgroup), *(c.measure for c in cells if c.measure)]:
        table.number(measure)

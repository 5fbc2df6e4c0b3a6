"""Every chart of a report as SVG and PDF, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from audit.report.charts.differences import forest_plot
from audit.report.charts.drawn import panel_files
from audit.report.charts.plots import FigureTable, Plot
from audit.report.charts.suite_charts import headline_plot, suite_plots
from audit.report.figures import Figures
from audit.report.formatting import one_line
from audit.results import AuditResult


def chart_files(result: AuditResult, endings: Collection[str]) -> Iterator[tuple[str, str, str, str | bytes]]:
    """(``svg`` or ``pdf``, the chart's name, its file, its content), a file for each panel of each chart."""
    figures = Figures(result)
    models = [one_line(name) for name in figures.models]
    for name, plot in _plots(figures):
        for number in range(len(plot.panels)):
            part = f"{name}-{number + 1}" if len(plot.panels) > 1 else name
            svg, pdf = panel_files(plot, number, models)
            if "svg" in endings:
                yield "svg", part, f"charts/{part}.svg", svg
            if "pdf" in endings:
                yield "pdf", part, f"charts/{part}.pdf", pdf


def _plots(figures: Figures) -> Iterator[tuple[str, Plot]]:
    table = FigureTable()
    headline = headline_plot(figures, table)
    if headline is not None:
        yield "headline", headline
    for info in figures.result.suites:
        differences = forest_plot(figures, info.name)
        drawn = suite_plots(figures, table, info.name, info.charts)
        if differences is not None:  # the headline figures come first
            drawn.append(replace(differences, panels=differences.panels[: len(figures.headline(info.name))]))
        for plot in drawn:
            yield re.sub(r"[^\w-]+", "_", f"{info.name}-{plot.title}")[:80], plot

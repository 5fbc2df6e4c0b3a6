"""Draws a plot's panels without a browser: as SVG for the page, and as SVG and PDF files for papers and slides."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Collection, Iterator
from importlib import resources
from typing import Any

import vl_convert

from audit.report.charts.differences import forest_plot
from audit.report.charts.plots import FigureTable, Plot
from audit.report.charts.suite_charts import headline_plot, suite_plots
from audit.report.charts.vega_specs import CONFIG
from audit.report.figures import Figures
from audit.results import AuditResult

_WIDTH = 480  # pixels; the page scales it to the column
_HEIGHT = 260
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")
_STYLE = re.compile(r' style="[^"]*"')

_COLOUR = re.compile(r"(--[\w-]+): light-dark\((#\w+)")


def panel_svg(plot: Plot, panel: int) -> str:
    """One panel as SVG for the page: colours are the page's variables, and nothing in it needs the script."""
    return _STYLE.sub("", vl_convert.vegalite_to_svg(json.dumps(_specification(plot, panel))))


def chart_files(result: AuditResult, endings: Collection[str]) -> Iterator[tuple[str, str, str, str | bytes]]:
    """(``svg`` or ``pdf``, the chart's name, its file, its content), a file for each panel of each chart."""
    figures = Figures(result)
    for name, plot in _plots(figures):
        for number in range(len(plot.panels)):
            part = f"{name}-{number + 1}" if len(plot.panels) > 1 else name
            svg = _paper_svg(plot, number)
            if "svg" in endings:
                yield "svg", part, f"charts/{part}.svg", svg
            if "pdf" in endings:
                yield "pdf", part, f"charts/{part}.pdf", vl_convert.svg_to_pdf(svg)


def _plots(figures: Figures) -> Iterator[tuple[str, Plot]]:
    table = FigureTable()
    if (headline := headline_plot(figures, table)) is not None:
        yield "headline", headline
    for info in figures.result.suites:
        differences = forest_plot(figures, info.name)
        for plot in filter(None, [*suite_plots(figures, table, info.name, info.charts), differences]):
            yield re.sub(r"[^\w-]+", "_", f"{info.name}-{plot.title}")[:80], plot


def _paper_svg(plot: Plot, panel: int) -> str:
    """One panel on white, with its title."""
    spec = _specification(plot, panel)
    spec["title"] = plot.panels[panel].title or plot.title
    spec["background"] = "white"
    colours = _paper_colours()
    concrete = json.loads(_VARIABLE.sub(lambda found: colours[found[1]], json.dumps(spec)))
    return vl_convert.vegalite_to_svg(json.dumps(concrete))


@functools.cache
def _paper_colours() -> dict[str, str]:
    """The style sheet's light colours, for files that have none."""
    style = resources.files("audit.report").joinpath("templates", "report.css").read_text("utf-8")
    return dict(_COLOUR.findall(style))


def _specification(plot: Plot, panel: int) -> dict[str, Any]:
    """The panel's own specification: its rows, height, axis and labels."""
    one = plot.panels[panel]
    spec = copy.deepcopy(plot.spec)
    spec["datasets"] = {**spec.get("datasets", {}), "rows": one.rows}
    spec["width"], spec["config"] = _WIDTH, CONFIG
    spec["padding"] = {"left": 16, "right": 12, "top": 4, "bottom": 4}  # the page's font may be wider than the one here
    spec["height"] = plot.heights[panel] if plot.heights else round(_WIDTH * plot.aspect) if plot.aspect else _HEIGHT
    for layer in spec["layer"]:
        across = layer["encoding"].get("x") or {}
        if one.ends and across.get("scale"):
            across["scale"]["domain"] = one.ends
        if one.axis and across.get("axis"):
            across["axis"]["title"] = one.axis
    return spec

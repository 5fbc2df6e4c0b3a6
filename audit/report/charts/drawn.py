"""Draws a plot's panels without a browser: as SVG for the page, and as SVG and PDF files for papers."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from typing import Any

import vl_convert

from audit.report.charts.plots import Plot, Row
from audit.report.charts.vega_specs import CONFIG, VERDICTS
from audit.results import VERDICT_WORDS

_WIDTH = 480  # pixels; the page scales it to the column
_HEIGHT = 260
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")
_STYLE = re.compile(r' style="[^"]*"')

#: The page's light colours, for files that have no style sheet.
PAPER_COLOURS = {
    "--ink": "#1b1d21", "--ink-2": "#51565f", "--grid": "#ecebe7", "--axis": "#9a9ea6", "--accent": "#0b5fa5",
    "--caution": "#8a4b00", "--neutral": "#6a6f78", "--published": "#5c6068", "--margin": "#e4e9e4",
    "--noise": "#e9d9c4",
    "--m0": "#0067a5", "--m1": "#c9501c", "--m2": "#00805e", "--m3": "#a4509b", "--m4": "#a87400",
    "--m5": "#2d8fc4", "--m6": "#6b4c9a", "--m7": "#8a6650", "--m8": "#5c6670", "--m9": "#b3304f",
    "--v-larger": "#c9501c", "--v-smaller": "#0067a5", "--v-equivalent": "#00805e", "--v-inconclusive": "#7b808a",
}  # fmt: skip


def panel_svg(plot: Plot, panel: int, models: Sequence[str]) -> str:
    """One panel as SVG for the page: colours are the page's variables, and nothing in it needs the script."""
    return _STYLE.sub("", vl_convert.vegalite_to_svg(json.dumps(_specification(plot, panel, models))))


def panel_files(plot: Plot, panel: int, models: Sequence[str]) -> tuple[str, bytes]:
    """One panel as SVG and as PDF, on white, with its title."""
    spec = _specification(plot, panel, models)
    spec["title"] = plot.panels[panel].title or plot.title
    spec["background"] = "white"
    concrete = json.loads(_VARIABLE.sub(lambda found: PAPER_COLOURS[found[1]], json.dumps(spec)))
    svg = vl_convert.vegalite_to_svg(json.dumps(concrete))
    return svg, vl_convert.svg_to_pdf(svg)


def _specification(plot: Plot, panel: int, models: Sequence[str]) -> dict[str, Any]:
    """The panel's own specification: its rows, height, axis and labels."""
    one = plot.panels[panel]
    spec = copy.deepcopy(plot.spec)
    spec["datasets"] = {**spec.get("datasets", {}), "rows": [_labelled(row, plot.kind, models) for row in one.rows]}
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


def _labelled(row: Row, kind: str, models: Sequence[str]) -> Row:
    """The row with the label of its pair of models, as the page's script writes it."""
    if kind not in ("forest", "drift"):
        return row
    a, b = models[row["a"]], models[row["b"]]
    return {**row, "k": f"{b}\n− {a}" if kind == "drift" else f"{b} − {a}\n{VERDICT_WORDS[VERDICTS[row['w']]]}"}

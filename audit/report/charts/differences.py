"""Plots of differences: between models on the same items, and what each change of a model does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from audit.report.charts import vega_specs as specs
from audit.report.charts.plots import Panel, Plot, Row, lane_labels, value_ends
from audit.report.figures import Figures
from audit.report.formatting import measure_label, shortened, unit_label
from audit.report.phrases.comparisons import changes, effect, rungs
from audit.results import VERDICT_WORDS, Comparison

_FIGURES = 8  # of a suite; comparisons.csv has all


def forest_plot(figures: Figures, suite: str) -> Plot | None:
    """Paired differences between models, one panel for each of the figures that show most."""
    names = lane_labels(figures.models)
    panels: list[Panel] = []
    for measure, where, label in figures.chosen(suite, _FIGURES)[0]:
        rows = [
            {"k": f"{names[c.b]} −\n{names[c.a]}\n{VERDICT_WORDS[c.verdict]}", **_drawn(c)}
            for c in figures.comparisons(suite, measure, where)
        ]
        if rows:
            unit = unit_label(figures.by_model(suite, measure, where)[0].unit)
            axis = f"{specs.DIFFERENCE_AXIS} in {measure_label(measure)}{f' ({unit})' if unit else ''}"
            panels.append(Panel(f"{measure_label(measure)}: {label or 'overall'}", rows, ends=_ends(rows), axis=axis))
    return _plot(
        "Differences between models, on the same items", "comparisons.csv has the other figures.", panels, 50, "margin"
    )


def ladder_plot(figures: Figures, suite: str) -> Plot | None:
    """The steps of the ladder on a suite's headline figures: each step's mean change, and those of its items."""
    panels: dict[str, list[Row]] = {}
    for step, measure, decided in figures.step_decisions(suite):
        label = f"{rungs(step)}\n{changes(step)}"
        for condition, c in decided:
            title = f"{measure_label(measure)}: {condition}" if condition else measure_label(measure)
            rows = panels.setdefault(title, [])
            rows.append({"k": label, "s": effect(c), **_drawn(c)})
    caption = (
        "Each row is a step: the same items, with one thing changed. The diamond is the mean change with its interval."
    )
    drawn = [Panel(title, rows, ends=_ends(rows)) for title, rows in panels.items()]
    return _plot("What each change does, on the same items", caption, drawn, 44, "margin", "verdicts")


def _plot(title: str, caption: str, panels: list[Panel], height: int, *marks: str) -> Plot | None:
    """The panels as a plot with so many pixels a row; None without any."""
    if not panels:
        return None
    drawn = {field for panel in panels for row in panel.rows for field in row}
    named = {"bl": "bounds", "e": "noise"}
    return Plot(
        title,
        caption,
        specs.forest(),
        panels,
        "differences",
        heights=[height * len({row["k"] for row in panel.rows}) + 8 for panel in panels],
        marks=("value", "interval", *marks, *(mark for field, mark in named.items() if field in drawn)),
    )


def _drawn(c: Comparison) -> Row:
    """What is drawn of a difference b − a: the numbers, and the verdict's number."""
    row = {
        "v": shortened(c.difference),
        "l": shortened(c.low),
        "h": shortened(c.high),
        "g": c.margin,
        "w": specs.VERDICTS.index(c.verdict),
        "p": shortened(c.p_adjusted),
    }
    if c.bound_low is not None and c.bound_high is not None and c.bound_high > c.bound_low:
        row |= {"bl": shortened(c.bound_low), "bh": shortened(c.bound_high)}
    return row if c.engine_noise is None else {**row, "e": shortened(c.engine_noise)}


def _ends(rows: Sequence[Row]) -> list[float]:
    """Axis limits that include zero, the margin, the noise, and every interval and bound."""
    fields = ("v", "l", "h", "bl", "bh", "g", "e")
    ends = [0.0, *_known(row.get(name) for row in rows for name in fields)]
    ends += [-end for end in _known(row.get(name) for row in rows for name in ("g", "e"))]
    return [float(f"{end:.4g}") for end in value_ends(ends)]


def _known(numbers: Iterable[float | None]) -> list[float]:
    return [x for x in numbers if x is not None]

"""Plots: panels of rows that share one specification, so that they have the same axes.

Rows hold numbers and labels; ``f`` leads back to the figure (an index into `FigureTable`), ``m`` is the model's
number, which decides its colour and shape everywhere. Colours are CSS variables: one specification serves light,
dark and print.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.report.figures import Figures
from audit.report.formatting import Estimated, bounded, shortened
from audit.report.plain_text import one_line
from audit.results import Measure

Row = dict[str, Any]

_LABEL = 26  # characters of a row's label


@dataclass(frozen=True, slots=True)
class Panel:
    """One small plot: its heading, its rows, and the model it is about, if only one.

    Panels of the same ``group`` are in one row under its heading. ``ends`` and ``axis`` are its value axis's ends and
    title where panels do not share them.
    """

    title: str
    rows: list[Row]
    model: int | None = None
    group: str = ""
    ends: list[float] | None = None
    axis: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of one or several panels that share a specification.

    ``aspect`` is height ÷ width where the shape matters, else the specification has a height.
    ``heights`` are the panels' own heights where they differ. ``marks`` names what the legend below
    the picture explains.
    """

    title: str
    caption: str
    spec: dict[str, Any]
    panels: list[Panel]
    kind: str
    aspect: float | None = None
    heights: list[int] = field(default_factory=list)
    marks: tuple[str, ...] = ()


def lane_labels(names: Iterable[str]) -> dict[str, str]:
    """``name → label`` for the narrow place beside a chart, no two alike.

    Long names lose what all begin with, then their middle: those that begin alike are told apart by their ends.
    """
    full = {name: one_line(name) for name in names}
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*full.values(), strict=False))
    shared = "".join(letters[0] for letters in alike) if len(full) > 1 else ""
    cut = max(shared.rfind(mark) for mark in "/-_ ,") + 1
    labels = {}
    for name, label in full.items():
        if len(label) > _LABEL and cut > 1:
            label = f"…{label[cut:]}"
        if len(label) > _LABEL:
            label = f"{label[: _LABEL // 2 - 1]}…{label[-_LABEL // 2 :]}"
        labels[name] = label
    times = Counter(labels.values())
    return {n: k if times[k] == 1 else f"{i}: {k}" for i, (n, k) in enumerate(labels.items(), 1)}


class FigureTable:
    """The figures a page shows, each numbered once."""

    def __init__(self) -> None:
        self.measures: list[Measure] = []
        self._number: dict[str, int] = {}

    def number(self, measure: Measure) -> int:
        """The figure's index in the page."""
        if measure.id not in self._number:
            self._number[measure.id] = len(self.measures)
            self.measures.append(measure)
        return self._number[measure.id]


def figure_row(table: FigureTable, figures: Figures, measure: Measure, **more: Any) -> Row:
    """The drawn numbers of a figure; a bounded one has bounds and no point."""
    return {
        "m": figures.model_number[measure.model],
        "f": table.number(measure),
        **estimate_fields(measure, measure.neutral),
        **more,
    }


def estimate_fields(estimate: Estimated, neutral: float | None) -> Row:
    """The numbers to draw for a value: itself, its interval, its bounds if only these are known, and neutral."""
    row = {"v": shortened(estimate.value), "l": shortened(estimate.low), "h": shortened(estimate.high)}
    if bounded(estimate):
        row |= {"bl": shortened(estimate.bound_low), "bh": shortened(estimate.bound_high)}
    return row if neutral is None else {**row, "n": neutral}


def figure_marks(measures: Sequence[Measure], *others: str) -> tuple[str, ...]:
    """What the legend below a plot of these figures must explain."""
    there = {
        "value": True,
        "interval": any(m.low is not None for m in measures),
        "bounds": any(bounded(m) for m in measures),
        "neutral": any(m.neutral is not None for m in measures),
    }
    return (*(name for name, drawn in there.items() if drawn), *others)


def figure_ends(measures: Sequence[Measure], beside: Iterable[float] = ()) -> list[float]:
    """Axis limits that include every interval, bound, neutral value and whatever else is drawn, with some padding.

    A mark beyond its axis makes Vega shrink the whole plot until the mark fits, down to no width at all.
    """
    ends = [*drawn_values(*measures), *(m.neutral for m in measures if m.neutral is not None), *beside]
    if all(m.unit in ("probability", "share") for m in measures) and all(0 <= end <= 1 for end in ends):
        top = max(ends, default=1.0)  # a difference of probabilities has their unit, and may be negative
        return [0.0, 1.0 if top > 0.6 else _round_above(top)]
    return value_ends(ends)


def drawn_values(*estimates: Estimated) -> list[float]:
    """All known values, ends of intervals, and bounds."""
    return [x for e in estimates for x in (e.value, e.low, e.high, e.bound_low, e.bound_high) if x is not None]


def value_ends(values: Sequence[float]) -> list[float]:
    """Axis limits that include all values, with some padding; mere rounding errors are not magnified."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = (high - low) * 0.06 if high - low > 1e-9 * max(1.0, abs(high)) else 0.5
    return [low - room, high + room]


def _round_above(top: float) -> float:
    """A round number a little above ``top``."""
    if top <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(top))
    return float(min(1.0, math.ceil(top * 1.05 / step * 2) / 2 * step))

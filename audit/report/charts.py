"""Plots as Vega-Lite specifications, one for each picture, with the rows each panel draws.

A specification is shared by the panels of a picture; only their rows differ, so that panels have the same axes.
Rows hold numbers and labels; ``f`` leads back to the figure (an index into `FigureTable`), ``m`` is the model's
number, which decides its colour and shape everywhere. Colours are CSS variables: one specification serves light,
dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from audit.report import ternary
from audit.report import vega_specs as specs
from audit.report.figures import Figures
from audit.report.formatting import bounded
from audit.report.labels import (
    distinct_labels,
    factor_label,
    level_label,
    measure_label,
    short_level,
    unit_label,
    where_label,
)
from audit.report.safe_text import one_line
from audit.results import Comparison, Measure, Scalar, level_key, where_key

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """One small plot: its heading, its rows, and the model it is about, if only one.

    Panels of the same ``group`` stand in one row under its heading. ``ends`` are its value axis's
    ends where panels do not share them.
    """

    title: str
    rows: list[Row]
    model: int | None = None
    group: str = ""
    ends: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of one or several panels that share a specification.

    ``aspect`` is height ÷ width where the shape matters, else the specification has a height.
    ``heights`` are the panels' own heights where they differ. ``marks`` names what the key below
    the picture has to explain. ``names`` are texts that many rows share: their ``i`` points there.
    """

    title: str
    caption: str
    spec: dict[str, Any]
    panels: list[Panel]
    kind: str
    aspect: float | None = None
    heights: list[int] = field(default_factory=list)
    marks: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)


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


def suite_plots(figures: Figures, table: FigureTable, suite: str, charts: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """The plots a suite asks for; those without any value are left out."""
    draw: dict[str, Callable[[_Drawing], Plot | None]] = {
        "dots": _dots,
        "scatter": _scatter,
        "ternary": _ternary,
        "lines": _lines,
        "ranking": _ranking,
    }
    plots = (draw[chart["kind"]](_Drawing(figures, table, suite, chart)) for chart in charts)
    return [drawn for plot in plots if plot is not None and (drawn := _without_empty_panels(plot)).panels]


def _without_empty_panels(plot: Plot) -> Plot:
    """The plot without panels that hold no value; a row of models keeps all of its panels, or none."""
    full = {p.group for p in plot.panels if p.model is not None and any(map(_shows, p.rows))}
    kept = [i for i, p in enumerate(plot.panels) if (any(map(_shows, p.rows)) if p.model is None else p.group in full)]
    heights = [plot.heights[i] for i in kept] if plot.heights else []
    return replace(plot, panels=[plot.panels[i] for i in kept], heights=heights)


def _shows(row: Row) -> bool:
    """Whether a measured figure can be drawn of the row: a value, bounds, or a place in a triangle."""
    return row.get("v") is not None or "bl" in row or ("fs" in row and "x" in row)


def headline_plot(figures: Figures, table: FigureTable) -> Plot | None:
    """The first screen's picture: each suite's speaking figures, models side by side."""
    panels, heights, everything = [], [], []
    for info in figures.result.suites:
        wanted = figures.headline(info.name)
        rows, drawn = [], []
        told = figures.distinguishing_labels(info.name, wanted[0][0], [where for _, where in wanted]) if wanted else []
        for (measure, where), condition in zip(wanted, told, strict=True):
            label = condition or measure_label(measure)
            found = figures.by_model(info.name, measure, where)
            drawn += found
            rows += [_row(table, figures, m, k=label) for m in found]
        if rows:
            panels.append(Panel(f"{one_line(info.title)}: {measure_label(wanted[0][0])}", rows, ends=_domain(drawn)))
            heights.append(len(wanted) * (10 + 8 * len(figures.models)) + 6)
            everything += drawn
    if not panels:
        return None
    spec = specs.dots(len(figures.models), [0, 1], max(heights), "")
    return Plot("The answer in one picture", "", spec, panels, "dots", heights=heights, marks=_marks(everything))


#: Differences that a page holds of all suites together. More are in comparisons.csv: ten models have tens of
#: thousands, and the page must stay small enough to mail.
FOREST_ROWS = 8_000


def forest_plot(figures: Figures, suite: str) -> Plot | None:
    """Paired differences between models, one panel a figure; the page shows one panel at a time.

    The figures that speak for the suite come first; those beyond the suite's share of `FOREST_ROWS` are left
    out, and the caption says so.
    """
    headline = [(name, where_key(where)) for name, where in figures.headline(suite)]
    grouped: dict[tuple[str, Any], list[Comparison]] = {}
    for c in figures.result.comparisons:
        if c.suite == suite and not c.is_subgroup:
            grouped.setdefault((c.measure, where_key(c.where)), []).append(c)
    order = [key for key in headline if key in grouped] + [key for key in grouped if key not in headline]
    room = FOREST_ROWS // len(figures.result.suites)
    panels: list[Panel] = []
    for key in order:
        if panels and sum(len(p.rows) for p in panels) + len(grouped[key]) > room:
            break
        rows = [forest_row(figures, c) for c in grouped[key]]
        first = grouped[key][0]
        title = f"{measure_label(first.measure)}: {where_label(first.where)}"
        panels.append(Panel(title, rows, ends=_forest_ends(grouped[key])))
    if not panels:
        return None
    marks = tuple(
        name
        for name, there in (
            ("value", True),
            ("interval", True),
            ("bounds", any("bl" in r for p in panels for r in p.rows)),
            ("margin", True),
            ("noise", any("e" in r for p in panels for r in p.rows)),
        )
        if there
    )
    heights = [34 * len(p.rows) + 8 for p in panels]
    left_out = len(order) - len(panels)
    caption = f"{left_out:,} more figures are compared in comparisons.csv, left out here to keep the page small."
    return Plot(
        "Differences between models, on the same items",
        caption if left_out else "",
        specs.forest(),
        panels,
        "forest",
        heights=heights,
        marks=marks,
    )


def forest_row(figures: Figures, c: Comparison) -> Row:
    """A difference b − a: the models' numbers, the drawn numbers, the verdict's number."""
    bounds = {"bl": short(c.bound_low), "bh": short(c.bound_high)} if _differ(c.bound_low, c.bound_high) else {}
    return {
        "a": figures.model_number[c.a],
        "b": figures.model_number[c.b],
        "v": short(c.difference),
        "l": short(c.low),
        "h": short(c.high),
        "g": c.margin,
        "w": specs.VERDICTS.index(c.verdict),
        "p": short(c.p_holm),
        **bounds,
        **({} if c.engine_noise is None else {"e": short(c.engine_noise)}),
    }


def short(x: float | None) -> float | None:
    """Five significant digits: more than a plot, a hover text or a dialog shows."""
    return None if x is None else float(f"{x:.5g}")


def _forest_ends(comparisons: Sequence[Comparison]) -> list[float]:
    """Axis ends that hold zero, the margin, and every interval and bound."""
    ends = [0.0]
    for c in comparisons:
        ends += [x for x in (c.difference, c.low, c.high, c.bound_low, c.bound_high) if x is not None]
        ends += [-c.margin, c.margin, -(c.engine_noise or 0.0), c.engine_noise or 0.0]
    room = (max(ends) - min(ends)) * 0.05 or 0.5
    return [float(f"{end:.4g}") for end in (min(ends) - room, max(ends) + room)]


@dataclass(frozen=True)
class _Drawing:
    """A chart to be drawn: what it asks for, and where to find it."""

    figures: Figures
    table: FigureTable
    suite: str
    chart: Mapping[str, Any]

    @property
    def models(self) -> int:
        return len(self.figures.models)

    @property
    def measures(self) -> list[str]:
        return list(self.chart["measures"])

    def found(self, measure: str) -> list[Measure]:
        """Every figure of the measure that the chart draws, all models."""
        return [
            m
            for where in self.figures.wheres_of_chart(self.suite, measure, self.chart)
            for m in self.figures.by_model(self.suite, measure, where)
        ]

    def facets(self, measures: Iterable[Measure]) -> dict[str, list[Measure]]:
        """The figures by the level of the chart's facet, in reported order."""
        facet = self.chart.get("facet")
        grouped: dict[str, list[Measure]] = {}
        for m in measures:
            title = f"{factor_label(facet)}: {self._label(facet, m, bare=True)}" if facet else ""
            grouped.setdefault(title, []).append(m)
        return grouped

    def level(self, measure: Measure, *, bare: bool = False) -> str:
        """The row's label; ``bare`` where an axis or caption already names the factor."""
        by = self.chart.get("by")
        if not by:
            return one_line(measure.model)
        return self._label(by, measure, bare=bare)

    def _label(self, factor: str, measure: Measure, *, bare: bool) -> str:
        return self._labels[factor, bare][level_key(measure.where[factor])]

    @cached_property
    def _labels(self) -> dict[tuple[str, bool], dict[tuple[bool, Scalar], str]]:
        """The labels of the chart's levels: no two levels share one, or their rows and panels would merge."""
        conditions = [
            where for name in self.measures for where in self.figures.wheres_of_chart(self.suite, name, self.chart)
        ]
        return {
            (factor, bare): distinct_labels([where[factor] for where in conditions], label)
            for factor in (self.chart.get("by"), self.chart.get("facet"))
            if factor
            for bare, label in ((True, level_label), (False, partial(short_level, factor)))
        }

    def plot(self, spec: dict[str, Any], panels: list[Panel], **more: Any) -> Plot:
        return Plot(
            one_line(self.chart["title"]), one_line(self.chart["caption"]), spec, panels, self.chart["kind"], **more
        )


def _row(table: FigureTable, figures: Figures, measure: Measure, **more: Any) -> Row:
    """The drawn numbers of a figure; a bounded one has bounds and no point."""
    only_bounds = bounded(measure)
    return {
        "m": figures.model_number[measure.model],
        "f": table.number(measure),
        "v": short(measure.value),
        "l": short(measure.low),
        "h": short(measure.high),
        **({"bl": short(measure.bound_low), "bh": short(measure.bound_high)} if only_bounds else {}),
        **({} if measure.neutral is None else {"n": measure.neutral}),
        **more,
    }


def _differ(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and high > low


def _marks(measures: Sequence[Measure], *, published: bool = False) -> tuple[str, ...]:
    there = {
        "value": True,
        "interval": any(m.low is not None for m in measures),
        "bounds": any(bounded(m) for m in measures),
        "neutral": any(m.neutral is not None for m in measures),
        "published": published,
    }
    return tuple(name for name, yes in there.items() if yes)


def _domain(measures: Iterable[Measure], beside: Iterable[float] = ()) -> list[float]:
    """Axis ends that hold every interval, bound, neutral value and what is drawn beside them, with a little room.

    A mark beyond its axis makes Vega shrink the whole plot until the mark fits, down to no width at all.
    """
    measures = list(measures)
    ends = [
        x for m in measures for x in (m.value, m.low, m.high, m.bound_low, m.bound_high, m.neutral) if x is not None
    ]
    ends += beside
    if all(m.unit in ("probability", "share") for m in measures):
        ends += [0.0]
        top = max(ends, default=1.0)
        return [0.0, 1.0] if top > 0.6 else [0.0, _above(top)]
    return value_ends(ends)


def value_ends(values: Sequence[float]) -> list[float]:
    """Axis ends that hold all the values, with a little room; rounding errors alone are not stretched over it."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = (high - low) * 0.06 if high - low > 1e-9 * max(1.0, abs(high)) else 0.5
    return [low - room, high + room]


def _above(top: float) -> float:
    """A round number a little above ``top``."""
    if top <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(top))
    return float(min(1.0, math.ceil(top * 1.05 / step * 2) / 2 * step))


def _axis_title(measures: Sequence[Measure]) -> str:
    """What the axis measures: the measure's name, or the shared unit."""
    names = {m.measure for m in measures}
    unit = unit_label(next(iter({m.unit for m in measures}), ""))
    if len(names) == 1:
        return measure_label(names.pop()) + (f" ({unit})" if unit else "")
    return unit or "probability"


def _dots(drawing: _Drawing) -> Plot | None:
    by, measures = drawing.chart.get("by"), drawing.measures
    found = {name: drawing.found(name) for name in measures}
    everything = [m for ms in found.values() for m in ms]
    if not everything:
        return None
    rows_are_measures = not by and len(measures) > 1
    grouped: dict[str, list[Row]] = {}
    drawn: dict[str, list[Measure]] = {}
    for name in measures:
        for facet, ms in drawing.facets(found[name]).items():
            split = [] if rows_are_measures or len(measures) == 1 else [measure_label(name)]
            title = " · ".join([*split, *([facet] if facet else [])])
            drawn.setdefault(title, []).extend(ms)
            grouped.setdefault(title, []).extend(
                _row(
                    drawing.table,
                    drawing.figures,
                    m,
                    k=measure_label(name) if rows_are_measures else drawing.level(m),
                )
                for m in ms
            )
    published = False
    for title, ms in drawn.items():
        papers = _published_rows(drawing, ms, rows_are_measures)
        published |= bool(papers)
        grouped[title] += papers
    panels = [Panel(title, rows) for title, rows in grouped.items()]
    one_row_a_model = not by and not rows_are_measures
    lanes = 1 if one_row_a_model else drawing.models
    heights = [_dots_height(len({r["k"] for r in p.rows}), lanes) for p in panels]
    printed = [row["u"] for panel in panels for row in panel.rows if "u" in row]
    spec = specs.dots(
        drawing.models, _domain(everything, printed), max(heights), _axis_title(everything), dodge=not one_row_a_model
    )
    return drawing.plot(spec, panels, heights=heights, marks=_marks(everything, published=published))


def _published_rows(drawing: _Drawing, drawn: Sequence[Measure], rows_are_measures: bool) -> list[Row]:
    """The papers' printed figures for the same measure and condition, in the rows they belong to."""
    if not drawing.chart.get("by") and not rows_are_measures:
        return []  # rows are models there: another model has no row
    info = next(s for s in drawing.figures.result.suites if s.name == drawing.suite)
    rows = []
    for key in dict.fromkeys((m.measure, where_key(m.where)) for m in drawn):
        example = next(m for m in drawn if (m.measure, where_key(m.where)) == key)
        label = measure_label(example.measure) if rows_are_measures else drawing.level(example)
        rows += [
            {"k": label, "u": p["value"], "pub": one_line(p["model"])}
            for p in info.published
            if (p["measure"], where_key(p["where"])) == key
        ]
    return rows


def _dots_height(rows: int, lanes: int) -> int:
    return rows * max(22, 9 + 11 * lanes) + 6


def _scatter(drawing: _Drawing) -> Plot | None:
    covariate = drawing.chart.get("covariate") or {}
    by = drawing.chart["by"]
    found = [m for name in drawing.measures for m in drawing.found(name) if str(m.where[by]) in covariate]
    if not found:
        return None
    panels = [
        Panel(
            title,
            [_row(drawing.table, drawing.figures, m, k=drawing.level(m), x=covariate[str(m.where[by])]) for m in ms],
            model,
            group,
        )
        for title, model, group, ms in _by_model(drawing, found)
    ]
    ends = [min(covariate.values()), max(covariate.values())]
    shares = ends[0] >= 0 and ends[1] <= 1
    room = (ends[1] - ends[0]) * 0.05 or 0.5
    mirrors = shares and all(m.unit == "probability" for m in found)
    spec = specs.scatter(
        drawing.models,
        [0.0, 1.0] if shares else [ends[0] - room, ends[1] + room],
        _domain(found),
        one_line(drawing.chart["covariate_label"]),
        _axis_title(found),
        diagonal=mirrors,
    )
    marks = _marks(found) + (("diagonal",) if mirrors else ())
    return drawing.plot(spec, panels, aspect=0.8, marks=marks)


def _by_model(drawing: _Drawing, found: Sequence[Measure]) -> list[tuple[str, int, str, list[Measure]]]:
    """Panels (title, model's number, group, figures): a group of models for each facet and measure.

    With one model, a group would hold a single panel: the condition is the panel's title then.
    """
    several = len({m.measure for m in found}) > 1
    panels: dict[tuple[str, str], list[Measure]] = {}
    for facet, ms in drawing.facets(found).items():
        for m in ms:
            group = " · ".join(part for part in (measure_label(m.measure) if several else "", facet) if part)
            panels.setdefault((group, m.model), []).append(m)
    alone = drawing.models == 1
    return [
        (
            (alone and group) or one_line(model),
            drawing.figures.model_number[model],
            "" if alone else group,
            ms,
        )
        for (group, model), ms in panels.items()
    ]


def _lines(drawing: _Drawing) -> Plot | None:
    grouped: dict[str, list[Measure]] = {}
    for name in drawing.measures:
        for facet, ms in drawing.facets(drawing.found(name)).items():
            split = [measure_label(name)] if len(drawing.measures) > 1 else []
            grouped[" · ".join([*split, *([facet] if facet else [])])] = ms
    everything = [m for ms in grouped.values() for m in ms]
    if not everything:
        return None
    panels = [
        Panel(title, [_row(drawing.table, drawing.figures, m, k=drawing.level(m, bare=True)) for m in ms])
        for title, ms in grouped.items()
    ]
    spec = specs.lines(drawing.models, _domain(everything), factor_label(drawing.chart["by"]), _axis_title(everything))
    return drawing.plot(spec, panels, marks=_marks(everything))


def _ranking(drawing: _Drawing) -> Plot | None:
    found = [m for name in drawing.measures for m in drawing.found(name)]
    if not found:
        return None
    panels = []
    for title, model, group, ms in _by_model(drawing, found):
        ranked = sorted(ms, key=lambda m: math.inf if m.value is None else -m.value)
        rows = [_row(drawing.table, drawing.figures, m, k=drawing.level(m)) for m in ranked]
        panels.append(Panel(title, rows, model, group))
    heights = [15 * len(p.rows) + 6 for p in panels]
    spec = specs.dots(drawing.models, _domain(found), max(heights), _axis_title(found), dodge=False)
    return drawing.plot(spec, panels, heights=heights, marks=_marks(found))


def _ternary(drawing: _Drawing) -> Plot | None:
    names = drawing.measures
    first = drawing.found(names[0])
    if not first or len(names) != 3:
        return None
    panels = []
    for title, model, group, ms in _by_model(drawing, first):
        trios = []
        for m in ms:
            trio = [drawing.figures.get(drawing.suite, name, m.where, m.model) for name in names]
            if all(t is not None for t in trio):
                trios.append([t for t in trio if t is not None])
        panels.append(Panel(title, _ternary_rows(drawing, trios), model, group))
    spec = specs.ternary(drawing.models, [measure_label(name) for name in names], ternary.CORNERS)
    arrows = any("x0" in row for panel in panels for row in panel.rows)
    marks = ("value", "interval", *(("arrow",) if arrows else ()))
    return drawing.plot(spec, panels, aspect=specs.TERNARY_ASPECT, marks=marks)


def _ternary_rows(drawing: _Drawing, trios: Sequence[Sequence[Measure]]) -> list[Row]:
    """One row a level, with its arrow from the level None, and three whiskers for its intervals.

    A whisker shows one measure's interval: the point moved towards or away from that measure's corner.
    """
    by = drawing.chart.get("by")
    places = [ternary.place([m.value for m in trio]) for trio in trios]
    start = next((at for trio, at in zip(trios, places, strict=True) if by and trio[0].where[by] is None), None)
    rows: list[Row] = []
    named: list[tuple[float, float]] = []
    for trio, at in zip(trios, places, strict=True):
        row: Row = {
            "k": drawing.level(trio[0], bare=True),
            "m": drawing.figures.model_number[trio[0].model],
            "fs": [drawing.table.number(m) for m in trio],
        }
        rows.append(row)
        if at is None:
            continue  # listed in the table behind the picture, but it has no place in the triangle
        row |= {"x": short(at[0]), "y": short(at[1])}
        if all(ternary.names_apart(at, other) for other in named):
            row["t"] = row["k"]  # names that would lie on each other are left to hovering
            named.append(at)
        if start is not None and at != start:
            row |= {"x0": short(start[0]), "y0": short(start[1]), "a": round(ternary.direction(start, at), 1)}
        for measure, corner in zip(trio, ternary.CORNERS, strict=True):
            if measure.value is not None and measure.low is not None and measure.high is not None:
                (x, y), (x2, y2) = ternary.whisker(at, corner, measure.value, measure.low, measure.high)
                rows.append({"m": row["m"], "wx": short(x), "wy": short(y), "wx2": short(x2), "wy2": short(y2)})
    return rows

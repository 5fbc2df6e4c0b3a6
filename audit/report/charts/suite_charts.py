"""The charts that suites declare, by kind, and the headline chart of all suites."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from audit.report.charts import vega_specs as specs
from audit.report.charts.plots import (
    FigureTable,
    Panel,
    Plot,
    Row,
    figure_ends,
    figure_marks,
    figure_row,
    lane_labels,
)
from audit.report.figures import Figures
from audit.report.formatting import distinct_labels, factor_label, level_label, measure_label, unit_label
from audit.report.plain_text import one_line
from audit.results import Measure, level_key, where_key
from backends.base import Scalar

_DRAWN = 8  # figures of a suite that the first screen has room for


def headline_plot(figures: Figures, table: FigureTable) -> Plot | None:
    """The first screen's chart: each suite's leading figures by measure, with models side by side."""
    panels, heights, drawn = [], [], []
    for info in figures.result.suites:
        shown, _ = figures.chosen(info.name, _DRAWN)
        for measure, of_measure in itertools.groupby(shown, key=lambda one: one.measure):
            rows, of_panel = [], []
            for one in of_measure:
                by_model = figures.by_model(info.name, measure, one.where)
                of_panel += by_model
                rows += [figure_row(table, figures, m, k=one.label or measure_label(measure)) for m in by_model]
            if rows:
                title = f"{one_line(info.title)}: {measure_label(measure)}"
                panels.append(Panel(title, rows, ends=figure_ends(of_panel), axis=_unit(of_panel)))
                heights.append(len({row["k"] for row in rows}) * (10 + 8 * len(figures.models)) + 6)
                drawn += of_panel
    if not panels:
        return None
    panels = _with_lane_labels(_on_shared_axes(panels))
    spec = specs.dots(len(figures.models), [0, 1], max(heights), "")
    whole = Plot("The answer in one picture", "", spec, panels, "dots", heights=heights, marks=figure_marks(drawn))
    plot = _without_empty_panels(whole)
    return plot if plot.panels else None


def _on_shared_axes(panels: Sequence[Panel]) -> list[Panel]:
    """The panels with the same ends for all of one unit: a gap of 0.02 must not look as large as one of 0.5."""
    by_unit: dict[str, list[float]] = {}
    for panel in panels:
        by_unit.setdefault(panel.axis, []).extend(panel.ends or ())
    return [replace(panel, ends=[min(by_unit[panel.axis]), max(by_unit[panel.axis])]) for panel in panels]


def _with_lane_labels(panels: Sequence[Panel]) -> list[Panel]:
    labels = lane_labels(row["k"] for panel in panels for row in panel.rows)
    return [replace(p, rows=[{**row, "k": labels[row["k"]]} for row in p.rows]) for p in panels]


def suite_plots(figures: Figures, table: FigureTable, suite: str, charts: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """The charts a suite declares, except those without any value."""
    plots = (_KINDS[chart["kind"]](_Chart(figures, table, suite, chart)) for chart in charts)
    return [drawn for plot in plots if plot is not None and (drawn := _without_empty_panels(plot)).panels]


def _without_empty_panels(plot: Plot) -> Plot:
    """The plot without empty panels; a row of models keeps all of its panels, or none."""
    full = {p.group for p in plot.panels if p.model is not None and any(map(_has_value, p.rows))}
    kept = [
        i for i, p in enumerate(plot.panels) if (any(map(_has_value, p.rows)) if p.model is None else p.group in full)
    ]
    heights = [plot.heights[i] for i in kept] if plot.heights else []
    return replace(plot, panels=[plot.panels[i] for i in kept], heights=heights)


def _has_value(row: Row) -> bool:
    """Whether the row has a measured figure to draw: a value, or bounds."""
    return row.get("v") is not None or "bl" in row


@dataclass(frozen=True)
class _Chart:
    """A chart declared by a suite, with access to its figures."""

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

    @property
    def by(self) -> str | None:
        return self.chart.get("by")

    @cached_property
    def found(self) -> list[Measure]:
        """Every figure that the chart draws, all models, measure by measure."""
        return [m for name in self.measures for m in self.of(name)]

    def of(self, measure: str) -> list[Measure]:
        """Every figure of one measure that the chart draws, all models."""
        return [
            m
            for where in self.figures.chart_conditions(self.suite, measure, self.chart)
            for m in self.figures.by_model(self.suite, measure, where)
        ]

    def facets(self, measures: Iterable[Measure]) -> dict[str, list[Measure]]:
        """The figures by the level of the chart's facet, in reported order."""
        facet = self.chart.get("facet")
        groups: dict[str, list[Measure]] = {}
        for m in measures:
            title = self._facet_title(facet, m) if facet else ""
            groups.setdefault(title, []).append(m)
        return groups

    def _facet_title(self, facet: str, measure: Measure) -> str:
        own = self.figures.suite(self.suite).level_labels.get(facet, {}).get(str(measure.where[facet]))
        return own or f"{factor_label(facet)}: {self._label(facet, measure, bare=True)}"

    def level(self, measure: Measure, *, bare: bool = False) -> str:
        """The row's label; ``bare`` where an axis or caption already names the factor."""
        return self._label(self.by, measure, bare=bare) if self.by else one_line(measure.model)

    def _label(self, factor: str, measure: Measure, *, bare: bool) -> str:
        return self._labels[factor, bare][level_key(measure.where[factor])]

    @cached_property
    def _labels(self) -> dict[tuple[str, bool], dict[tuple[bool, Scalar], str]]:
        """The labels of the chart's levels: no two levels share one, or their rows and panels would merge."""
        conditions = [
            where for name in self.measures for where in self.figures.chart_conditions(self.suite, name, self.chart)
        ]
        return {
            (factor, bare): distinct_labels([where[factor] for where in conditions], label)
            for factor in (self.by, self.chart.get("facet"))
            if factor
            for bare, label in ((True, level_label), (False, partial(self.figures.level_label, self.suite, factor)))
        }

    def by_condition(self, *, several_measures: bool) -> dict[str, list[Measure]]:
        """The figures by the heading of their panel, all models in one panel."""
        groups: dict[str, list[Measure]] = {}
        for name in self.measures:
            for facet, ms in self.facets(self.of(name)).items():
                groups.setdefault(_heading(name if several_measures else None, facet), []).extend(ms)
        return groups

    def by_model(self, measures: Sequence[Measure], rows: Callable[[list[Measure]], list[Row]]) -> list[Panel]:
        """A panel for each model, in a group of models for each condition.

        With one model, a group would hold a single panel: the condition is the panel's title then.
        """
        several = len({m.measure for m in measures}) > 1
        panels: dict[tuple[str, str], list[Measure]] = {}
        for facet, ms in self.facets(measures).items():
            for m in ms:
                panels.setdefault((_heading(m.measure if several else None, facet), m.model), []).append(m)
        numbers = self.figures.model_number
        if self.models == 1:
            return [Panel(group or one_line(name), rows(ms), numbers[name]) for (group, name), ms in panels.items()]
        return [Panel(one_line(name), rows(ms), numbers[name], group) for (group, name), ms in panels.items()]

    def row(self, measure: Measure, *, bare: bool = False, **more: Any) -> Row:
        return figure_row(self.table, self.figures, measure, **{"k": self.level(measure, bare=bare), **more})

    def plot(self, spec: dict[str, Any], panels: list[Panel], **more: Any) -> Plot:
        return Plot(
            one_line(self.chart["title"]), one_line(self.chart["caption"]), spec, panels, self.chart["kind"], **more
        )


def _heading(measure: str | None, facet: str) -> str:
    return " · ".join(part for part in (measure_label(measure) if measure else "", facet) if part)


def _axis_title(measures: Sequence[Measure]) -> str:
    """What the axis measures: the measure's name, or the shared unit."""
    names = {m.measure for m in measures}
    unit = unit_label(measures[0].unit)
    if len(names) == 1:
        return measure_label(names.pop()) + (f" ({unit})" if unit else "")
    return _unit(measures)


def _unit(measures: Sequence[Measure]) -> str:
    """The unit on an axis whose measure is named elsewhere."""
    return unit_label(measures[0].unit) or one_line(measures[0].unit)


def _dots(chart: _Chart) -> Plot | None:
    """Rows are the levels of a factor; or, without one, the measures; or, with one measure, the models."""
    if not chart.found:
        return None
    rows_are_measures = not chart.by and len(chart.measures) > 1
    rows_are_models = not chart.by and not rows_are_measures

    def label(measure: Measure) -> str:
        return measure_label(measure.measure) if rows_are_measures else chart.level(measure)

    panels = []
    for title, ms in chart.by_condition(several_measures=len(chart.measures) > 1 and not rows_are_measures).items():
        rows = [chart.row(m, k=label(m)) for m in ms]
        panels.append(Panel(title, rows if rows_are_models else rows + _published_rows(chart, ms, label)))
    lanes = 1 if rows_are_models else chart.models
    heights = [len({r["k"] for r in p.rows}) * max(22, 9 + 11 * lanes) + 6 for p in panels]
    published = [row["u"] for panel in panels for row in panel.rows if "u" in row]
    spec = specs.dots(
        chart.models,
        figure_ends(chart.found, published),
        max(heights),
        _axis_title(chart.found),
        dodge=not rows_are_models,
    )
    marks = figure_marks(chart.found, *(["published"] if published else []))
    return chart.plot(spec, _with_lane_labels(panels), heights=heights, marks=marks)


def _published_rows(chart: _Chart, drawn: Sequence[Measure], label: Callable[[Measure], str]) -> list[Row]:
    """The papers' printed figures for the same measure and condition, in the rows they belong to.

    Those of a design that differs are left out: a mark has no room for the difference, a table has.
    """
    published = chart.figures.suite(chart.suite).published
    labels = {(m.measure, where_key(m.where)): label(m) for m in drawn}
    return [
        {"k": name, "u": p["value"], "pub": one_line(p["model"])}
        for key, name in labels.items()
        for p in published
        if (p["measure"], where_key(p["where"])) == key and not (p.get("source") or {}).get("difference")
    ]


def _lines(chart: _Chart) -> Plot | None:
    if not chart.found:
        return None
    groups = chart.by_condition(several_measures=len(chart.measures) > 1)
    panels = [Panel(title, [chart.row(m, bare=True) for m in ms]) for title, ms in groups.items()]
    axes = factor_label(chart.chart["by"]), _axis_title(chart.found)
    return chart.plot(
        specs.lines(chart.models, figure_ends(chart.found), *axes), panels, marks=figure_marks(chart.found)
    )


def _scatter(chart: _Chart) -> Plot | None:
    covariate, by = chart.chart.get("covariate") or {}, chart.chart["by"]
    found = [m for m in chart.found if str(m.where[by]) in covariate]
    if not found:
        return None
    panels = chart.by_model(found, lambda ms: [chart.row(m, x=covariate[str(m.where[by])]) for m in ms])
    low, high = min(covariate.values()), max(covariate.values())
    shares = low >= 0 and high <= 1
    room = (high - low) * 0.05 or 0.5
    diagonal = shares and all(m.unit == "probability" for m in found)
    spec = specs.scatter(
        chart.models,
        [0.0, 1.0] if shares else [low - room, high + room],
        figure_ends(found),
        (one_line(chart.chart["covariate_label"]), _axis_title(found)),
        diagonal=diagonal,
    )
    return chart.plot(spec, panels, aspect=0.8, marks=figure_marks(found, *(["diagonal"] if diagonal else [])))


def _ranking(chart: _Chart) -> Plot | None:
    if not chart.found:
        return None

    def ranked(measures: list[Measure]) -> list[Row]:
        ordered = sorted(measures, key=lambda m: math.inf if m.value is None else -m.value)
        return [chart.row(m) for m in ordered]

    panels = chart.by_model(chart.found, ranked)
    heights = [15 * len(p.rows) + 6 for p in panels]
    spec = specs.dots(chart.models, figure_ends(chart.found), max(heights), _axis_title(chart.found), dodge=False)
    return chart.plot(spec, _with_lane_labels(panels), heights=heights, marks=figure_marks(chart.found))


_KINDS: Mapping[str, Callable[[_Chart], Plot | None]] = {
    "dots": _dots,
    "lines": _lines,
    "scatter": _scatter,
    "ranking": _ranking,
}

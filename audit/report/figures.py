"""Looks up an audit's measures by name, and selects each suite's headline figures. Computes no new numbers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from audit.report.formatting import distinct_labels, short_level, where_label
from audit.results import AttributionStep, AuditResult, Comparison, Measure, SuiteInfo, Where, level_key, where_key
from backends.base import Scalar

Condition = Mapping[str, Scalar]


class Leading(NamedTuple):
    """A figure that a suite was made to show; ``label`` tells it from the measure's others, "" for none."""

    measure: str
    where: Condition
    label: str


_HEADLINE = 8  # conditions that fit into one chart and one sentence


class Figures:
    """An index over one result's measures and comparisons."""

    def __init__(self, result: AuditResult) -> None:
        self.result = result
        self.models = [m.name for m in result.models]
        self.model_number = {name: i for i, name in enumerate(self.models)}
        self._suites = {info.name: info for info in result.suites}
        self._measures: dict[tuple[str, str, Where], dict[str, Measure]] = defaultdict(dict)
        self._conditions: dict[tuple[str, str], dict[Where, Condition]] = defaultdict(dict)
        for m in result.measures:
            key = where_key(m.where)
            self._measures[m.suite, m.measure, key][m.model] = m
            self._conditions[m.suite, m.measure].setdefault(key, m.where)
        self._comparisons: dict[tuple[str, str, Where], list[Comparison]] = defaultdict(list)
        for c in result.comparisons:
            self._comparisons[c.suite, c.measure, where_key(c.where)].append(c)

    def suite(self, name: str) -> SuiteInfo:
        """The suite as it was run."""
        return self._suites[name]

    def level_label(self, suite: str, factor: str, level: Scalar) -> str:
        """A level in the suite's own words, or as it is."""
        own = self._suites[suite].level_labels.get(factor, {})
        return own.get(str(level)) or short_level(factor, level)

    def where_label(self, suite: str, where: Condition) -> str:
        """A condition in the suite's own words; that it is untreated is said where others are treated."""
        told = {k: level for k, level in where.items() if level is not None or (suite, k) in self._treated}
        return where_label(told, self._suites[suite].level_labels)

    @cached_property
    def _treated(self) -> set[tuple[str, str]]:
        """(suite, factor) of every factor that has levels in the run."""
        return {(m.suite, k) for m in self.result.measures for k, level in m.where.items() if level is not None}

    def get(self, suite: str, measure: str, where: Condition, model: str) -> Measure | None:
        """The figure of one model; None if it was not measured."""
        return self._measures.get((suite, measure, where_key(where)), {}).get(model)

    def by_model(self, suite: str, measure: str, where: Condition) -> list[Measure]:
        """The figure of every model that has it, in the models' order."""
        by_name = self._measures.get((suite, measure, where_key(where)), {})
        return [by_name[name] for name in self.models if name in by_name]

    def comparisons(self, suite: str, measure: str, where: Condition) -> list[Comparison]:
        """Every pair of models compared on this figure."""
        return self._comparisons.get((suite, measure, where_key(where)), [])

    def conditions(self, suite: str, measure: str) -> list[Condition]:
        """All conditions of the measure, in reported order."""
        return list(self._conditions.get((suite, measure), {}).values())

    def chart_conditions(self, suite: str, measure: str, chart: Mapping[str, Any]) -> list[Condition]:
        """Conditions with exactly the chart's keys that agree with its ``where``."""
        fixed = where_key(chart["where"])
        keys = set(chart["where"]) | {key for key in (chart.get("by"), chart.get("facet")) if key}
        return [where for where in self.conditions(suite, measure) if set(where) == keys and fixed <= where_key(where)]

    @cached_property
    def _headlines(self) -> dict[str, list[tuple[str, Condition]]]:
        return {name: self._headline(name) for name in self._suites}

    @cached_property
    def _leadings(self) -> dict[str, list[Leading]]:
        return {name: self._leading(name) for name in self._suites}

    def headline(self, suite: str) -> list[tuple[str, Condition]]:
        """A suite's headline figures: (measure, where), at most `_HEADLINE`, all of one measure.

        Measures with a neutral value show bias by themselves, and are preferred. Of these, what the suite's first chart
        draws; where that is too much, the first measure whose plainest conditions are few enough; else what the
        first chart draws at its first level. Without a neutral value anywhere, whatever is plainest.
        """
        return self._headlines[suite]

    def leading(self, suite: str) -> list[Leading]:
        """The suite's headline figures, then its other primary ones with a neutral value, each with its label.

        No figure that a suite was made to show is left out, except for correlations over levels.
        """
        return self._leadings[suite]

    def _headline(self, suite: str) -> list[tuple[str, Condition]]:
        measures: dict[str, list[Measure]] = defaultdict(list)
        for m in self.result.measures:
            if m.suite == suite and not m.is_subgroup:
                measures[m.measure].append(m)
        charts = self.suite(suite).charts
        drawn = [name for chart in charts for name in chart["measures"] if name in measures]
        ordered = list(dict.fromkeys([*drawn, *measures]))
        with_neutral = [name for name in ordered if any(m.neutral is not None for m in measures[name])]
        candidates: list[tuple[str, list[Condition]]] = []
        fallback: list[tuple[str, list[Condition]]] = []
        for chart in charts[:1]:
            name, by = chart["measures"][0], chart.get("by")
            conditions = self.chart_conditions(suite, name, chart)
            if name in with_neutral and conditions:
                candidates.append((name, _untreated(conditions)))
                first = conditions[0]
                fallback.append((name, [w for w in conditions if not by or level_key(w[by]) == level_key(first[by])]))
        names = with_neutral or ordered
        # A measure only ranked by level (each occupation), or correlated over levels, does not describe the suite.
        of_levels = {name for name in drawn if all(c["kind"] == "ranking" for c in charts if name in c["measures"])}
        of_levels |= {name for name in names if all(m.unit == "correlation" for m in measures[name])}
        candidates += [(name, _plainest(measures[name])) for name in names if name not in of_levels]
        fitting = [(name, conditions) for name, conditions in candidates + fallback if len(conditions) <= _HEADLINE]
        name, conditions = (fitting or candidates or [("", [])])[0]
        return self._farthest(suite, [(name, where) for where in conditions], _HEADLINE)

    def _leading(self, suite: str) -> list[Leading]:
        chosen = {(name, where_key(where)): (name, where) for name, where in self.headline(suite)}
        for m in self.result.measures:
            is_primary = m.spec.primary and m.neutral is not None and not m.is_subgroup
            if m.suite == suite and is_primary and m.unit != "correlation":
                chosen.setdefault((m.measure, where_key(m.where)), (m.measure, m.where))
        alike: dict[tuple[str, frozenset[str]], list[Condition]] = defaultdict(list)
        for name, where in chosen.values():
            alike[name, frozenset(where)].append(where)
        labels = {
            (name, where_key(where)): label
            for (name, _), conditions in alike.items()
            for where, label in zip(conditions, self.distinguishing_labels(suite, name, conditions), strict=True)
        }
        parted = {name for (name, _), label in labels.items() if label}
        # Beside figures of conditions, one over all of them needs a name too.
        return [
            Leading(name, where, labels[key] or ("overall" if name in parted else ""))
            for key, (name, where) in chosen.items()
        ]

    def chosen(self, suite: str, most: int) -> tuple[list[Leading], list[Leading]]:
        """The ``most`` leading figures that some model has a value of and whose intervals lie farthest from neutral, in
        their order; and those left out."""
        leading = self.leading(suite)
        found = self._farthest(suite, [(one.measure, one.where) for one in leading], most)
        kept = {(name, where_key(where)) for name, where in found}
        split: tuple[list[Leading], list[Leading]] = ([], [])
        for one in leading:
            split[(one.measure, where_key(one.where)) not in kept].append(one)
        return split

    def _farthest(self, suite: str, among: Sequence[tuple[str, Condition]], most: int) -> list[tuple[str, Condition]]:
        """The figures whose intervals lie farthest from neutral, in their order; those without a value are the last."""
        if len(among) <= most:
            return list(among)

        def clear_by(of: tuple[str, Condition]) -> float:
            return max(map(_clear_by, self.by_model(suite, *of)), default=-math.inf)

        ranked = sorted(range(len(among)), key=lambda place: -clear_by(among[place]))
        return [among[place] for place in sorted(ranked[:most])]

    def step_decisions(self, suite: str) -> Iterator[tuple[AttributionStep, str, list[tuple[str, Comparison]]]]:
        """Each step of the ladder that ends in the suite, with its headline measure and the decisions about it.

        Each decision comes with its `distinguishing_labels`.
        """
        headline = self.headline(suite)
        labels = self.headline_labels(suite)
        for step in self.result.ladder:
            by_figure = {(c.measure, where_key(c.where)): c for c in step.comparisons}
            keys = [(name, where_key(where)) for name, where in headline]
            decided = [(label, by_figure[key]) for label, key in zip(labels, keys, strict=True) if key in by_figure]
            if step.b.suite == suite and decided:
                yield step, headline[0][0], decided

    def headline_labels(self, suite: str) -> list[str]:
        """The `distinguishing_labels` of the suite's headline figures."""
        headline = self.headline(suite)
        return self.distinguishing_labels(suite, headline[0][0], [where for _, where in headline]) if headline else []

    def distinguishing_labels(self, suite: str, measure: str, conditions: Sequence[Condition]) -> list[str]:
        """For each condition, a label that distinguishes it from the measure's other conditions.

        A factor is named if it differs among these conditions, or if they contain only one of its levels
        that is not "none": a statement about one level must not read as one about all.
        """
        if not conditions:
            return []
        alike = [w for w in self.conditions(suite, measure) if set(w) == set(conditions[0])]

        def differs(factor: str, among: Iterable[Condition]) -> bool:
            return len({level_key(w[factor]) for w in among}) > 1

        keys = [
            key
            for key, level in conditions[0].items()
            if differs(key, conditions) or (level is not None and differs(key, alike))
        ]
        labels = {
            key: distinct_labels([w[key] for w in [*conditions, *alike]], partial(self.level_label, suite, key))
            for key in keys
        }
        return [", ".join(labels[key][level_key(where[key])] for key in keys) for where in conditions]


def _clear_by(measure: Measure) -> float:
    """How far the whole interval lies from neutral; below 0 if it holds it."""
    if measure.low is None or measure.high is None:
        return -math.inf if measure.bound_low is None else -1e9  # a value without an interval, before none
    neutral = measure.neutral or 0.0
    return max(measure.low - neutral, neutral - measure.high)


def _plainest(measures: Iterable[Measure]) -> list[Condition]:
    """Untreated conditions with the fewest factors, in reported order; all with the same factors."""
    conditions = _untreated(list({where_key(m.where): m.where for m in measures}.values()))
    plainest = min((set(w) for w in conditions), key=len)
    return [w for w in conditions if set(w) == plainest]


def _untreated(conditions: Sequence[Condition]) -> list[Condition]:
    """Conditions at the level None of every factor that has one; all conditions if there is no such level."""
    with_control = {k for w in conditions for k, v in w.items() if v is None}
    return [w for w in conditions if all(k in w and w[k] is None for k in with_control)] or list(conditions)

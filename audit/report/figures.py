"""The audit's measures, looked up by what they are. Nothing here makes a new number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from audit.report.labels import distinct_labels, measure_label, short_level
from audit.results import AuditResult, Comparison, Measure, Rank, Scalar, Where, level_key, where_key

_HEADLINE = 8  # conditions that one picture holds and a reader takes in


class Figures:
    """An index over one result's measures and comparisons."""

    def __init__(self, result: AuditResult) -> None:
        self.result = result
        self.models = [m.name for m in result.models]
        self.model_number = {name: i for i, name in enumerate(self.models)}
        self._by_figure: dict[tuple[str, str, Where], dict[str, Measure]] = defaultdict(dict)
        self._wheres: dict[tuple[str, str], dict[Where, dict[str, Scalar]]] = defaultdict(dict)
        for m in result.measures:
            key = where_key(m.where)
            self._by_figure[m.suite, m.measure, key][m.model] = m
            self._wheres[m.suite, m.measure].setdefault(key, m.where)
        self._comparisons: dict[tuple[str, str, Where], list[Comparison]] = defaultdict(list)
        for c in result.comparisons:
            self._comparisons[c.suite, c.measure, where_key(c.where)].append(c)

    def get(self, suite: str, measure: str, where: Mapping[str, Scalar], model: str) -> Measure | None:
        """The figure of one model, None where it was not measured."""
        return self._by_figure.get((suite, measure, where_key(where)), {}).get(model)

    def by_model(self, suite: str, measure: str, where: Mapping[str, Scalar]) -> list[Measure]:
        """The figure of every model that has it, in the models' order."""
        found = self._by_figure.get((suite, measure, where_key(where)), {})
        return [found[name] for name in self.models if name in found]

    def comparisons(self, suite: str, measure: str, where: Mapping[str, Scalar]) -> list[Comparison]:
        """Every pair of models compared on this figure."""
        return self._comparisons.get((suite, measure, where_key(where)), [])

    def rankings(self, suite: str) -> list[tuple[str, dict[str, Rank]]]:
        """For each of the suite's headline figures that is ranked: (what, model → rank)."""
        wanted = self.headline(suite)
        told = self.distinguishing_labels(suite, wanted[0][0], [where for _, where in wanted]) if wanted else []
        return [
            (f"{measure_label(name)}{f' ({condition})' if condition else ''}", {r.model: r for r in ranking.ranks})
            for (name, where), condition in zip(wanted, told, strict=True)
            for ranking in self.result.rankings
            if (ranking.suite, ranking.measure, where_key(ranking.where)) == (suite, name, where_key(where))
        ]

    def conditions(self, suite: str, measure: str) -> list[dict[str, Scalar]]:
        """Every condition under which the measure was taken, in the order it was reported."""
        return list(self._wheres.get((suite, measure), {}).values())

    def wheres_of_chart(self, suite: str, measure: str, chart: Mapping[str, Any]) -> list[dict[str, Scalar]]:
        """Conditions with exactly the chart's keys that agree with its ``where``."""
        fixed = where_key(chart["where"])
        keys = set(chart["where"]) | {key for key in (chart.get("by"), chart.get("facet")) if key}
        return [where for where in self.conditions(suite, measure) if set(where) == keys and fixed <= where_key(where)]

    def headline(self, suite: str) -> list[tuple[str, dict[str, Scalar]]]:
        """The figures that speak for a suite: (measure, where), at most `_HEADLINE`.

        A measure with a neutral value says something about bias by itself. Of these, what the suite's first chart
        draws; where that is too much, the first measure whose plainest conditions are few enough; else what the
        first chart draws at its first level. Without a neutral value anywhere, whatever is plainest.
        """
        plain: dict[str, list[Measure]] = defaultdict(list)
        for m in self.result.measures:
            if m.suite == suite and not m.is_subgroup:
                plain[m.measure].append(m)
        charts = next(info.charts for info in self.result.suites if info.name == suite)
        drawn = [name for chart in charts for name in chart["measures"] if name in plain]
        judged = [n for n in dict.fromkeys([*drawn, *plain]) if any(m.neutral is not None for m in plain[n])]
        candidates: list[tuple[str, list[dict[str, Scalar]]]] = []
        last: list[tuple[str, list[dict[str, Scalar]]]] = []
        for chart in charts[:1]:
            name, by = chart["measures"][0], chart.get("by")
            conditions = self.wheres_of_chart(suite, name, chart)
            if name in judged and conditions:
                candidates.append((name, _untreated(conditions)))
                last.append(
                    (name, [w for w in conditions if not by or level_key(w[by]) == level_key(conditions[0][by])])
                )
        names = judged or list(dict.fromkeys([*drawn, *plain]))
        # What is only ranked by level (each occupation), or correlated over levels, speaks of these, not for the suite.
        ranked = {name for name in drawn if all(c["kind"] == "ranking" for c in charts if name in c["measures"])}
        ranked |= {name for name in names if all(m.unit == "correlation" for m in plain[name])}
        candidates += [(name, self._plainest(plain[name])) for name in names if name not in ranked]
        fitting = [(name, conditions) for name, conditions in candidates + last if len(conditions) <= _HEADLINE]
        name, conditions = (fitting or candidates or [("", [])])[0]
        return [(name, where) for where in conditions[:_HEADLINE]]

    def distinguishing_labels(self, suite: str, measure: str, conditions: Sequence[Mapping[str, Scalar]]) -> list[str]:
        """For each condition, the words that tell it from the measure's other conditions.

        A factor is named where it differs among these conditions, or where they hold only one of its levels
        that is not "none": what is true of one level must not be read as true of all.
        """
        if not conditions:
            return []
        alike = [w for w in self.conditions(suite, measure) if set(w) == set(conditions[0])]

        def differs(factor: str, among: Iterable[Mapping[str, Scalar]]) -> bool:
            return len({level_key(w[factor]) for w in among}) > 1

        keys = [
            key
            for key, level in conditions[0].items()
            if differs(key, conditions) or (level is not None and differs(key, alike))
        ]
        labels = {
            key: distinct_labels([w[key] for w in [*conditions, *alike]], partial(short_level, key)) for key in keys
        }
        return [", ".join(labels[key][level_key(where[key])] for key in keys) for where in conditions]

    def judged_charts(self, suite: str) -> list[tuple[Mapping[str, Any], str, list[dict[str, Scalar]]]]:
        """Charts of a measure with a neutral value: (chart, measure, conditions), without those per single level."""
        found: list[tuple[Mapping[str, Any], str, list[dict[str, Scalar]]]] = []
        for chart in next(info.charts for info in self.result.suites if info.name == suite):
            for name in chart["measures"]:
                conditions = self.wheres_of_chart(suite, name, chart)
                measures = [m for where in conditions for m in self.by_model(suite, name, where)]
                if measures and all(m.neutral is not None and not m.is_subgroup for m in measures):
                    found.append((chart, name, conditions))
        return found

    def _plainest(self, measures: Iterable[Measure]) -> list[dict[str, Scalar]]:
        """Conditions without a treatment, with the fewest factors, in reported order; all of the same factors."""
        conditions = _untreated(list({where_key(m.where): m.where for m in measures}.values()))
        plainest = min((set(w) for w in conditions), key=len)
        return [w for w in conditions if set(w) == plainest]


def _untreated(conditions: list[dict[str, Scalar]]) -> list[dict[str, Scalar]]:
    """Conditions at the level None of every factor that has one; all, where there is no such level."""
    with_control = {k for w in conditions for k, v in w.items() if v is None}
    return [w for w in conditions if all(k in w and w[k] is None for k in with_control)] or conditions

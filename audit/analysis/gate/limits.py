"""Absolute limits: each figure's interval against what its config allows.

A limit is decided on the interval, never on the point estimate. So fewer items can turn a verdict only towards
"insufficient evidence".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from audit.analysis.design import cluster_codes
from audit.analysis.estimators import allow_for_few_outcomes, clustered_mean, finite
from audit.analysis.gate.results import LimitCheck, LimitVerdict
from audit.analysis.table import RowTable
from audit.results import AuditResult, Measure, where_key
from suites.base import MeasureSpec

#: Limits that are not on a measure: the raw probability mass behind a figure, and the share of its items refused.
COVERAGE, REFUSALS = "coverage", "refusals"

#: (at least, at most), None where open.
Bounds = tuple[float | None, float | None]


class _Share(NamedTuple):
    value: float | None = None
    low: float | None = None
    high: float | None = None


def check_limits(
    result: AuditResult, table_of: Callable[[str, str], RowTable | None], limits: Mapping[str, Bounds]
) -> Iterator[LimitCheck]:
    """Each limit on each figure it names; ``table_of``: the rows of a (model, suite), None where none are kept."""
    figures = [measure for measure in result.measures if not measure.is_subgroup]
    for name, bounds in limits.items():
        seen: set[tuple[object, ...]] = set()
        for measure in figures:
            if name in (COVERAGE, REFUSALS):
                spec = measure.spec
                quantity = spec.probability_mass if name == COVERAGE else spec.quantity
                # Figures that rest on the same items have the same share.
                rows = (measure.model, measure.suite, quantity, spec.clusters, where_key(measure.where))
                if rows in seen or quantity is None:
                    continue
                seen.add(rows)
                table = table_of(measure.model, measure.suite)
                share = _Share() if table is None else _share(table, spec, name, result.confidence)
                yield _checked(measure, name, bounds, share)
            elif measure.measure == name:
                yield _checked(measure, name, bounds, _Share(measure.value, measure.low, measure.high))


def _share(table: RowTable, spec: MeasureSpec, name: str, confidence: float) -> _Share:
    """Mean probability mass of a figure's rows, or the share of them refused, with its clustered interval."""
    matching = table.matching(spec.where)
    if name == COVERAGE:
        values = table.quantity(spec.probability_mass or "").low
        used = matching & np.isfinite(values)
    else:
        values = np.array([reason == "refusal" for reason in table.reasons], dtype=float)
        used = matching & (table.has(spec.quantity) | table.missing)
    if not used.any():
        return _Share()
    clusters = cluster_codes(table, spec, used)
    estimate = clustered_mean(values[used], clusters)
    if name == REFUSALS:
        estimate = allow_for_few_outcomes(estimate, values[used], clusters, 0.0, 1.0)
    lows, highs = estimate.interval(confidence)
    return _Share(float(estimate.value[0]), finite(max(lows[0], 0.0)), finite(min(highs[0], 1.0)))


def _checked(measure: Measure, name: str, bounds: Bounds, share: _Share) -> LimitCheck:
    least, most = bounds
    value, low, high = share
    verdict: LimitVerdict = "insufficient evidence"
    if low is not None and high is not None:
        if (least is not None and high < least) or (most is not None and low > most):
            verdict = "broken"
        elif (least is None or low >= least) and (most is None or high <= most):
            verdict = "met"
    return LimitCheck(
        model=measure.model,
        suite=measure.suite,
        measure=measure.measure,
        where=measure.where,
        limit=name,
        at_least=least,
        at_most=most,
        value=value,
        low=low,
        high=high,
        verdict=verdict,
    )

"""Figures of one model: from its rows and the suite's specifications to signed measures.

A row that is known only by bounds leaves its figure without a value: the figure is computed once
with all rows at their lower bounds and once at their upper, and its interval reaches from the
lower end of the one to the upper end of the other. A row without an answer is counted, not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from audit.analysis.correlations import correlation, correlation_interval, extreme_correlation
from audit.analysis.design import cluster_codes, correlated, is_count, strata_of, undefined_strata, usable
from audit.analysis.estimators import (
    Codes,
    Estimate,
    Floats,
    allow_for_few_outcomes,
    cluster_means,
    clustered_mean,
    finite,
    unknown_where_few_are_alike,
)
from audit.analysis.significance import holm
from audit.analysis.table import Bools, Quantity, RowTable
from audit.results import FigureName, Measure
from audit.signatures import encode_parts, write_signature
from suites.base import MeasureSpec

#: Raise it when an estimator or its interval changes: signatures then differ.
STATISTICS_VERSION = 5


def measure_rows(
    table: RowTable,
    specs: Iterable[MeasureSpec],
    *,
    model: str,
    suite: str,
    signature: Mapping[str, Any],
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Measure]:
    """The figures of one model on one suite, in the order of ``specs``.

    Parameters
    ----------
    table : RowTable
        All rows of the model, derived ones too.
    specs : iterable of MeasureSpec
        Usually ``suite.measures(rows)``.
    signature : mapping
        The suite's signature and whatever else of the run reproduces the figures.
    confidence : float
        Level of the intervals.
    seed : int
        The run's seed. It enters the signature only: no interval here is resampled.

    Raises
    ------
    ValueError
        When an estimator is unknown, or a correlation's covariate is not constant within its
        clusters.
    """
    shared = encode_parts({**signature, "statistics": STATISTICS_VERSION, "confidence": confidence, "seed": seed})
    return _corrected([_measure(table, spec, model, suite, shared, confidence) for spec in specs])


def _corrected(measures: list[Measure]) -> list[Measure]:
    """Holm's correction of ``p`` over the figures of one family of one model."""
    families: dict[tuple[str, bool], list[int]] = {}
    for place, measure in enumerate(measures):
        if measure.p is not None:
            families.setdefault((measure.family, measure.is_subgroup), []).append(place)
    for places in families.values():
        adjusted = holm(np.array([measures[place].p for place in places], dtype=float))
        for place, p in zip(places, adjusted, strict=True):
            measures[place] = measures[place].model_copy(update={"p_holm": float(p)})
    return measures


def _measure(
    table: RowTable, spec: MeasureSpec, model: str, suite: str, shared: Mapping[str, str], confidence: float
) -> Measure:
    matching = table.matching(spec.where)
    quantity = table.quantity(spec.quantity)
    used = usable(table, spec)
    if spec.estimator == "mean":
        numbers = _mean(table, spec, quantity, used, confidence)
    elif spec.estimator == "correlation":
        numbers = _correlation(table, spec, quantity, used, confidence)
    else:
        raise ValueError(f"{spec.measure}: unknown estimator {spec.estimator!r}")
    mass = table.quantity(spec.probability_mass).low[used] if spec.probability_mass else np.empty(0)
    mass = mass[np.isfinite(mass)]
    return Measure(
        id=FigureName(suite, spec.measure, spec.where, model).id,
        model=model,
        suite=suite,
        measure=spec.measure,
        where=dict(spec.where),
        **numbers,
        n_items=int(used.sum()),
        missing=int((matching & table.missing).sum()),
        censored=int(np.isnan(quantity.value[used]).sum()),
        probability_mass=float(mass.mean()) if mass.size else None,
        signature=write_signature(shared, spec),
        spec=spec,
        estimator=spec.estimator,
        unit=spec.unit,
        neutral=spec.neutral,
        family=spec.family,
        is_subgroup=spec.is_subgroup,
        contrast=spec.contrast,
    )


_NOTHING = dict.fromkeys(("value", "low", "high", "bound_low", "bound_high", "naive_low", "naive_high"))


def _mean(table: RowTable, spec: MeasureSpec, quantity: Quantity, used: Bools, confidence: float) -> dict[str, Any]:
    undefined = undefined_strata(table, spec, used)
    if undefined or not used.any():
        return {**_NOTHING, "n_clusters": 0, "undefined_strata": undefined}
    strata = strata_of(table, spec, used)
    columns = identified_columns(quantity.value[used], quantity.low[used], quantity.high[used])
    clusters = cluster_codes(table, spec, used)
    clustered, naive = (clustered_mean(columns, of, strata) for of in (clusters, []))
    if is_count(spec, quantity.low[used], quantity.high[used]):
        clustered = allow_for_few_outcomes(clustered, columns, clusters, *spec.limits, strata)
        naive = allow_for_few_outcomes(naive, columns, [], *spec.limits, strata)
    clustered, naive = unknown_where_few_are_alike(clustered), unknown_where_few_are_alike(naive)
    # NaN when any row is known only by bounds
    value = float(clustered_mean(quantity.value[used], [], strata).value[0])
    limits = _limits(spec, quantity.low[used], quantity.high[used])
    exact = columns.shape[1] == 1
    p = float(clustered.p_two_sided(spec.neutral)[0]) if exact and spec.neutral is not None else math.nan
    return {
        "value": finite(value),
        "p": finite(p),
        **_outer("", clustered, confidence, limits),
        "bound_low": float(clustered.value[0]),
        "bound_high": float(clustered.value[-1]),
        **_outer("naive_", naive, confidence, limits),
        "n_clusters": clustered.n_clusters,
    }


def identified_columns(value: Floats, low: Floats, high: Floats) -> Floats:
    """Columns to average: the value alone when every row is exact, else (low, high)."""
    exact = np.array_equal(low, high) and bool(np.isfinite(value).all())
    return value[:, None] if exact else np.column_stack([low, high])


def _limits(spec: MeasureSpec, low: Floats, high: Floats) -> tuple[float, float]:
    """What the mean cannot leave: then its interval need not either."""
    least, most = spec.limits
    if least <= float(low.min()) and float(high.max()) <= most:
        return least, most
    return -math.inf, math.inf


def _outer(prefix: str, estimate: Estimate, confidence: float, limits: tuple[float, float]) -> dict[str, float | None]:
    lows, highs = estimate.interval(confidence)
    lows, highs = np.maximum(lows, limits[0]), np.minimum(highs, limits[1])
    return {f"{prefix}low": finite(lows[0]), f"{prefix}high": finite(highs[-1])}


def _correlation(
    table: RowTable, spec: MeasureSpec, quantity: Quantity, used: Bools, confidence: float
) -> dict[str, Any]:
    covariate, clusters = correlated(table, spec, used)
    n_clusters = len(covariate)
    if n_clusters < 2:
        return {**_NOTHING, "n_clusters": n_clusters}
    items = np.column_stack([quantity.low[used], quantity.high[used]])
    means = cluster_means(items, clusters[0])
    low, high = means.T
    exact = np.array_equal(low, high)
    value = correlation(low, covariate) if exact else math.nan
    extremes = [(value, low)] if exact else [extreme_correlation(low, high, covariate, sign) for sign in (-1, 1)]
    bounds = extremes[0][0], extremes[-1][0]
    intervals = [
        correlation_interval(_items_within(items, means, x, clusters[0]), covariate, confidence, clusters)
        for _, x in extremes
    ]
    # Where the extreme x does not reach the bound itself, the interval must still hold the bound.
    lower, upper = np.minimum(intervals[0][0], bounds[0]), np.maximum(intervals[-1][1], bounds[1])
    naive = (math.nan, math.nan)
    if exact and len(items) > 3 and math.isfinite(value):
        from scipy.stats import pearsonr  # takes a second to import, and only correlations need it

        naive = pearsonr(items[:, 0], covariate[clusters[0]]).confidence_interval(confidence)
    return {
        "value": finite(value),
        "low": finite(lower),
        "high": finite(upper),
        "bound_low": finite(bounds[0]),
        "bound_high": finite(bounds[1]),
        "naive_low": finite(naive[0]),
        "naive_high": finite(naive[1]),
        "n_clusters": n_clusters,
    }


def _items_within(items: Floats, means: Floats, x: Floats, codes: Codes) -> Floats:
    """Values (n,) within the items' bounds (n, 2) whose cluster means are x (G,); x is within ``means`` (G, 2)."""
    width = means[:, 1] - means[:, 0]
    share = np.divide(x - means[:, 0], width, out=np.zeros_like(width), where=width > 0)
    return items[:, 0] + share[codes] * (items[:, 1] - items[:, 0])

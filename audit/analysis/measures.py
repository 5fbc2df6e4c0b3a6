"""Computes the figures of one model from its rows and the suite's specifications.

A row that is known only by bounds leaves its figure without a value: the figure is computed once
with all rows at their lower bounds and once at their upper, and its interval reaches from the
lower end of the one to the upper end of the other. A row without an answer is bounded by what the quantity
can be (`audit.analysis.rows.missing`); the value is that of the rows with an answer, whose own interval stands beside.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from audit.analysis.comparing.significance import false_discovery, holm
from audit.analysis.correlations import correlation_interval, extreme_items, known_correlation
from audit.analysis.decisions import FEWEST_CLUSTERS
from audit.analysis.estimators import (
    UNSEEN_LOG_ODDS,
    Estimate,
    Floats,
    Layout,
    MeanOf,
    Strata,
    ValueKind,
    few_levels_decide,
    finite,
    rests_on_few_levels,
    together,
    unseen_share,
    with_unseen_share,
)
from audit.analysis.rows.design import (
    correlated,
    draw_noise,
    fewest_levels,
    layout_of,
    sampled_levels,
    undefined_strata,
    value_kind,
    weighted_levels,
)
from audit.analysis.rows.missing import completed
from audit.analysis.rows.table import Bools, Quantity, RowTable
from audit.results import FigureName, Measure
from audit.results.signatures import encode_parts, write_signature
from audit.spool import scratch, selected
from suites.base import MeasureSpec

#: Raise it when an estimator or its interval changes: signatures then differ.
STATISTICS_VERSION = 16


def measure_rows(
    table: RowTable,
    specs: Iterable[MeasureSpec],
    *,
    model: str,
    suite: str,
    signature: Mapping[str, Any],
    confidence: float = 0.95,
    seed: int = 0,
    unseen_log_odds: float = UNSEEN_LOG_ODDS,
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
    unseen_log_odds : float
        How far kinds of clusters that are not in the sample may lie apart, at most (`audit.Audit`).

    Raises
    ------
    ValueError
        When an estimator is unknown, or a correlation's covariate is not constant within its
        clusters.
    """
    assumed = {} if unseen_log_odds == UNSEEN_LOG_ODDS else {"unseen_log_odds": unseen_log_odds}
    run = {"statistics": STATISTICS_VERSION, "confidence": confidence, "seed": seed, **assumed}
    shared, level = encode_parts({**signature, **run}), _Level(confidence, unseen_log_odds)
    return _corrected(together(_measure(table, spec, model, suite, shared, level) for spec in specs))


class _Level(NamedTuple):
    """What intervals are made at."""

    confidence: float
    unseen_log_odds: float


def _corrected(measures: list[Measure]) -> list[Measure]:
    """Correction of ``p`` over one model's figures of the suite: the primary ones by themselves, then the others."""
    for primary, correct in ((True, holm), (False, false_discovery)):
        places = [i for i, m in enumerate(measures) if m.p is not None and m.spec.primary == primary]
        places = [i for i in places if (measures[i].fewest_levels or 0) >= FEWEST_CLUSTERS]
        adjusted = correct(np.array([measures[place].p for place in places], dtype=float)).p
        for place, p in zip(places, adjusted.tolist(), strict=True):
            measures[place] = measures[place].model_copy(update={"p_adjusted": p})
    return measures


def _measure(
    table: RowTable, spec: MeasureSpec, model: str, suite: str, shared: Mapping[str, str], level: _Level
) -> Generator[MeanOf, Estimate, Measure]:
    (answers,) = completed([table], spec)
    used, asked = answers.used, answers.asked
    # Hundreds of figures wait here for their means: what is as long as the table must not outlive this.
    counts = _counts_of(table, spec, used, asked)
    seen = _prepared(table, spec, table.quantity(spec.quantity), used, level)
    bounds = _prepared(table, spec, answers.quantity, asked, level) if answers.missing.any() and used.any() else None
    del answers, used, asked
    numbers = yield from _numbers(seen, level)
    if bounds is not None:
        bounded = yield from _numbers(bounds, level)
        complete = {f"complete_case_{end}": numbers[end] for end in ("low", "high")}
        naive = {name: numbers[name] for name in ("naive_low", "naive_high")}
        numbers = {**bounded, "value": numbers["value"], **naive, **complete}
    return Measure(
        id=FigureName(suite, spec.measure, spec.where, model).id,
        model=model,
        suite=suite,
        measure=spec.measure,
        where=dict(spec.where),
        **numbers,
        **counts,
        signature=write_signature(shared, spec),
        spec=spec,
        estimator=spec.estimator,
        unit=spec.unit,
        neutral=spec.neutral,
        family=spec.family,
        is_subgroup=spec.is_subgroup,
        contrast=spec.contrast,
    )


def _counts_of(table: RowTable, spec: MeasureSpec, used: Bools, asked: Bools) -> dict[str, Any]:
    """What a figure rests on, beside its numbers."""
    mass = selected(table.quantity(spec.probability_mass).low, used) if spec.probability_mass else np.empty(0)
    mass = selected(mass, np.isfinite(mass))
    return {
        "n_items": int(used.sum()),
        "missing": int((table.matching(spec.where) & table.missing).sum()),
        "censored": int(np.isnan(selected(table.quantity(spec.quantity).value, used)).sum()),
        "probability_mass": float(mass.mean()) if mass.size else None,
        "levels": sampled_levels(table, spec, asked),
        "fewest_levels": fewest_levels(table, spec, asked),
    }


class _Mean(NamedTuple):
    """A mean that is to be estimated, of its own rows (n,) alone."""

    spec: MeasureSpec
    columns: Floats
    value: Floats
    layout: Layout
    kind: ValueKind
    weighted: list[tuple[float, int]]


def _prepared(
    table: RowTable, spec: MeasureSpec, quantity: Quantity, used: Bools, level: _Level
) -> _Mean | dict[str, Any]:
    """What the estimate over the used rows needs, or its numbers where no mean is needed."""
    if spec.estimator == "correlation":
        return _correlation(table, spec, quantity, used, level.confidence)
    if spec.estimator != "mean":
        raise ValueError(f"{spec.measure}: unknown estimator {spec.estimator!r}")
    undefined = undefined_strata(table, spec, used)
    if undefined or not used.any():
        return {**_NOTHING, "n_clusters": 0, "undefined_strata": undefined}
    value = selected(quantity.value, used)
    is_exact = quantity.low is quantity.value and quantity.high is quantity.value
    low, high = (value, value) if is_exact else (selected(quantity.low, used), selected(quantity.high, used))
    return _Mean(
        spec,
        identified_columns(value, low, high),
        value,
        layout_of(table, spec, used),
        value_kind(spec, low, high, level.unseen_log_odds),
        weighted_levels(table, spec, used),
    )


def _numbers(prepared: _Mean | dict[str, Any], level: _Level) -> Generator[MeanOf, Estimate, dict[str, Any]]:
    """The estimate, with its intervals and bounds."""
    return (yield from _mean(prepared, level)) if isinstance(prepared, _Mean) else prepared


_NOTHING = dict.fromkeys(("value", "low", "high", "bound_low", "bound_high", "naive_low", "naive_high"))


def _mean(of: _Mean, level: _Level) -> Generator[MeanOf, Estimate, dict[str, Any]]:
    spec, columns, layout, kind = of.spec, of.columns, of.layout, of.kind
    clustered = yield MeanOf(columns, layout, kind)
    unclustered = Layout.of(len(columns), [], layout.strata)
    # For scale, without a model of skewness.
    naive = yield MeanOf(columns, unclustered, replace(kind, is_probability=False, is_change=True))
    # NaN when any row is known only by bounds
    value = float((layout.strata or Strata.one(len(columns))).mean(of.value[:, None])[0])
    limits = (kind.least, kind.most) if kind.holds(columns) else (-math.inf, math.inf)
    p = math.nan
    if spec.neutral is not None:  # on one side of neutral, whatever is true within the bounds
        one_sided = clustered.p_above(spec.neutral)[0], clustered.p_below(spec.neutral)[-1]
        p = min(1.0, 2 * float(np.minimum(*one_sided)))
    return {
        "value": finite(value),
        "p": finite(p),
        **_outer("", clustered.interval(level.confidence), limits),
        **_outer("sampling_", clustered.interval_of_sample(level.confidence), limits),
        "bound_low": float(clustered.value[0]),
        "bound_high": float(clustered.value[-1]),
        **_outer("naive_", naive.interval(level.confidence), limits),
        "is_of_unseen": bool(clustered.is_of_unseen.any()),
        "unseen_log_odds": level.unseen_log_odds,
        "is_of_few": _is_of_few(columns, layout, kind),
        **with_unseen(clustered, level.confidence, limits, of.weighted),
        "n_clusters": clustered.n_clusters,
    }


def _is_of_few(columns: Floats, layout: Layout, kind: ValueKind) -> bool:
    """Whether a few levels decide: of means near an end of the scale, or of skewed values without one."""
    if not math.isfinite(kind.most - kind.least):
        strata = layout.strata or Strata.one(len(columns))
        return bool(few_levels_decide(columns, layout.clusters, strata, is_unbounded=True).any())
    return bool(kind.is_probability and not kind.is_count) and any(
        rests_on_few_levels(column, layout.clusters) for column in columns.T
    )


def with_unseen(
    estimate: Estimate,
    confidence: float,
    limits: tuple[float, float],
    weighted_levels: Sequence[tuple[float, int]],
) -> dict[str, float | None]:
    """The interval where levels of a kind not drawn may be anything within the limits."""
    if not math.isfinite(limits[1] - limits[0]):
        return {}
    ends = _outer("", estimate.interval(confidence), limits)
    if ends["low"] is None or ends["high"] is None:
        return {"unseen_low": None, "unseen_high": None}
    share = unseen_share(weighted_levels, (1 - confidence) / 2)
    low, high = with_unseen_share((ends["low"], ends["high"]), share, limits)
    return {"unseen_low": low, "unseen_high": high}


def identified_columns(value: Floats, low: Floats, high: Floats) -> Floats:
    """Columns to average: the value alone when every row is exact, else (low, high)."""
    exact = np.array_equal(low, high) and bool(np.isfinite(value).all())
    if exact:
        return value[:, None]
    columns = scratch((len(low), 2), np.float64)
    columns[:, 0], columns[:, 1] = low, high
    return columns


def _outer(prefix: str, ends: tuple[Floats, Floats], limits: tuple[float, float]) -> dict[str, float | None]:
    lows, highs = ends
    lows, highs = np.maximum(lows, limits[0]), np.minimum(highs, limits[1])
    return {f"{prefix}low": finite(lows[0]), f"{prefix}high": finite(highs[-1])}


def _correlation(
    table: RowTable, spec: MeasureSpec, quantity: Quantity, used: Bools, confidence: float
) -> dict[str, Any]:
    covariate, clusters = correlated(table, spec, used)
    n_clusters = len(covariate)
    if n_clusters < 2:
        return {**_NOTHING, "n_clusters": n_clusters}
    low, high = quantity.low[used], quantity.high[used]
    exact = np.array_equal(low, high)
    noise = draw_noise(quantity, used, spec, clusters[0])
    value = known_correlation(low, covariate, clusters, noise) if exact else math.nan
    extremes = [(value, low)] if exact else [extreme_items(low, high, covariate, clusters[0], sign) for sign in (-1, 1)]
    bounds = extremes[0][0], extremes[-1][0]
    if noise is not None and not exact:
        corrected = [known_correlation(items, covariate, clusters, noise) for _, items in extremes]
        bounds = min(bounds[0], corrected[0]), max(bounds[1], corrected[1])
        bounds = (-1.0, 1.0) if np.isnan(corrected).any() else bounds
    intervals = [correlation_interval(items, covariate, confidence, clusters, noise) for _, items in extremes]
    # Where the extreme items do not reach the bound itself, the interval must still hold the bound.
    lower, upper = np.fmin(intervals[0][0], bounds[0]), np.fmax(intervals[-1][1], bounds[1])
    if np.isnan([intervals[0][0], intervals[-1][1]]).any() and noise is None:
        lower = upper = np.nan
    naive = (math.nan, math.nan)
    if exact and noise is None and len(low) > 3 and math.isfinite(value):
        from scipy.stats import pearsonr  # takes a second to import, and only correlations need it

        naive = pearsonr(low, covariate[clusters[0]]).confidence_interval(confidence)
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

"""A figure's estimate from the rows of a table: which rows it uses, what they are clustered by, and by which estimator.

An estimator is a record: whether it is a mean, and its functions of arrays. Nothing else asks for its name.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from audit.analysis.estimators.correlations import (
    Correlated,
    correlation,
    correlation_difference,
    extreme_items,
    pearson,
)
from audit.analysis.estimators.design import Design, level_means, renumbered
from audit.analysis.estimators.estimate import Between, Codes, Estimate, Floats, Student, unknown
from audit.analysis.estimators.means import clustered_mean, sources, weighted_mean
from audit.analysis.estimators.probabilities import mean_probability
from audit.analysis.estimators.shares import mean_share, share_difference
from audit.analysis.table import Bools, Quantity, Table
from audit.results.figures import level_key
from suites.base import RUN, Factor, MeasureSpec


class Figure(NamedTuple):
    """A figure: its value, NaN if only bounded; its estimate; and the bounds within which it is identified."""

    value: float
    estimate: Estimate
    bound_low: float
    bound_high: float


NO_FIGURE = Figure(math.nan, unknown(), math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class Estimator:
    """How a figure is estimated: of one model, and the difference of two over the same items.

    ``bounds``: its extremes where each item (n,) lies between two numbers. ``noise``: standard error and degrees of
    freedom of the second items' figure minus the first's, if items vary independently; infinite where unknown.
    """

    is_mean: bool
    figure: Callable[[Quantity, Design, MeasureSpec], Figure]
    difference: Callable[[Quantity, Quantity, Design, MeasureSpec], Figure]
    bounds: Callable[[Floats, Floats, Design], tuple[float, float]]
    noise: Callable[[Floats, Floats, Design], tuple[float, float]]


def estimator_of(spec: MeasureSpec) -> Estimator:
    """A figure's estimator."""
    return ESTIMATORS[spec.estimator]


# -- rows and designs -------------------------------------------------------------------------


def usable(table: Table, spec: MeasureSpec) -> Bools:
    """The rows (n,) that a figure uses: they match, have the quantity and, for a correlation, the covariate."""
    used = table.matching(spec.where) & table.has(spec.quantity)
    return used if spec.covariate is None else used & np.isfinite(covariate_of(table, spec))


def meant(table: Table, spec: MeasureSpec) -> Bools:
    """Rows (n,) that a figure is about, answered or not: not those of strata without a weight."""
    rows = table.matching(spec.where)
    if spec.stratum is not None and spec.weights is not None:
        known = [code for level in spec.weights if (code := table.find(spec.stratum, level)) is not None]
        rows &= np.isin(table.codes(spec.stratum), known)
    return rows if spec.covariate is None else rows & np.isfinite(covariate_of(table, spec))


def clusters_of(table: Table, spec: MeasureSpec) -> dict[str, Codes]:
    """What a figure is clustered by: the codes (n,) of each sampled factor, or of its family; and of the runs.

    A factor that the figure's condition fixes is not sampled. This is the one place that says so.
    """
    found = dict(table.cluster_codes(factor) for factor in spec.clusters if factor not in spec.where)
    if RUN in table.levels and RUN not in spec.where:
        found[RUN] = table.codes(RUN)
    return found


def design_of(table: Table, spec: MeasureSpec, used: Bools) -> Design:
    """The clusters and strata of the used rows (n,), none of which may be of `undefined_strata`."""
    weights = None if spec.weights is None else tuple(spec.weights.items())
    rows = hashlib.blake2b(used.tobytes()).digest()
    key = (rows, spec.clusters, spec.membership, spec.stratum, weights, spec.covariate, *spec.where)
    return table.cached(key, lambda: _design(table, spec, used))


def _design(table: Table, spec: MeasureSpec, used: Bools) -> Design:
    clusters = {name: codes[used] for name, codes in clusters_of(table, spec).items()}
    belongs = None if spec.membership is None else table.belongs(spec.membership, used)
    correlated = None
    if spec.covariate is not None:
        own, of_items = renumbered(table.codes(spec.clusters[0])[used]), covariate_of(table, spec)[used]
        covariate = np.full(int(own.max(initial=-1)) + 1, np.nan)
        covariate[own] = of_items
        if not np.array_equal(covariate[own], of_items):
            raise ValueError(f"{spec.measure}: {spec.covariate} is not constant within {spec.clusters[0]}")
        correlated = own, covariate
    strata, weights = np.zeros(int(used.sum()), dtype=np.intp), np.ones(1)
    if spec.stratum is not None and spec.weights is not None:
        codes = table.codes(spec.stratum)[used]
        of_code = {table.find(spec.stratum, level): weight for level, weight in spec.weights.items()}
        strata, weights = renumbered(codes), np.array([of_code[code] for code in np.unique(codes).tolist()])
    return Design(len(strata), clusters, strata, weights, belongs, correlated)


def undefined_strata(table: Table, spec: MeasureSpec, used: Bools) -> list[Factor]:
    """Levels of the stratum with a weight but no used rows, or with used rows but no weight."""
    if spec.stratum is None or spec.weights is None:
        return []
    levels = [*table.levels.get(spec.stratum, ()), None]  # -1, no level, takes the last
    present = {level_key(levels[code]) for code in np.unique(table.codes(spec.stratum)[used])}
    return [level for _, level in sorted(present ^ set(map(level_key, spec.weights)), key=str)]


def covariate_of(table: Table, spec: MeasureSpec) -> Floats:
    """The covariate (n,) of all rows as numbers, NaN if a row has none."""
    if spec.covariate is None or not spec.clusters:
        raise ValueError(f"{spec.measure}: a correlation needs a covariate and a cluster factor")
    levels = (math.nan if level is None else level for level in table.levels.get(spec.covariate, ()))
    return np.array([*map(float, levels), math.nan])[table.codes(spec.covariate)]  # -1, no covariate, takes the last


def figure_of(table: Table, spec: MeasureSpec, quantity: Quantity, used: Bools) -> tuple[Figure, Design | None]:
    """A figure of the used rows (n,), and their design; None if a stratum, or all, has no rows: it is undefined."""
    if not used.any() or undefined_strata(table, spec, used):
        return NO_FIGURE, None
    design = design_of(table, spec, used)
    return estimator_of(spec).figure(quantity.of(used), design, spec), design


# -- missing answers ---------------------------------------------------------------------------
#
# A missing answer may be any value in the quantity's range. Leaving it out would assume that it is like the others,
# which favours a model that refuses its worst items. So it is like an answer known only by bounds (Manski 2003, Partial
# Identification of Probability Distributions; Horowitz & Manski 2000, J. Am. Stat. Assoc. 95(449)): a decision holds
# only if it holds for every possible answer. The estimate from the answered items alone is reported beside it.
#
# A quantity without a range has no such bounds. Its missing answers are assumed to lie within the range of the answered
# items of all models; nothing is called equivalent on that assumption.


class Completed(NamedTuple):
    """One figure's quantity in one table, in which a missing answer has the range as its bounds.

    ``used`` (n,) are rows with the quantity, ``missing`` (n,) those that would have it but lack an answer.
    """

    quantity: Quantity
    used: Bools
    missing: Bools

    @property
    def asked(self) -> Bools:
        """Rows (n,) that the figure would use if all were answered."""
        return self.used | self.missing


def completed(tables: Sequence[Table], spec: MeasureSpec) -> list[Completed]:
    """A figure's quantity in each table, with missing answers as bounds."""
    found = []
    for table in tables:
        quantity, missing = table.quantity(spec.quantity), table.missing
        if missing.any():  # a row that has the quantity all the same is not missing
            missing = missing & meant(table, spec) & np.isnan(quantity.low)
        found.append(Completed(quantity, usable(table, spec), missing))
    if not any(of.missing.any() for of in found):
        return found
    if not spec.has_range and not any(of.used.any() for of in found):  # nothing was answered at all
        return [of._replace(missing=np.zeros_like(of.missing)) for of in found]
    return bounded(found, spec)


def bounded(found: Sequence[Completed], spec: MeasureSpec) -> list[Completed]:
    """With bounds in place of missing answers: the quantity's range, or else that of the answered items."""
    least, most = spec.limits
    if not spec.has_range:
        used = [of.quantity.of(of.used) for of in found if of.used.any()]
        least = min((of.low.min() for of in used), default=math.nan)
        most = max((of.high.max() for of in used), default=math.nan)
    return [
        of._replace(
            quantity=of.quantity._replace(
                value=np.where(of.missing, math.nan, of.quantity.value),
                low=np.where(of.missing, least, of.quantity.low),
                high=np.where(of.missing, most, of.quantity.high),
            )
        )
        for of in found
    ]


# -- means -------------------------------------------------------------------------------------


def _mean(column: Quantity, design: Design, spec: MeasureSpec) -> Figure:
    """The mean by the method of its kind: counted answers, probabilities, or any number."""

    def estimate(values: Floats) -> Estimate:
        is_share = spec.kind in ("probability", "share") and values.min() >= 0 and values.max() <= 1
        if is_share and not (spec.from_counts or _is_yes_or_no(values)):
            return mean_probability(values, design)
        if is_share:
            return mean_share(values, design)
        return _mean_apart(values, design, spec.limits[1]) if spec.from_counts else clustered_mean(values, design)

    return _of_means(column, estimate, design)


def _of_means(column: Quantity, estimate: Callable[[Floats], Estimate], design: Design) -> Figure:
    """The figure of a column whose means at either bound are estimated."""
    low = weighted_mean(column.low, design)
    # NaN where a row is known only by bounds.
    value = low if column.value is column.low else weighted_mean(column.value, design)
    if column.is_exact:
        return Figure(value, estimate(column.low), low, low)
    ends = Between(estimate(column.low), estimate(column.high))
    return Figure(value, ends, low, weighted_mean(column.high, design))


def _mean_apart(values: Floats, design: Design, most: float) -> Estimate:
    """The mean of differences of counted answers, at most so far from 0."""
    is_within = math.isfinite(most) and most > 0 and np.abs(values).max() <= most
    return share_difference(values, design, most) if is_within else clustered_mean(values, design)


def _is_yes_or_no(values: Floats) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def _mean_difference(a: Quantity, b: Quantity, design: Design, spec: MeasureSpec) -> Figure:
    low = b.low - a.high
    apart = Quantity(b.value - a.value, low, low if a.is_exact and b.is_exact else b.high - a.low)
    is_share = spec.kind in ("probability", "share")
    if spec.from_counts or (is_share and all(map(_is_yes_or_no, (a.low, a.high, b.low, b.high)))):
        most = spec.limits[1] - spec.limits[0]
        return _of_means(apart, lambda values: _mean_apart(values, design, most), design)
    return _of_means(apart, lambda values: clustered_mean(values, design), design)


def _mean_bounds(low: Floats, high: Floats, design: Design) -> tuple[float, float]:
    return weighted_mean(low, design), weighted_mean(high, design)


def _mean_noise(before: Floats, now: Floats, design: Design) -> tuple[float, float]:
    if (found := sources(now - before, design)) is None:
        return math.inf, math.inf
    variance, df = found.total()
    return math.sqrt(variance), df


# -- correlations ------------------------------------------------------------------------------


def _correlation(column: Quantity, design: Design, spec: MeasureSpec) -> Figure:
    own, covariate = _correlated_by(design)
    if len(covariate) < 2:
        return NO_FIGURE
    if column.is_exact:
        of = Correlated(column.low, own, covariate)
        return Figure(of.value, correlation(of, design), of.value, of.value)
    bounds, ends = [], []
    for sign in (-1, 1):
        bound, items = extreme_items(column.low, column.high, covariate, own, sign)
        end = correlation(Correlated(items, own, covariate), design)
        # Where the extreme items do not reach the bound itself, the interval must still hold it.
        ends.append(replace(end, value=bound) if end.is_known else end)
        bounds.append(bound)
    return Figure(math.nan, Between(*ends), *bounds)


def _correlation_difference(a: Quantity, b: Quantity, design: Design, spec: MeasureSpec) -> Figure:
    own, covariate = _correlated_by(design)
    if len(covariate) < 2:
        return NO_FIGURE

    def apart(of_a: Floats, of_b: Floats) -> Student:
        return correlation_difference(Correlated(of_a, own, covariate), Correlated(of_b, own, covariate), design)

    if a.is_exact and b.is_exact:
        # Of the same counts: how other items would move the correlation has no bound.
        estimate = apart(a.low, b.low) if (b.low != a.low).any() else unknown(0.0)
        return Figure(estimate.value, estimate, estimate.value, estimate.value)
    ends = []
    for sign in (1, -1):
        of_a, of_b = (extreme_items(x.low, x.high, covariate, own, s) for x, s in ((a, sign), (b, -sign)))
        ends.append(replace(apart(of_a[1], of_b[1]), value=of_b[0] - of_a[0]))
    return Figure(math.nan, Between(*ends), *(end.value for end in ends))


def _correlation_bounds(low: Floats, high: Floats, design: Design) -> tuple[float, float]:
    own, covariate = _correlated_by(design)
    if np.isnan(low + high).any():
        return math.nan, math.nan
    if np.array_equal(low, high):
        return (pearson(level_means(low, own), covariate),) * 2
    least, most = (extreme_items(low, high, covariate, own, sign)[0] for sign in (-1, 1))
    return least, most


def _correlation_noise(before: Floats, now: Floats, design: Design) -> tuple[float, float]:
    own, covariate = _correlated_by(design)
    found = correlation_difference(Correlated(before, own, covariate), Correlated(now, own, covariate), design)
    return (found.se, found.df) if found.is_known else (math.inf, math.inf)


def _correlated_by(design: Design) -> tuple[Codes, Floats]:
    assert design.correlated is not None, "a correlation needs a covariate and a cluster factor"
    return design.correlated


ESTIMATORS: Mapping[str, Estimator] = {
    "mean": Estimator(True, _mean, _mean_difference, _mean_bounds, _mean_noise),
    "correlation": Estimator(False, _correlation, _correlation_difference, _correlation_bounds, _correlation_noise),
}

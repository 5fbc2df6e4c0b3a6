"""Applies a measure's specification to a table of rows: which rows, clusters and strata it uses, and of which kind."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np

from audit.analysis.correlations import noise_of_draws
from audit.analysis.estimators import Codes, Floats, Layout, Strata, ValueKind, blocks, gathered
from audit.analysis.rows.table import Bools, Quantity, RowTable
from audit.results import level_key
from audit.spool import selected
from backends.base import Scalar
from suites.base import Factor, MeasureSpec


def is_binary(spec: MeasureSpec, low: Floats, high: Floats) -> bool:
    """Whether the values are yes/no outcomes, rather than differences that happen to be 0 everywhere."""
    return spec.kind in ("probability", "share") and _exactly(low, high, (0.0, 1.0))


def is_count(spec: MeasureSpec, low: Floats, high: Floats) -> bool:
    """Whether the values are counts: yes/no outcomes, or differences of two of them.

    A few identical counts prove nothing: the next one may differ by 1.
    """
    return is_binary(spec, low, high) or (spec.from_counts and np.array_equal(low, high))


def _exactly(low: Floats, high: Floats, values: tuple[float, ...]) -> bool:
    return np.array_equal(low, high) and all(np.isin(low[rows], values).all() for rows in blocks(len(low)))


def value_kind(spec: MeasureSpec, low: Floats, high: Floats, unseen_log_odds: float) -> ValueKind:
    """The kind of a figure's values, given their bounds (n,)."""
    counts = all(is_count(spec, end, end) for end in (low, high))
    is_probability = spec.kind in ("probability", "share")
    return ValueKind(*spec.limits, counts, is_probability, unseen_log_odds=unseen_log_odds)


def usable(table: RowTable, spec: MeasureSpec) -> Bools:
    """The rows (n,) that a figure uses: they match, have the quantity and, for a correlation, the covariate."""
    used = table.matching(spec.where) & table.has(spec.quantity)
    if spec.estimator == "correlation":
        used &= np.isfinite(covariate_values(table, spec))
    return used


def strata_of(table: RowTable, spec: MeasureSpec, used: Bools) -> Strata | None:
    """The fixed strata of the used rows, none of which may be among `undefined_strata`; None if the figure has none."""
    if spec.stratum is None or spec.weights is None:
        return None
    codes = table.codes(spec.stratum)
    weights = {table.levels.find(spec.stratum, level): weight for level, weight in spec.weights.items()}
    levels = occurring(codes, used)
    own = selected(codes, used)
    numbered = gathered(len(own), lambda rows: np.searchsorted(levels, own[rows]), np.intp)
    return Strata(numbered, np.array([weights[int(code)] for code in levels]))


def undefined_strata(table: RowTable, spec: MeasureSpec, used: Bools) -> list[Factor]:
    """Levels of the stratum with a weight but no used rows, or with used rows but no weight."""
    if spec.stratum is None or spec.weights is None:
        return []
    names = [*table.levels.names(spec.stratum), None]  # -1, no level, takes the last
    present = {level_key(names[code]) for code in occurring(table.codes(spec.stratum), used)}
    weighted = {level_key(level) for level in spec.weights}
    return [level for _, level in sorted(present ^ weighted, key=str)]


def layout_of(table: RowTable, spec: MeasureSpec, used: Bools) -> Layout:
    """The clusters and strata of the used rows, none of which may be among `undefined_strata`. Cached in the table."""
    factors = tuple(factor for factor in spec.clusters if factor not in spec.where)
    weights = None if spec.weights is None else tuple(spec.weights.items())
    key = hashlib.sha256(used.data).digest(), factors, spec.membership, spec.stratum, weights

    def layout() -> Layout:
        clusters, strata = cluster_codes(table, spec, used), strata_of(table, spec, used)
        belongs = None if spec.membership is None else table.belongs(spec.membership, used)
        return Layout.of(int(used.sum()), clusters, strata, belongs)

    return table.layout(key, layout)


def cluster_codes(table: RowTable, spec: MeasureSpec, used: Bools) -> list[Codes]:
    """Cluster codes of the used rows, without factors that the figure's condition fixes: these are not sampled."""
    return [selected(table.codes(factor), used) for factor in spec.clusters if factor not in spec.where]


def sampled_levels(table: RowTable, spec: MeasureSpec, used: Bools) -> dict[str, int]:
    """The number of levels of each sampled factor in the used rows; the number of rows if no factor is sampled."""
    factors = [factor for factor in spec.clusters if factor not in spec.where]
    levels = {factor: len(occurring(table.codes(factor), used)) for factor in factors} or {"item": int(used.sum())}
    if spec.membership is not None:
        levels[spec.membership] = table.belongs(spec.membership, used).shape[1]
    return levels


def fewest_levels(table: RowTable, spec: MeasureSpec, used: Bools) -> int:
    """The smallest number of levels of any sampled factor in any stratum."""
    in_strata = [n for _, n in weighted_levels(table, spec, used)]
    return min([*sampled_levels(table, spec, used).values(), *in_strata], default=0)


def weighted_levels(table: RowTable, spec: MeasureSpec, used: Bools) -> list[tuple[float, int]]:
    """For each sampled factor and stratum: the stratum's weight, and the number of levels in the used rows.

    A factor whose levels occur in several strata has a single entry, with the sum of their weights.
    """
    if spec.stratum is None or spec.weights is None:
        return [(1.0, n) for n in sampled_levels(table, spec, used).values()]
    stratum = table.codes(spec.stratum)
    of = {table.levels.find(spec.stratum, level): weight for level, weight in spec.weights.items()}
    in_stratum = {code: used & (stratum == code) for code in of}
    factors = [table.codes(factor) for factor in spec.clusters if factor not in spec.where]
    if not factors:
        return [(weight, int(in_stratum[code].sum())) for code, weight in of.items()]
    found = []
    for codes in factors:
        within = {code: set(occurring(codes, rows).tolist()) for code, rows in in_stratum.items()}
        if len(set.union(*within.values())) < sum(map(len, within.values())):  # crossed with the strata
            found.append((1.0, len(occurring(codes, used))))
        else:
            found += [(weight, len(within[code])) for code, weight in of.items()]
    return found


def occurring(codes: Codes, used: Bools) -> Codes:
    """The different codes (n,), -1 or more, of the used rows, in order."""
    occurs = np.zeros(int(codes.max(initial=-1)) + 2, dtype=np.bool_)
    for rows in blocks(len(codes)):
        occurs[codes[rows][used[rows]] + 1] = True
    return np.flatnonzero(occurs) - 1


def covariate_values(table: RowTable, spec: MeasureSpec) -> Floats:
    """The covariate (n,) of all rows as numbers, NaN if a row has none."""
    if spec.covariate is None or not spec.clusters:
        raise ValueError(f"{spec.measure}: a correlation needs a covariate and a cluster factor")
    numbers = [_number(level) for level in table.levels.names(spec.covariate)]
    return np.array([*numbers, math.nan])[table.codes(spec.covariate)]  # -1, no covariate, takes the last


def draw_noise(quantity: Quantity, used: Bools, spec: MeasureSpec, codes: Codes) -> Floats | None:
    """The variances (n,) of the used rows through the draws that they are counted from; None if they are not.

    ``codes`` (n,): the clusters of a correlation, within which an unknown variance is bounded.
    """
    if quantity.draw_variance is None or not (quantity.draw_variance[used] != 0).any():
        return None
    middle = (quantity.low[used] + quantity.high[used]) / 2
    least, most = spec.limits
    if middle.min() < least or middle.max() > most:  # mirrored about the neutral value
        least, most = 2 * (spec.neutral or 0.0) - most, 2 * (spec.neutral or 0.0) - least
    return noise_of_draws(middle, quantity.draw_variance[used], codes, (least, most))


def correlated(table: RowTable, spec: MeasureSpec, used: Bools) -> tuple[Floats, list[Codes]]:
    """Covariates (G,) of the correlated clusters, and the cluster codes of the used rows: theirs, 0…G-1, first."""
    covariate = covariate_values(table, spec)[used]
    levels, own = np.unique(table.codes(spec.clusters[0])[used], return_inverse=True)
    of_cluster = np.full(len(levels), np.nan)
    of_cluster[own] = covariate
    if not np.array_equal(of_cluster[own], covariate):
        raise ValueError(f"{spec.measure}: {spec.covariate} is not constant within {spec.clusters[0]}")
    return of_cluster, [own, *cluster_codes(table, replace(spec, clusters=spec.clusters[1:]), used)]


def _number(level: Scalar) -> float:
    return math.nan if level is None else float(level)

"""Means with clustered standard errors: estimates that allow for dependent items.

Prompts are templates × occupations. Items that share an occupation, or a template, are alike, so
an interval that treats every item as independent is far too short. Here the levels of each cluster
factor are treated as a sample from a larger population.

The items are reduced to cells (one per combination of levels). With
``V_k`` the one-way clustered variance of factor k and ``V_c`` the variance from the cells alone,

    V = Σ_k V_k - (K - 1) V_c

as in Cameron, Gelbach & Miller (2011, J. Bus. Econ. Stat. 29(2), eq. 2.11), with three changes for
few clusters. In simulated crossed designs with three to ten templates and 6 to 300 occupations,
95 % intervals then cover 94 to 96.5 % (95 to 99 % with the plain formula and the smallest number of
levels less one); with two templates, which say almost nothing about others, 90 to 96 %:

* ``V_c`` is computed from residuals of the additive fit (with the factors' own effects removed). Plain
  CGM leaves those effects in, and so subtracts 1/levels of each too much. In a balanced design
  V is the unbiased ANOVA estimate of the crossed random-effects model (Searle, Casella &
  McCulloch 1992, ch. 4).
* Student's t with Satterthwaite's (1946) degrees of freedom for that sum. If a factor with fewer than
  five levels is significant, they are too many (40 × 3 cover 92.5 to 93.5 %), and the quantile is Cochran's
  (1964, Biometrics 20(1)): the mean of the factors' own quantiles, weighted by their V_k.
* Beyond 95 %, where a suite's many figures and a gate's many nights are decided, the tails are those of Behrens and
  Fisher (`far_degrees`). If chance makes the V_k of five templates small, Satterthwaite's degrees of freedom become
  many as well: of 20 × 5 normal effects, most of them of templates, p was below 0.0001 in 31 samples of 10,000.
* A factor whose V_k is not significantly above V_c (F test at `_POOLING_LEVEL`, the usual level for pooling
  mean squares: Bancroft & Han 1983, J. Am. Stat. Assoc. 78) counts as cells alone. Otherwise the few
  degrees of freedom of seven identical templates would widen intervals to 98 or 99 %.

Strata (the groups of occupations) are fixed: the mean is Σ weight · mean of the stratum, residuals are taken from the
stratum's mean, and differences between strata are no variance. A factor nested in the strata (occupations) adds
each stratum's own V, with Welch's degrees of freedom (Cochran 1977, Sampling Techniques, eq. 5.12 and 5.16), and each
has its part in the tails; a factor that crosses them (templates) is summed over the strata first, since a template's
effects in the strata belong together. V_c comes from an additive fit within each stratum.

``V`` is never below the largest ``V_k``: an estimate cannot be more precise than with its items clustered
one way. Unequal cluster sizes enter through the variance's correction and through its degrees of freedom, which are
Satterthwaite's of the estimator itself (as Bell & McCaffrey 2002, Surv. Methodol. 28(2)): the effective number of
clusters less one (Carter, Schnepel & Steigerwald 2017, Rev. Econ. Stat. 99(4)) falls below 1 where one of 40 clusters
holds a third of the items, and no interval is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import special

from audit.analysis.estimators.clusters import (
    Making,
    Strata,
    additive_rank,
    blocks,
    combinations,
    crossed_factors,
    from_strata,
    level_means,
    level_sums,
    renumbered,
    sums,
    total,
)
from audit.analysis.estimators.estimate import Codes, Estimate, Floats, is_constant

#: Level at which a factor's own variance must be significant to be separated from that of the cells alone.
_POOLING_LEVEL = 0.25

#: With fewer degrees of freedom of V_c, t of so few makes an interval wider than V_c that is not subtracted does: 12.7
#: standard errors with 1, as of 82 questions about 40 occupations, in place of 2 times the root of 2.
_FEWEST_OF_CELLS = 4

#: The quantile at which the far tails of several parts are matched: 1 in 10,000, both sides together.
_FAR = 1 - 0.5e-4

#: Below this number of levels, Satterthwaite's degrees of freedom are too many.
_FEW_LEVELS = 5


class Moments(NamedTuple):
    """The error of a mean from one source: variance, degrees of freedom and third cumulant, each (k,).

    ``parts``: the variance and degrees of freedom of each stratum, where a factor's levels are nested in several.
    """

    variance: Floats
    df: Floats
    third: Floats
    parts: Sequence[tuple[Floats, Floats]] = ()


def clustered_mean(values: Floats, clusters: Sequence[Codes], strata: Strata | None = None) -> Estimate:
    """Mean of each column of ``values`` with a clustered standard error.

    Parameters
    ----------
    values : array (n,) or (n, k)
        One row per item, no NaN.
    clusters : sequence of integer arrays (n,)
        The level of each cluster factor for each item. A factor with one level says nothing
        about its population and is left out; so is one whose levels are nested in another's.
        Empty: items are independent (classic t).
    strata : Strata, optional
        Fixed groups of items and their weights. None: the plain mean.
    """
    columns = values.reshape(len(values), -1)
    n, k = columns.shape
    strata = strata or Strata.one(n)
    means = strata.means(columns)
    mean = strata.weights @ means
    factors = crossed_factors(clusters)
    unknown = np.full(k, np.nan)
    if clusters and not factors:
        return Estimate(mean, unknown, unknown, n, 1)
    fewest = int(np.bincount(strata.codes).min())
    if n < 2:
        return Estimate(mean, unknown, unknown, n, n)
    residual = _zero_where_constant(from_strata(columns, strata, means), mean, n)
    # Without clusters, each item is a cluster.
    of_each = [_one_way(residual, codes, strata) for codes in factors] or [_of_items(residual, strata)]
    levels = [_fewest_levels(codes, strata) for codes in factors] or [fewest]
    third = np.sum([moments.third for moments in of_each], axis=0)
    if len(of_each) == 1:
        variance, df = of_each[0].variance, of_each[0].df
    else:
        variances, dfs = (np.stack([moments[i] for moments in of_each]) for i in (0, 1))
        variance, df = summed_variance(variances, dfs, levels, *_cells_alone(residual, factors, strata))
    parts = [part for moments in of_each for part in moments.parts or [moments[:2]]]
    variances, dfs = (np.stack([part[i] for part in parts]) for i in (0, 1))
    far_df = far_degrees(variances, dfs, df) if len(parts) > 1 else None
    return Estimate(mean, np.sqrt(variance), df, n, min(levels), third, far_df=far_df)


def summed_variance(
    variances: Floats, dfs: Floats, levels: Sequence[int], alone: Floats, alone_df: Floats | int
) -> tuple[Floats, Floats]:
    """V (k,) and its degrees of freedom (k,), from the V_k of each factor (K, k) and the V_c of the cells (k,).

    If ``alone_df`` is below `_FEWEST_OF_CELLS`, V_c is unknown and not subtracted.
    """
    known = np.broadcast_to(alone_df, alone.shape) >= _FEWEST_OF_CELLS
    alone = np.where(known, alone, 0.0)
    of_alone = np.where(known, alone_df, 1.0)
    shows = variances > alone * np.where(known, special.fdtri(dfs, of_alone, 1 - _POOLING_LEVEL), 1.0)
    counted = np.where(shows, variances, 0.0)
    shared = (shows.sum(axis=0) - 1) * alone
    variance = counted.sum(axis=0) - shared
    uncertain = (counted**2 / dfs).sum(axis=0) + np.where(known, shared**2 / of_alone, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(variance > 0, variance**2 / uncertain, min(levels) - 1)
    few_show = (shows & (np.array(levels)[:, None] < _FEW_LEVELS)).any(axis=0)
    if few_show.any():
        weight = np.where(few_show, counted, 1.0)
        quantile = (weight * special.stdtrit(dfs, 0.975)).sum(axis=0) / weight.sum(axis=0)
        df = np.where(few_show, special.stdtridf(0.975, quantile), df)
    return np.maximum(variance, variances.max(axis=0)), df


def far_degrees(variances: Floats, dfs: Floats, df: Floats) -> Floats:
    """Degrees of freedom (k,) of the tails of a mean whose error has these parts (P, k), at most ``df`` (k,).

    The t whose 1 in 10,000 lies as many 95 % intervals away as that of Behrens and Fisher: of a normal error whose
    variance is Σ V_p · df_p / χ² (Fisher 1935, Ann. Eugen. 6(4)). Its quantile q is near

        q² = z² + sqrt(Σ (V_p / V)² (t_p² - z²)²),

    z the normal's and t_p each part's own: at 1 in 10,000 the same or up to 14 % more, in sums of two to ten parts.
    """
    weight = np.where(np.isfinite(variances) & np.isfinite(dfs), variances, 0.0)
    whole = weight.sum(axis=0)
    weight = np.divide(weight, whole, out=np.zeros_like(weight), where=whole > 0)
    known = np.where(weight > 0, dfs, 1.0)
    far, near = (_quantile_of_sum(weight, known, share) for share in (_FAR, 0.975))
    grid, ratios = _tails()
    return np.asarray(np.minimum(df, np.where(whole > 0, np.interp(-far / near, -ratios, grid), df)))


def _quantile_of_sum(weight: Floats, dfs: Floats, share: float) -> Floats:
    """The quantile (k,) of a normal error whose variance is the sum of parts (P, k), known by these degrees."""
    z2 = float(special.ndtri(share)) ** 2
    excess = weight * (special.stdtrit(dfs, share) ** 2 - z2)
    return np.asarray(np.sqrt(z2 + np.sqrt((excess**2).sum(axis=0))))


@cache
def _tails() -> tuple[Floats, Floats]:
    """Degrees of freedom, and how many 95 % intervals away 1 in 10,000 lies with each."""
    grid = np.geomspace(0.5, 1e6, 600)
    return grid, np.asarray(special.stdtrit(grid, _FAR) / special.stdtrit(grid, 0.975), dtype=np.float64)


class Source(NamedTuple):
    """The error of a mean from one source, and its number of levels."""

    variance: Floats
    df: Floats
    levels: int


def sources_of_error(columns: Floats, clusters: Sequence[Codes], strata: Strata) -> tuple[list[Source], Source]:
    """The sources of error of the mean of columns (n, k): V_k of each factor, and V_c of the cells alone.

    Without clusters each item is a level. The cells' degrees of freedom are 0 if V_c is unknown.
    """
    return sources_of_rows(columns.__getitem__, clusters, strata)


def sources_of_rows(make: Making, clusters: Sequence[Codes], strata: Strata) -> tuple[list[Source], Source]:
    """The same of what is made of the rows."""
    means = level_means(make, strata.codes)
    residual: Making = lambda rows: make(rows) - means[strata.codes[rows]]  # noqa: E731
    k = means.shape[1]
    factors = crossed_factors(clusters)
    if not factors:
        own = _of_items(residual, strata)
        return [Source(own.variance, own.df, len(strata.codes))], Source(np.zeros(k), np.zeros(k), 0)
    sources = [Source(*_one_way(residual, codes, strata)[:2], int(codes.max()) + 1) for codes in factors]
    if len(factors) == 1:
        return sources, Source(np.zeros(k), np.zeros(k), 0)
    return sources, Source(*_cells_alone(residual, factors, strata), combinations(factors).number)


def _zero_where_constant(residual: Making, mean: Floats, n: int) -> Making:
    """The residuals, 0 in columns where they are all the same."""
    ends = [(made.min(axis=0), made.max(axis=0)) for made in map(residual, blocks(n))]
    lows, highs = (np.array(of_blocks) for of_blocks in zip(*ends, strict=True))
    constant = is_constant(np.stack([lows.min(axis=0), highs.max(axis=0)]), mean)
    return lambda rows: np.where(constant, 0.0, residual(rows))


def _fewest_levels(codes: Codes, strata: Strata) -> int:
    """Levels of a factor in the stratum with the fewest; all levels if it crosses the strata."""
    return int(np.bincount(strata.of_levels(codes)).min())


def _one_way(residual: Making, codes: Codes, strata: Strata) -> Moments:
    """The mean's error clustered by one factor, its residuals (n, k) taken from the strata's means."""
    stratum, of_item = strata.of_levels(codes), strata.of_each_item
    size, n = len(stratum), len(codes)
    part = total(  # each level's part in the mean
        n, lambda rows: np.bincount(codes[rows], weights=of_item[strata.codes[rows]], minlength=size).astype(float)
    )
    added = level_sums(lambda rows: residual(rows) * of_item[strata.codes[rows]][:, None], codes, size)
    parts = [_of_stratum([(part[own], added[own])]) for own in (stratum == s for s in range(int(stratum.max()) + 1))]
    return _added_up(parts, size)


def _of_items(residual: Making, strata: Strata) -> Moments:
    """The mean's error where each item is a level: as `_one_way`, without what is as long as the items."""
    of_item, n = strata.of_each_item, len(strata.codes)
    return _added_up([_of_stratum(_ItemBlocks(residual, strata, of_item, s)) for s in range(len(of_item))], n)


class _ItemBlocks:
    """The items of a stratum in blocks, as often as they are asked for."""

    def __init__(self, residual: Making, strata: Strata, of_item: Floats, stratum: int) -> None:
        self._residual, self._strata, self._of_item, self._stratum = residual, strata, of_item, stratum

    def __iter__(self) -> Iterator[tuple[Floats, Floats]]:
        for rows in blocks(len(self._strata.codes)):
            own = self._strata.codes[rows] == self._stratum
            part = np.full(int(own.sum()), self._of_item[self._stratum])
            yield part, (self._residual(rows) * self._of_item[self._strata.codes[rows]][:, None])[own]


def _added_up(parts: Sequence[Moments], size: int) -> Moments:
    """The error that the strata's errors, of so many levels in all, add up to."""
    variance, third = (np.sum([moments[i] for moments in parts], axis=0) for i in (0, 2))
    uncertain = np.sum([moments.variance**2 / moments.df for moments in parts], axis=0)
    most_df = np.full(variance.shape, size - float(len(parts)))
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(uncertain > 0, variance**2 / uncertain, most_df)
    own = [(moments.variance, moments.df) for moments in parts] if len(parts) > 1 else ()
    return Moments(variance, np.where(np.isnan(variance), np.nan, df), third, own)


def _of_stratum(levels: Iterable[tuple[Floats, Floats]]) -> Moments:
    """The error from blocks of levels (G,) with these weights in the mean and these sums of residuals (G, k)."""
    sizes = [(len(part), part.sum(), added.shape[1]) for part, added in levels]
    number, whole, k = sum(size for size, _, _ in sizes), sum(part for _, part, _ in sizes), sizes[0][2]
    if number < 2:
        unknown = np.full(k, np.nan)
        return Moments(unknown, unknown, unknown)
    powers, squared, cubed = np.zeros(4), np.zeros(k), np.zeros(k)
    for part, added in levels:
        weight = part / whole
        powers += [(weight**power).sum() for power in (2, 3, 4, 5)]
        squared += (added**2).sum(axis=0)
        cubed += (added**3).sum(axis=0)
    squares, cubes, fourths, fifths = powers.tolist()
    # E Σ w²(a - Σwa)² = σ²(Σw² - 2Σw³ + (Σw²)²): G/(G-1) for equal clusters.
    variance = squares / (squares - 2 * cubes + squares**2) * squared
    # As for the variance, with as many levels as the weights are worth: G²/((G-1)(G-2)) for equal clusters.
    worth = max(1 / squares, 2.5)
    third = worth**2 / ((worth - 1) * (worth - 2)) * cubed
    # Satterthwaite's (tr M)² / tr M² of that sum as a quadratic form M of normal levels: G - 1 for equal clusters.
    trace = squares - 2 * cubes + squares**2
    of_square = squares**4 + 4 * squares * fourths - 4 * squares**2 * cubes + 2 * cubes**2 - 4 * fifths + fourths
    return Moments(variance, np.full(variance.shape, trace**2 / of_square), third)


def _cells_alone(residual: Making, factors: Sequence[Codes], strata: Strata) -> tuple[Floats, Floats]:
    """Variance of the mean from the cells alone (k,), and its degrees of freedom (k,), 0 if unknown."""
    n, n_strata = len(strata.codes), len(strata.weights)
    cells = combinations([strata.codes, *factors])
    counts = total(n, lambda rows: np.bincount(cells.of(rows), minlength=cells.number).astype(float))
    added = total(n, lambda rows: sums(residual(rows), cells.of(rows), cells.number))
    stratum, *codes = cells.levels
    variances, squares = [], []
    for s, weight in zip(range(n_strata), strata.weights, strict=True):
        own = stratum == s
        variance, df = _cells_of_stratum(added[own], counts[own], [renumbered(of[own])[0] for of in codes])
        variances.append(weight**2 * variance)
        squares.append((weight**2 * variance) ** 2 / max(df, 1))
    whole, uncertain = np.sum(variances, axis=0), np.sum(squares, axis=0)
    return whole, np.divide(whole**2, uncertain, out=np.zeros_like(whole), where=uncertain > 0)


def _cells_of_stratum(added: Floats, weight: Floats, of_cell: Sequence[Codes]) -> tuple[Floats, int]:
    """The same for the mean of one stratum's items, with the factors' effects removed. df is 0 if unknown.

    ``added`` (cells, k): sums of residuals; ``weight`` (cells,): numbers of items; ``of_cell``: each factor's levels.
    """
    n_cells = len(weight)
    levels = [int(codes.max()) + 1 for codes in of_cell]
    df = n_cells - additive_rank(of_cell, levels)
    if df <= 0:
        return np.zeros(added.shape[1]), 0
    n = int(weight.sum())
    left = added / weight[:, None]  # cell means
    totals = [np.bincount(codes, weights=weight, minlength=size) for codes, size in zip(of_cell, levels, strict=True)]
    start = np.abs(left).max(axis=0, initial=0.0)
    moving = np.arange(
        left.shape[1]
    )  # a column that has come to rest is left alone: what stands beside it is no matter
    for _ in range(200):  # alternating projections; one sweep is exact when balanced
        swept, moved = left[:, moving], np.zeros(len(moving))
        for codes, size, items in zip(of_cell, levels, totals, strict=True):
            effect = sums(swept * weight[:, None], codes, size) / items[:, None]
            swept = swept - effect[codes]
            moved = np.maximum(moved, np.abs(effect).max(axis=0))
        left[:, moving] = swept
        moving = moving[moved > 1e-9 * start[moving]]
        if not moving.size:
            break
    return n_cells / df * ((left * weight[:, None] / n) ** 2).sum(axis=0), df

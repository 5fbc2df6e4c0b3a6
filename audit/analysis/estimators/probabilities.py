"""Intervals of mean probabilities with tails from a logit-normal model.

Near 0, a few levels dominate a mean: with 20 occupations whose log-odds vary by 1.5, Student's interval of the
mean misses above in 24 %, and correcting for the sample's skewness removes a third of that. So the log-odds
are modelled as a sum of normal effects, one for each cluster factor and one for each cell (a logit-normal mixed
model), and the mean's interval is the generalised one of that model (Weerahandi 1993, J. Am. Stat. Assoc. 88; for the
mean of lognormal values Krishnamoorthy & Mathew 2003, J. Stat. Plan. Inference 115): variances are drawn as V·df/χ²,
the mean of the log-odds as a normal about its estimate, and for each draw the mean probability is integrated.

Where the levels' log-odds are skewed, a mean near 0 rests on few of them, and more than the model says: to that side
the interval is wider by `_BY_SKEWNESS` of the skewness beyond what normal effects show by chance. Near 0 that is not
enough, since the levels that matter most may not be in the sample, which then shows less skewness than there is: below
0.15 the interval grows by `_NEAR_AN_END` of it, whatever is due to chance, and at 0.05 fully so,
by more if levels are few. With effects that are
exponential or Gumbel's and a mean of the log-odds of -3 or -5, 40 × 25 then hold the truth in 95 to 99 %, 20 × 25 in
94 to 98; 10 × 50 at -5 in 91 % if they are exponential. `few_levels.rests_on_few_levels` says of which figures
that may be so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from audit.analysis.estimators.clusters import Making, Strata, crossed_factors, gathered, level_means
from audit.analysis.estimators.estimate import Codes, Estimate, Floats
from audit.analysis.estimators.few_levels import LEAST_PART, skewness_of_levels
from audit.analysis.estimators.means import sources_of_rows
from audit.spool import selected

_DRAWS, _NODES = 512, 15
#: The part of a skewness by which the interval is wider, and the skewness that counts as chance.
_BY_SKEWNESS, _SKEWED_BY_CHANCE = 0.8, 0.5
#: The same for means near 0 or 1, and the most that it adds.
_NEAR_AN_END, _SKEWED_UNSEEN, _MOST_NEAR_AN_END = 1.2, 0.2, 1.0
#: How much more that is where levels are few, over their number: they show the less of a skewness (Joanes & Gill 1998,
#: J. R. Stat. Soc. D 47(1)). Without it 20 × 25 with Gumbel's effects around -5 miss to one side in 4.8 %, now in 3.9.
_OF_FEW = 6.0


def widened_by_logit_model(
    estimate: Estimate, values: Floats, clusters: Sequence[Codes], strata: Strata | None = None
) -> Estimate:
    """The estimate of mean probabilities, reaching at least as far as the logit-normal model's interval.

    Parameters
    ----------
    estimate : Estimate
        Of the same values and clusters.
    values : array (n,) or (n, k)
        In [0, 1].
    clusters, strata
        As for `clustered_mean`. Each stratum has a mean of its log-odds; the variances are the same in all.
    """
    columns = values.reshape(len(values), -1)
    inside = inside_of_range(columns)
    varied = (estimate.se > 0) & np.isfinite(estimate.df)
    if inside.sum() < 2 or not varied.any():
        return estimate
    modelled = selected(columns, inside)
    strata = strata or Strata.one(len(columns))
    of_inside = selected(strata.codes, inside)
    if not np.bincount(of_inside, minlength=len(strata.weights)).all():
        return estimate
    strata = Strata(of_inside, strata.weights)
    mean = strata.mean(modelled)
    of_clusters = [selected(codes, inside) for codes in clusters]

    def logits(rows: slice) -> Floats:
        return np.asarray(special.logit(np.clip(modelled[rows], LEAST_PART * mean, 1 - LEAST_PART * (1 - mean))))

    low, high = _interval(logits, of_clusters, strata)
    low, high = (np.where(varied, inside.mean() * distance, 0.0) for distance in (mean - low, high - mean))
    at = np.clip(estimate.value, 1e-12, 1 - 1e-12)
    # On the scale of the log-odds the interval is nearly even: on its own it is bent as they are.
    odds = np.where(varied, estimate.se / (at * (1 - at)), 0.0)
    bends = np.maximum(2 * at - 1, 0.0) * odds, np.maximum(1 - 2 * at, 0.0) * odds
    below, above = (side.bent(bend, estimate.t) for side, bend in zip(estimate.reach, bends, strict=True))
    modelled_reach = replace(estimate, below=below, above=above).widened(low, high)
    rise, fall = _skewness(logits, of_clusters, strata)
    wider = _wider(1 - at, fall, estimate.n_clusters), _wider(at, rise, estimate.n_clusters)
    ends = (
        np.where(varied, side.at(estimate.t) * by, 0.0) for side, by in zip(modelled_reach.reach, wider, strict=True)
    )
    return modelled_reach.widened(*ends)


def inside_of_range(columns: Floats) -> NDArray[np.bool_]:
    """Rows (n,) of probabilities (n, k) that are neither 0 nor 1 in any column: these represent missing answers."""
    return gathered(len(columns), lambda rows: ((columns[rows] > 0) & (columns[rows] < 1)).all(axis=1), np.bool_)


def _skewness(logits: Making, clusters: Sequence[Codes], strata: Strata) -> tuple[Floats, Floats]:
    """The skewness of the levels' log-odds upwards and downwards (k,)."""
    means = level_means(logits, strata.codes)
    residual: Making = lambda rows: logits(rows) - means[strata.codes[rows]]  # noqa: E731
    return skewness_of_levels([level_means(residual, codes) for codes in crossed_factors(clusters)], means.shape[1])


def _wider(share: Floats, skewness: Floats, levels: int) -> Floats:
    """The factor (k,) of the interval to the side away from 0, at a mean of ``share`` over at least so many levels."""
    by_seen = np.maximum(1 - 2 * share, 0.0) * _BY_SKEWNESS * np.maximum(skewness - _SKEWED_BY_CHANCE, 0.0)
    near = np.clip((0.15 - share) / 0.1, 0.0, 1.0)
    by_unseen = near * np.clip(_NEAR_AN_END * (skewness + _SKEWED_UNSEEN), 0.0, _MOST_NEAR_AN_END)
    by_unseen = by_unseen * (1 + _OF_FEW / max(levels, 1))
    return np.asarray(1 + np.maximum(by_seen, by_unseen))


def _interval(logits: Making, clusters: Sequence[Codes], strata: Strata) -> tuple[Floats, Floats]:
    """Ends (k,) of the 95 % generalised interval of the mean probability, from the rows' log-odds (n, k)."""
    sources, cells = sources_of_rows(logits, clusters, strata)
    dimensions = len(sources) + 2
    centres = level_means(logits, strata.codes)
    total = error = np.zeros((_DRAWS, centres.shape[1]))
    worth, largest = 0.0, error
    for dimension, source in enumerate(sources):
        variance = source.variance * _inverse_chi_squares(source.df, dimension, dimensions)
        total, error, worth = total + source.levels * variance, error + variance, worth + source.levels
        largest = np.maximum(largest, variance)
    if len(sources) > 1:
        drawn = cells.variance * _inverse_chi_squares(cells.df, dimensions - 2, dimensions)
        variance = np.where(cells.df > 0, drawn, 0.0)
        total = total + max(cells.levels - worth, 0.0) * variance
        error = np.maximum(error - (len(sources) - 1) * variance, largest)
    moved = special.ndtri(_draws(dimensions)[-1])[:, None] * np.sqrt(error)
    nodes, of_nodes = _hermite()
    means = np.zeros_like(moved)
    for centre, weight in zip(centres, strata.weights.tolist(), strict=True):
        means += weight * (special.expit((centre + moved)[..., None] + np.sqrt(total)[..., None] * nodes) @ of_nodes)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return low, high


def _inverse_chi_squares(df: Floats, dimension: int, dimensions: int) -> Floats:
    """Draws of df / χ² (draws, k) for the columns' degrees of freedom (k,), which those of one design share."""
    different, column = np.unique(np.maximum(df, 1.0), return_inverse=True)
    return np.column_stack([_of_one_df(float(one), dimension, dimensions) for one in different])[:, column]


@lru_cache(maxsize=256)  # the inverse of χ² is slow, and shared by the figures of a design
def _of_one_df(df: float, dimension: int, dimensions: int) -> Floats:
    return np.asarray(df / special.chdtri(df, _draws(dimensions)[dimension]))


@cache
def _draws(dimensions: int) -> list[Floats]:
    """Quasi-random numbers in (0, 1), evenly spread over the cube and the same every time."""
    from scipy.stats import qmc  # takes a second to import, and only mean probabilities need it

    return list(qmc.Halton(dimensions, scramble=True, seed=0).random(_DRAWS).T)


@cache
def _hermite() -> tuple[Floats, Floats]:
    """Nodes and weights for expectations over a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return nodes, weights / weights.sum()

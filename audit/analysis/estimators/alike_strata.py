"""Standard errors of means over strata, where a small stratum's levels are alike and the others' are not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from audit.analysis.estimators.clusters import Strata, crossed_factors, from_strata, level_means
from audit.analysis.estimators.estimate import Codes, Estimate, Floats

#: Levels of a stratum that may be alike by chance, although the stratum's kind of levels are not.
_SMALL = 15
#: The chance that a stratum of normal levels is taken for one whose levels are alike by chance.
_UNLIKELY = 0.005


def allow_for_alike_strata(estimate: Estimate, columns: Floats, clusters: Sequence[Codes], strata: Strata) -> Estimate:
    """The estimate with an error that holds though the few levels of a stratum happen to be alike.

    Of eight occupations, a model that says "she" of one occupation in five calls all eight "he" in one sample of six.
    Their variance is then zero, and that of the mean knows the other stratum's levels alone. Where the levels of a
    stratum of at most `_SMALL` vary less than those of the others, beyond chance (F-test of the two variances, Snedecor
    & Cochran 1967, Statistical Methods, 4.15), they are taken to vary as much.

    Parameters
    ----------
    estimate : Estimate
        `clustered_mean` of the same values, clusters and strata, or wider.
    columns : array (n, k)
        Values.
    clusters : sequence of integer arrays (n,)
        The sampled factors. Those that cross the strata have no levels of their own in a stratum, and do not count.
    strata : Strata
        The fixed groups. With one alone nothing changes.
    """
    extra = np.zeros(columns.shape[1])
    for codes in crossed_factors(clusters):
        extra += _variance_not_seen(columns, codes, strata)
    t = np.asarray(special.stdtrit(estimate.df, 0.975), dtype=np.float64)
    distance = np.where(extra > 0, t * np.sqrt(estimate.se**2 + extra), 0.0)
    return estimate.widened(distance, distance)


def _variance_not_seen(columns: Floats, codes: Codes, strata: Strata) -> Floats:
    """The variance (k,) that a factor's levels would add to the mean, were those of no stratum alike by chance."""
    stratum = strata.of_levels(codes)
    levels = np.bincount(stratum, minlength=len(strata.weights))
    extra = np.zeros(columns.shape[1])
    if len(levels) < 2 or levels.min() < 2:
        return extra
    of_levels = level_means(from_strata(columns, strata, strata.means(columns)), codes)
    squares = np.stack([_squares(of_levels[stratum == s]) for s in range(len(levels))])
    for s in np.flatnonzero(levels <= _SMALL):
        free, free_of_others = int(levels[s]) - 1, int((levels - 1).sum() - levels[s] + 1)
        own, others = squares[s] / free, (squares.sum(axis=0) - squares[s]) / free_of_others
        is_alike = own < float(special.fdtri(free, free_of_others, _UNLIKELY)) * others
        extra += np.where(is_alike, strata.weights[s] ** 2 * (others - own) / levels[s], 0.0)
    return extra


def _squares(values: Floats) -> Floats:
    """The sum of squared distances (k,) from the mean of values (n, k)."""
    return np.asarray(((values - values.mean(axis=0)) ** 2).sum(axis=0))

"""Whether a few levels of a sampled factor decide a mean, so that its interval may be too short.

Levels like those few may not be in the sample. Nothing in the sample then says how often there are such, or how far
they lie apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from audit.analysis.estimators.clusters import Strata, crossed_factors, from_strata, level_means
from audit.analysis.estimators.estimate import ROUNDING, Codes, Floats

#: Values below this share of the mean (or as near to 1) hardly affect it: they are modelled as if at this share.
LEAST_PART = 1e-3
#: Means this near to 0 or 1 rest on few levels if the levels' log-odds deviate by so much.
_RARE, _VARIED = 0.05, 0.5
#: The skewness of levels of which few decide the mean: at least so much, and so many of its standard errors.
_SKEWED, _SURELY = 1.5, 3.0
#: The same of a quantity without a range, whose interval has no model of its tail.
_SKEWED_UNBOUNDED, _SURELY_UNBOUNDED = 1.0, 2.0


def rests_on_few_levels(values: Floats, clusters: Sequence[Codes]) -> bool:
    """Whether the mean of probabilities (n,) is so near to 0 or 1, and its levels so far apart, that a few decide it.

    Such levels may not be in the sample: where log-odds are very skewed, 95 % intervals then hold the truth less often.
    """
    mean = float(values.mean())
    if not 0 < min(mean, 1 - mean) < _RARE:
        return False

    def odds(rows: slice) -> Floats:
        return np.asarray(special.logit(np.clip(values[rows], LEAST_PART * mean, 1 - LEAST_PART * (1 - mean))))[:, None]

    return any(float(level_means(odds, codes).std()) > _VARIED for codes in crossed_factors(clusters))


def few_levels_decide(
    columns: Floats, clusters: Sequence[Codes], strata: Strata, *, is_unbounded: bool = False
) -> NDArray[np.bool_]:
    """Whether a few levels of a factor lie so far from the others that the mean of a column (n, k) rests on them (k,).

    By the skewness of the levels' means, which must be beyond what normal effects show by chance (its standard error:
    Cramér 1946, Mathematical Methods of Statistics, 29.3). One level of n that lies far from the others has √n.
    ``is_unbounded``: of values without a range, of which less skewness is said.
    """
    least, surely = (_SKEWED_UNBOUNDED, _SURELY_UNBOUNDED) if is_unbounded else (_SKEWED, _SURELY)
    residual = from_strata(columns, strata, strata.means(columns))
    decide = np.zeros(columns.shape[1], dtype=np.bool_)
    for codes in crossed_factors(clusters):
        n = int(codes.max()) + 1
        if n > 2:
            by_chance = math.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
            rise, fall = skewness_of_levels([level_means(residual, codes)], columns.shape[1])
            decide |= np.maximum(rise, fall) > max(least, surely * by_chance)
    return decide


def skewness_of_levels(of_factors: Sequence[Floats], k: int) -> tuple[Floats, Floats]:
    """The skewness of the levels upwards and downwards (k,), of the factor that has most; from each factor's means
    (G, k) of values without the strata's means. -inf where levels do not differ."""
    rise = fall = np.full(k, -np.inf)
    for of_levels in of_factors:
        n = len(of_levels)
        second, third = (of_levels**2).mean(axis=0), (of_levels**3).mean(axis=0)
        skewness = np.divide(third, second**1.5, out=np.full_like(third, -np.inf), where=second > ROUNDING)
        skewness = skewness * np.sqrt(n * (n - 1)) / max(n - 2, 1)  # as for a sample
        rise, fall = np.maximum(rise, skewness), np.maximum(fall, np.where(np.isfinite(skewness), -skewness, -np.inf))
    return rise, fall

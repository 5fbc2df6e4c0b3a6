"""Correlations of clusters' means with a covariate: values, errors and bounds.

The error is the delete-one-cluster jackknife's on Fisher's z (Efron 1982, The Jackknife, the Bootstrap and Other
Resampling Plans, ch. 3). Each cluster's pseudo-value is divided among its items, and what an item adds by lying off its
cluster's mean is the correlation's derivative (ch. 6): so the items' pseudo-values have the same crossed sources of
error as any mean, since templates too differ in how closely they follow the covariate. Student's t has at most two
degrees of freedom fewer than there are clusters.

Items that are counted from drawn answers vary by these draws too, which makes a correlation smaller than that of their
probabilities. The expected part of the draws is subtracted from the clusters' variation (Spearman 1904, Am. J. Psychol.
15). Where draws make up more than `_MOST_DRAWN` of it, the correlation is unknown.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from audit.analysis.estimators.design import Design, level_means
from audit.analysis.estimators.estimate import ROUNDING, Between, Codes, Estimate, Floats, Student, unknown
from audit.analysis.estimators.means import sources

#: The part of the clusters' variation that may be their draws', for a correlation without them to be known.
_MOST_DRAWN = 0.7
_FEWEST_CLUSTERS = 4


def pearson(x: Floats, y: Floats, noise: Floats | None = None) -> float:
    """Pearson's correlation; NaN if one of the two does not vary.

    ``noise`` (G,): the variance of each x through its draws, for the correlation of x without them; it may exceed 1.
    """
    if len(x) < 2 or _is_constant(x) or _is_constant(y):
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    square = float(x @ x) - (0.0 if noise is None else _squares_of(noise))
    if square <= 0:
        return math.nan
    r = float(x @ y) / math.sqrt(square * float(y @ y))
    # ±1 but for rounding, which artanh would amplify
    return math.copysign(1.0, r) if noise is None and abs(r) > 1 - ROUNDING else r


def _is_constant(x: Floats) -> bool:
    return bool(np.ptp(x) <= 1e-13 * max(1.0, abs(float(x.mean()))))


def _squares_of(noise: Floats) -> float:
    """The expected sum of squares about their mean of numbers with these variances."""
    return float(noise.sum()) * (1 - 1 / len(noise))


class Correlated:
    """Items (n,), whose clusters' means are correlated with the clusters' covariate.

    Parameters
    ----------
    items : array (n,)
    own : array (n,)
        Each item's cluster, 0…G-1.
    covariate : array (G,)
    noise : array (n,), optional
        The items' variances through draws; None if they were not drawn.
    """

    def __init__(self, items: Floats, own: Codes, covariate: Floats, noise: Floats | None = None) -> None:
        self.items, self.own, self.covariate = items, own, covariate
        self.count = np.bincount(own)
        self.means = level_means(items, own)
        self.noise = None if noise is None or not noise.any() else np.bincount(own, noise) / self.count**2
        raw = pearson(self.means, covariate, self.noise)
        self.value = min(max(raw, -1.0), 1.0) if self.is_mostly_true else math.nan
        self._raw = raw

    @property
    def is_mostly_true(self) -> bool:
        """Whether the means' variation is known to be more than that of their draws."""
        squares = float(((self.means - self.means.mean()) ** 2).sum())
        return self.noise is None or _squares_of(self.noise) <= _MOST_DRAWN * squares

    def pseudo_values(self, *, on_fishers_z: bool) -> Floats:
        """What each item (n,) adds to the correlation, or to its Fisher's z: their mean is the jackknife's."""
        size = len(self.means)
        scaled = math.atanh if on_fishers_z else float
        without = np.empty(size)
        for g in range(size):
            rest = np.arange(size) != g
            noise = None if self.noise is None else self.noise[rest]
            r = pearson(self.means[rest], self.covariate[rest], noise)
            without[g] = scaled(r) if abs(r) < 1 or not on_fishers_z else math.nan
        of_cluster = size * scaled(self._raw) - (size - 1) * without
        of_x, of_y = self.means - self.means.mean(), self.covariate - self.covariate.mean()
        square_x = float(of_x @ of_x) - (0.0 if self.noise is None else _squares_of(self.noise))
        slope = of_y / math.sqrt(square_x * float(of_y @ of_y)) - self._raw * of_x / square_x
        if on_fishers_z:
            slope = slope / (1 - self._raw**2)
        share = len(self.items) / self.count  # clusters count equally, however many items they have
        off = self.items - self.means[self.own]
        return np.asarray((share / size * of_cluster)[self.own] + (share * slope)[self.own] * off)

    @property
    def has_error(self) -> bool:
        """Whether a jackknife is defined."""
        return len(self.means) >= _FEWEST_CLUSTERS and math.isfinite(self._raw)


def correlation(of: Correlated, design: Design) -> Estimate:
    """The correlation with its interval, on Fisher's z; unknown with fewer than four clusters, or a perfect fit."""
    if not of.has_error or (of.noise is None and abs(of.value) >= 1):
        return unknown(of.value)
    if of.noise is None:
        return replace(
            _jackknifed(of.value, of.pseudo_values(on_fishers_z=True), of, design), scale="fisher", skewness=0.0
        )
    if of.is_mostly_true:
        return _jackknifed(of.value, of.pseudo_values(on_fishers_z=False), of, design)
    plain = correlation(Correlated(of.items, of.own, of.covariate), design)
    low, high = plain.interval(0.95)
    return Between(plain if low > 0 else _AT[-1.0], plain if high < 0 else _AT[1.0])


#: The ends of the scale, known.
_AT = {end: Student(end, 0.0, math.inf) for end in (-1.0, 1.0)}


def correlation_difference(a: Correlated, b: Correlated, design: Design) -> Student:
    """The second correlation minus the first, of the same clusters: the jackknife leaves the same ones out of both."""
    value = b.value - a.value
    if not (a.has_error and b.has_error and math.isfinite(value)):
        return unknown(value)
    pseudo = b.pseudo_values(on_fishers_z=False) - a.pseudo_values(on_fishers_z=False)
    return _jackknifed(value, pseudo, a, design)


def _jackknifed(value: float, pseudo: Floats, of: Correlated, design: Design) -> Student:
    """The value with the error of the items' pseudo-values (n,)."""
    found = sources(pseudo, design) if np.isfinite(pseudo).all() else None
    if found is None:
        return unknown(value)
    variance, df = found.total()
    se, third = math.sqrt(variance), sum(source.third for source in found.factors.values())
    most = min(design.most_df, len(of.means) - 2.0)
    return Student(value, se, min(df, most), third / se**3 if se > 0 else 0.0)


def noise_of_draws(x: Floats, variances: Floats, codes: Codes, limits: tuple[float, float]) -> Floats:
    """The variances (n,) of items x that are counted from draws, where they are unknown (NaN) as large as they may be.

    One draw shows no variance. A number between limits a and b whose mean is m has one of (b - m)(m - a) at most: m is
    the mean of the cluster's items of this kind, or of all where it has one alone.
    """
    lacking = np.isnan(variances)
    if not lacking.any():
        return variances
    least, most = limits
    n = np.bincount(codes[lacking], minlength=int(codes.max()) + 1)
    mean = np.bincount(codes[lacking], x[lacking], minlength=len(n)) / np.maximum(n, 1)
    own = (most - mean) * (mean - least) * n / np.maximum(n - 1, 1)
    overall = float((most - x[lacking].mean()) * (x[lacking].mean() - least))
    return np.where(lacking, np.where(n > 1, own, overall)[codes], variances)


# -- bounds ------------------------------------------------------------------------------------


def extreme_items(low: Floats, high: Floats, y: Floats, codes: Codes, sign: int) -> tuple[float, Floats]:
    """The bound of `extreme_correlation` for clustered items with bounds (n,), and the items (n,) that attain it."""
    lows, highs = level_means(low, codes), level_means(high, codes)
    bound, x = extreme_correlation(lows, highs, y, sign)
    width = highs - lows
    share = np.divide(x - lows, width, out=np.zeros_like(width), where=width > 0)
    return bound, low + share[codes] * (high - low)


def extreme_correlation(low: Floats, high: Floats, y: Floats, sign: int) -> tuple[float, Floats]:
    """The largest (sign +1) or smallest (-1) correlation that x within [low, high] can have with y.

    Returns that bound and the x (G,) that attains it. Among the x whose covariance has the desired sign, the
    correlation is a positive linear function divided by a convex one, hence pseudo-concave: a local optimum is the
    global one. If no x has that sign, the correlation is at most largest covariance / largest norm, a valid bound that
    may not be attained.
    """
    from scipy import optimize  # slow to import, and only bounded correlations need it

    if _is_constant(y):
        return math.nan, low
    direction = sign * (y - y.mean())
    direction /= np.linalg.norm(direction)  # the solver's tolerances are absolute
    farthest = np.where(direction > 0, high, low)
    covariance = float(direction @ farthest)
    if covariance <= 0:
        middle = (low + high).mean() / 2
        norm = math.sqrt((np.maximum(np.abs(low - middle), np.abs(high - middle)) ** 2).sum())
        bound = covariance / norm if norm > 0 else 0.0
        return sign * max(bound, -1.0), farthest

    def negative(x: Floats) -> tuple[float, Floats]:
        centred = x - x.mean()
        norm = np.linalg.norm(centred)
        if norm < 1e-12:
            return 0.0, -direction
        dot = direction @ centred
        return float(-dot / norm), -direction / norm + dot * centred / norm**3

    scale = float((high - low).max()) or 1.0  # unit boxes, so that the solver's step size suits any scale
    found = optimize.minimize(
        negative,
        farthest / scale,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(low / scale, high / scale, strict=True)),
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 2000},
    )
    x = np.asarray(found.x) * scale
    return pearson(x, y), x

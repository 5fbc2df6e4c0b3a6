"""Correlations of clusters' means with a covariate: values, errors and bounds.

The error is the delete-one-cluster jackknife's on Fisher's z (Efron 1982, The Jackknife, the Bootstrap and Other
Resampling Plans, ch. 3). Each cluster's pseudo-value is divided among its items, and what an item adds by lying off its
cluster's mean is the correlation's derivative (ch. 6): so the items' pseudo-values have the same crossed sources of
error as any mean, since templates too differ in how closely they follow the covariate. Student's t has at most two
degrees of freedom fewer than there are clusters.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from audit.analysis.estimators.design import Design, level_means
from audit.analysis.estimators.estimate import ROUNDING, Codes, Floats, Student, unknown
from audit.analysis.estimators.means import sources, student

_FEWEST_CLUSTERS = 4


def pearson(x: Floats, y: Floats) -> float:
    """Pearson's correlation; NaN if one of the two does not vary."""
    if len(x) < 2 or _is_constant(x) or _is_constant(y):
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    r = float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
    # ±1 but for rounding, which artanh would amplify
    return math.copysign(1.0, r) if abs(r) > 1 - ROUNDING else r


def _is_constant(x: Floats) -> bool:
    return bool(np.ptp(x) <= 1e-13 * max(1.0, abs(float(x.mean()))))


class Correlated:
    """Items (n,), whose clusters' means are correlated with the clusters' covariate.

    Parameters
    ----------
    items : array (n,)
    own : array (n,)
        Each item's cluster, 0…G-1.
    covariate : array (G,)
    """

    def __init__(self, items: Floats, own: Codes, covariate: Floats) -> None:
        self.items, self.own, self.covariate = items, own, covariate
        self.means = level_means(items, own)
        self.value = pearson(self.means, covariate)

    def pseudo_values(self, *, on_fishers_z: bool) -> Floats:
        """What each item (n,) adds to the correlation, or to its Fisher's z: their mean is the jackknife's."""
        size = len(self.means)
        scaled = math.atanh if on_fishers_z else float
        without = np.empty(size)
        for g in range(size):
            rest = np.arange(size) != g
            r = pearson(self.means[rest], self.covariate[rest])
            without[g] = scaled(r) if abs(r) < 1 or not on_fishers_z else math.nan
        of_cluster = size * scaled(self.value) - (size - 1) * without
        of_x, of_y = self.means - self.means.mean(), self.covariate - self.covariate.mean()
        square_x = float(of_x @ of_x)
        slope = of_y / math.sqrt(square_x * float(of_y @ of_y)) - self.value * of_x / square_x
        if on_fishers_z:
            slope = slope / (1 - self.value**2)
        share = len(self.items) / np.bincount(self.own)  # clusters count equally, however many items they have
        off = self.items - self.means[self.own]
        return np.asarray((share / size * of_cluster)[self.own] + (share * slope)[self.own] * off)

    @property
    def has_error(self) -> bool:
        """Whether a jackknife is defined."""
        return len(self.means) >= _FEWEST_CLUSTERS and math.isfinite(self.value)


def correlation(of: Correlated, design: Design) -> Student:
    """The correlation with its interval, on Fisher's z; unknown with fewer than four clusters, or a perfect fit."""
    if not of.has_error or abs(of.value) >= 1:
        return unknown(of.value)
    found = _jackknifed(of.value, of.pseudo_values(on_fishers_z=True), of, design)
    return replace(found, scale="fisher", skewness=0.0)


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
    return student(value, variance, min(df, len(of.means) - 2.0), found.third, design)


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

"""Correlations of clusters with a covariate, their standard errors and bounds.

The jackknife leaves out one cluster at a time, on Fisher's z scale, with t of at most clusters - 1 degrees of freedom:
fewer if a few clusters account for most of the error; and the interval is adjusted for the skewness of the clusters'
contributions. In simulations with 20 and 40 clusters the coverage was 96 to 98 % for normal and bounded values, 95 to
97 % if one or both have heavy tails (t, 5 df; Student's interval with clusters - 1 degrees of freedom: 91 to 95 %), and
92 to 95 % if both are lognormal. Without fourth moments nothing is guaranteed: with t of 3 df the coverage was 90 to
96 %, lowest at correlations near 1.

If the clusters' items are crossed with a further factor, the jackknife also leaves out its levels, one template of all
occupations at a time, since templates differ in how closely they follow the covariate. V is the sum of
`audit.analysis.estimators`, with jackknife variances for V_k, and V_c from the cells' contributions to the
correlation by its derivative (the infinitesimal jackknife: Efron 1982, The Jackknife, the Bootstrap and Other
Resampling Plans, ch. 6). In simulations of 40 occupations whose templates' slopes vary by two thirds of their mean or
more, intervals over occupations alone covered 58 to 92 % with three templates and 86 to 93 % with 25; these cover 91 to
98 %, 94 to 97 % if templates do not matter, and 88 to 97 % with two templates. Two models that are alike differ at the
5 % level in 2 to 8 % with three templates and 2 to 5 % with 25 (occupations alone: up to 88 %). The intervals are for
the correlation at this number of items per cluster: means over few noisy items correlate less than means over many.
With two or more further factors V_c is not subtracted: coverage is up to 99.8 %.

Items that are counted from drawn answers vary by these draws, too, which makes a correlation smaller than that of their
probabilities: with 4 draws by up to half. The expected part of the draws is subtracted from the clusters' variation
(Spearman 1904, Am. J. Psychol. 15, with error variances that are known), and the jackknife is that of the corrected
correlation, on its own scale, since it may exceed 1. Where draws make up more than `_MOST_DRAWN` of the variation, it
has no value, and its interval reaches from that of the uncorrected correlation to the end of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audit.analysis.estimators import (
    ROUNDING,
    Codes,
    Estimate,
    Floats,
    Moments,
    allow_for_unseen_skewness,
    bent_by_skewness,
    cluster_means,
    crossed_factors,
    far_degrees,
    is_constant,
    summed_variance,
)

#: The part of the jackknife's degrees of freedom that the tails of a difference have beyond 95 %. Where the covariate
#: does not matter, p was below 0.0001 in 4 to 5 of 10,000 samples of 8 to 20 clusters; now in 1 to 2 at most.
_FAR_PART = 0.6

#: The part of the clusters' variation that may be their draws', for a correlation without them to be known.
_MOST_DRAWN = 0.7


def correlation(x: Floats, y: Floats, noise: Floats | None = None) -> float:
    """Pearson's correlation; NaN if one of the two does not vary.

    ``noise`` (G,): the variance of each x through its draws, for the correlation of x without them; it may exceed 1.
    """
    if is_constant(x, x.mean()) or is_constant(y, y.mean()):
        return np.nan
    x, y = x - x.mean(), y - y.mean()
    if noise is None:
        return float(_perfect(x @ y / np.sqrt((x @ x) * (y @ y))))
    square_x = x @ x - _squares_of(noise)
    return float(x @ y / np.sqrt(square_x * (y @ y))) if square_x > 0 else np.nan


def _squares_of(noise: Floats) -> float:
    """The expected sum of squares about their mean of numbers with these variances."""
    return float(noise.sum()) * (1 - 1 / len(noise))


def noise_of_draws(x: Floats, variances: Floats, codes: Codes, limits: tuple[float, float]) -> Floats:
    """The variances (n,) of items x that are counted from draws, where they are unknown (NaN) as large as they may be.

    One draw shows no variance. A number between limits a and b whose mean is m has one of (b - m)(m - a) at most: m is
    the mean of the cluster's items of this kind, or of all where it has one alone.
    """
    unknown = np.isnan(variances)
    if not unknown.any():
        return variances
    least, most = limits
    n = np.bincount(codes[unknown], minlength=int(codes.max()) + 1)
    mean = np.bincount(codes[unknown], x[unknown], minlength=len(n)) / np.maximum(n, 1)
    own = (most - mean) * (mean - least) * n / np.maximum(n - 1, 1)
    overall = float((most - x[unknown].mean()) * (x[unknown].mean() - least))
    return np.where(unknown, np.where(n > 1, own, overall)[codes], variances)


def _perfect(r: Floats) -> Floats:
    """Set correlations that differ from ±1 by rounding alone to ±1, since artanh would amplify the error."""
    return np.where(np.abs(r) > 1 - ROUNDING, np.sign(r), r)


def leave_one_out_correlations(x: Floats, y: Floats, noise: Floats | None = None) -> Floats:
    """Correlation of x (G,) and y (G,) without each of the clusters in turn (G,); NaN if the rest does not vary."""
    if noise is not None:
        without = [np.arange(len(x)) != i for i in range(len(x))]
        return np.array([correlation(x[rest], y[rest], noise[rest]) for rest in without])
    n = len(x) - 1
    of_x, of_y = x - x.mean(), y - y.mean()
    sum_x, sum_y = -of_x, -of_y
    cov = (of_x @ of_y - of_x * of_y) - sum_x * sum_y / n
    var_x = (of_x @ of_x - of_x**2) - sum_x**2 / n
    var_y = (of_y @ of_y - of_y**2) - sum_y**2 / n
    with np.errstate(divide="ignore", invalid="ignore"):
        r = _perfect(cov / np.sqrt(var_x * var_y))
    # If one cluster accounts for nearly all of the variation, the differences above are rounding errors.
    for i in np.flatnonzero(_nearly_nothing(var_x, x) | _nearly_nothing(var_y, y)):
        r[i] = correlation(np.delete(x, i), np.delete(y, i))
    return r


def _nearly_nothing(left: Floats, x: Floats) -> NDArray[np.bool_]:
    """Whether the variation (G,) left without each of x (G,) is a tiny part of the whole, or possibly just rounding."""
    rounding = 1e-13 * max(1.0, float(np.abs(x).max()))
    return left <= max(1e-6 * len(x) * float(x.var()), len(x) * rounding**2)


@dataclass(frozen=True, slots=True)
class Correlations:
    """Correlations of several columns with one covariate, and the ingredients of their standard errors.

    Attributes
    ----------
    value : array (k,)
        Correlation of the clusters' means with the covariate.
    without : array (G, k)
        The same without each of the clusters.
    without_level : tuple of arrays (levels, k)
        The same without each level of each further factor, whose items are left out of the means.
    cells : array (cells, k)
        Each cell's contribution to the correlation, net of the factors' effects, scaled so that the sum of squares is
        V_c.
    cells_df : int
        Degrees of freedom of V_c; 0 if unknown.
    nested : bool
        Whether the clusters only subdivide the levels of a further factor.
    is_corrected : bool
        Whether the correlations are those of the items without the variation of their draws.
    """

    value: Floats
    without: Floats
    without_level: tuple[Floats, ...]
    cells: Floats
    cells_df: int
    nested: bool
    is_corrected: bool = False

    def interval(self, confidence: float) -> tuple[Floats, Floats]:
        """Intervals (k,) of the correlations; of corrected ones on their own scale."""
        if self.is_corrected:
            parts = self.value, self.without, self.without_level, self.cells
            lows, highs = allow_for_unseen_skewness(self._estimate(*parts)).interval(confidence)
            return np.clip(lows, -1.0, 1.0), np.clip(highs, -1.0, 1.0)
        lows, highs = self.on_fishers_z().interval(confidence)
        return np.tanh(lows), np.tanh(highs)

    def on_fishers_z(self) -> Estimate:
        """Each correlation as z = artanh r. The error is NaN if the fit is perfect, even if only without some level."""
        with np.errstate(divide="ignore", invalid="ignore"):
            of_sample = self._estimate(
                np.arctanh(self.value),
                np.arctanh(self.without),
                [np.arctanh(without) for without in self.without_level],
                self.cells / (1 - self.value**2),
            )
            return allow_for_unseen_skewness(of_sample)

    def differences(self, pairs: Sequence[tuple[int, int]]) -> Estimate:
        """The second correlation of each pair minus the first; the jackknife leaves the same clusters out of both."""
        a, b = np.array(pairs).T
        found = self._estimate(
            self.value[b] - self.value[a],
            self.without[:, b] - self.without[:, a],
            [without[:, b] - without[:, a] for without in self.without_level],
            self.cells[:, b] - self.cells[:, a],
        )
        return found if found.far_df is not None else replace(found, far_df=np.maximum(_FAR_PART * found.df, 1.0))

    def _estimate(self, value: Floats, without: Floats, without_level: Sequence[Floats], cells: Floats) -> Estimate:
        n = len(without)
        if n < 4:
            unknown = np.full(len(value), np.nan)
            return Estimate(value, unknown, unknown, n, n)
        (variance, df, third, _), far_df = _jackknifed(without), None
        if without_level:
            parts = [*without_level] if self.nested else [without, *without_level]
            levels = [len(part) for part in parts]
            variances, dfs, thirds, _ = map(np.array, zip(*map(_jackknifed, parts), strict=True))
            both, df = summed_variance(variances, dfs, levels, (cells**2).sum(axis=0), self.cells_df)
            far_df = far_degrees(variances, dfs, df)
            variance, third = np.maximum(both, variance), thirds.sum(axis=0)
        return bent_by_skewness(Estimate(value, np.sqrt(variance), df, n, n, third, far_df=far_df))


def _jackknifed(without: Floats) -> Moments:
    """The moments of estimates that become ``without`` (levels, k) when each level is left out.

    The variance is n - 1 times the mean of n squares, whose own variance is (κ - 1) / n times its square, with κ the
    kurtosis of the squared deviations. By Satterthwaite (1946) that is worth 2n / (κ - 1) degrees of freedom (as for
    sandwich variances: Pan & Wall 2002, Stat. Med. 21(10)): n for normal values, fewer if a few levels account for most
    of the sum. The third cumulant is that of the mean of n influences, n - 1 times the change when a level is left out.
    """
    n = len(without)
    apart = without.mean(axis=0) - without
    total = (apart**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis = n * (apart**4).sum(axis=0) / total**2 * (n + 1) / (n - 1)
        df = 2 * n / (kurtosis - 1)
    third = (n - 1) ** 2 / (n * max(n - 2, 1)) * (apart**3).sum(axis=0)
    return Moments((n - 1) / n * total, np.where(np.isfinite(df), np.clip(df, 1.0, n - 1.0), n - 1.0), third)


def correlations(x: Floats, y: Floats, clusters: Sequence[Codes] = (), noise: Floats | None = None) -> Correlations:
    """Correlation of the clusters' means of each column of x (n, k) with the clusters' covariate y (G,).

    ``clusters[0]`` (n,), codes 0…G-1, are the clusters that are correlated. The levels of further factors are left out
    one by one as well; a factor that does not vary, or only subdivides the clusters, is ignored. Without clusters, each
    item is its own cluster. ``noise`` (n, k): the variances of the items through their draws, for the correlations
    without these.
    """
    own = clusters[0] if clusters else np.arange(len(y))
    factors = crossed_factors(clusters) if len(clusters) > 1 else []
    further = [codes for codes in factors if not np.array_equal(codes, own)]
    of_draws = noise if noise is not None and noise.any() else None
    columns = [_Column(x[:, k], own, None if of_draws is None else of_draws[:, k]) for k in range(x.shape[1])]
    crossed = [_Crossing(own, codes, y) for codes in further]
    value = np.array([correlation(column.means, y, column.noise) for column in columns])
    without = np.column_stack([leave_one_out_correlations(column.means, y, column.noise) for column in columns])
    nested = bool(further) and len(further) == len(factors)
    # With more crossed factors, the part they share is counted in each of them, and V is too large.
    one = crossed[0] if len(crossed) == 1 and not nested else None
    cells = [one.cells(column, r) for column, r in zip(columns, value, strict=True)] if one else []
    return Correlations(
        value,
        without,
        tuple(np.column_stack([each.without_level(column) for column in columns]) for each in crossed),
        np.column_stack(cells or [np.zeros(0)] * len(value)),
        one.df if one else 0,
        nested,
        of_draws is not None,
    )


class _Column:
    """Items (n,), the means (G,) of their clusters, and the variances of both through draws; None if not drawn."""

    def __init__(self, items: Floats, own: Codes, item_noise: Floats | None) -> None:
        self.items, self.item_noise = items, item_noise
        self.means = cluster_means(items[:, None], own)[:, 0]
        n = np.bincount(own)
        self.noise = None if item_noise is None else np.bincount(own, item_noise) / n**2


class _Crossing:
    """The cross table of clusters (G,) and the levels (T,) of a further factor."""

    def __init__(self, own: Codes, codes: Codes, covariate: Floats) -> None:
        self.covariate = covariate
        self.shape = len(covariate), int(codes.max()) + 1
        self.cell = own * self.shape[1] + codes
        self.count = self._table(None)  # (G, T)
        self.left = self.count.sum(axis=1, keepdims=True) - self.count
        occupied = int((self.count > 0).sum())
        # The factors' effects: a mean for each cluster; a mean and slopes on covariate and means for each level.
        self.df = max(0, occupied - self.shape[0] - 3 * (self.shape[1] - 1))
        self.correction = occupied / self.df if self.df else 0.0

    def _table(self, weights: Floats | None) -> Floats:
        sums = np.bincount(self.cell, weights, minlength=self.shape[0] * self.shape[1])
        return sums.reshape(self.shape).astype(np.float64, copy=False)

    def without_level(self, x: _Column) -> Floats:
        """Correlation of the clusters' means without each level's items (T,), NaN if nothing varies.

        Clusters with items of that level only are left out with it.
        """
        sums = self._table(x.items)
        there = self.left > 0
        means = (sums.sum(axis=1, keepdims=True) - sums) / np.maximum(self.left, 1)
        if x.item_noise is not None:
            of_draws = self._table(x.item_noise)
            noise = (of_draws.sum(axis=1, keepdims=True) - of_draws) / np.maximum(self.left, 1) ** 2
            return np.array(
                [correlation(mean[some], self.covariate[some], of_means[some]) if some.sum() > 2 else np.nan
                 for mean, of_means, some in zip(means.T, noise.T, there.T, strict=True)]
            )  # fmt: skip
        if not there.all():
            return np.array(
                [correlation(mean[some], self.covariate[some]) if some.sum() > 2 else np.nan
                 for mean, some in zip(means.T, there.T, strict=True)]
            )  # fmt: skip
        of_x, of_y = means - means.mean(axis=0), self.covariate - self.covariate.mean()
        with np.errstate(divide="ignore", invalid="ignore"):
            r = _perfect(of_y @ of_x / np.sqrt((of_x**2).sum(axis=0) * (of_y @ of_y)))
        return np.where(is_constant(means, means.mean(axis=0)), np.nan, r)

    def cells(self, x: _Column, r: float) -> Floats:
        """Each cell's contribution to r, the correlation of the clusters' means, net of the factors' effects.

        By the derivative of r with respect to the clusters' means. A level's effect is a mean and two slopes, on the
        covariate and on the clusters' means, which include the effects that would change r.
        """
        sums, of_cluster = self._table(x.items), self.count.sum(axis=1, keepdims=True)
        means = sums.sum(axis=1, keepdims=True) / of_cluster
        of_x, of_y = means[:, 0] - means.mean(), self.covariate - self.covariate.mean()
        square_x = of_x @ of_x - (0.0 if x.noise is None else _squares_of(x.noise))
        square_y = of_y @ of_y
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = of_y / np.sqrt(square_x * square_y) - r * of_x / square_x
        effects, _ = np.linalg.qr(np.column_stack([np.ones(len(of_x)), of_y, of_x]))
        apart = np.where(self.count > 0, sums / np.maximum(self.count, 1) - means, 0.0)
        apart -= effects @ (effects.T @ apart)
        return np.asarray(np.sqrt(self.correction) * (slope[:, None] * self.count / of_cluster * apart).ravel())


def correlation_interval(
    x: Floats, y: Floats, confidence: float, clusters: Sequence[Codes] = (), noise: Floats | None = None
) -> tuple[float, float]:
    """Interval of the correlation of the clusters' means of x (n,) with their covariate y (G,): see `correlations`.

    NaN with fewer than four clusters, if one of the two does not vary, or if the fit is perfect. ``noise`` (n,): the
    variances of the items through their draws.
    """
    found = correlations(x[:, None], y, clusters, None if noise is None else noise[:, None])
    low, high = (float(end[0]) for end in found.interval(confidence))
    if found.is_corrected and not (is_mostly_true(x, y, clusters, noise) and np.isfinite(low + high)):
        low, high = correlation_interval(x, y, confidence, clusters)
        return (low if low > 0 else -1.0), (high if high < 0 else 1.0)  # NaN: nothing is known
    return low, high


def known_correlation(x: Floats, y: Floats, clusters: Sequence[Codes], noise: Floats | None = None) -> float:
    """The correlation of the clusters' means of x (n,) with their covariate y (G,); NaN if draws leave it unknown."""
    if not is_mostly_true(x, y, clusters, noise):
        return np.nan
    return float(
        np.clip(correlations(x[:, None], y, clusters[:1], None if noise is None else noise[:, None]).value[0], -1, 1)
    )


def is_mostly_true(x: Floats, y: Floats, clusters: Sequence[Codes], noise: Floats | None) -> bool:
    """Whether the means' variation is known to be more than that of their draws."""
    column = _Column(x, clusters[0] if clusters else np.arange(len(y)), noise)
    squares = float(((column.means - column.means.mean()) ** 2).sum())
    return column.noise is None or _squares_of(column.noise) <= _MOST_DRAWN * squares


def extreme_items(low: Floats, high: Floats, y: Floats, codes: Codes, sign: int) -> tuple[float, Floats]:
    """The bound of `extreme_correlation` for clustered items with bounds (n,), and the items (n,) that attain it."""
    bounds = np.column_stack([low, high])
    means = cluster_means(bounds, codes)
    bound, x = extreme_correlation(means[:, 0], means[:, 1], y, sign)
    width = means[:, 1] - means[:, 0]
    share = np.divide(x - means[:, 0], width, out=np.zeros_like(width), where=width > 0)
    return bound, low + share[codes] * (high - low)


def extreme_correlation(low: Floats, high: Floats, y: Floats, sign: int) -> tuple[float, Floats]:
    """The largest (sign +1) or smallest (-1) correlation that x within [low, high] can have with y.

    Returns that bound and the x (G,) that attains it. Among the x whose covariance has the desired sign, the
    correlation is a positive linear function divided by a convex one, hence pseudo-concave: a local optimum is the
    global one. If no x has that sign, the correlation is at most largest covariance / largest norm, a valid bound that
    may not be attained.
    """
    from scipy import optimize  # slow to import, and only bounded correlations need it

    if is_constant(y, y.mean()):
        return np.nan, low
    direction = sign * (y - y.mean())
    direction /= np.linalg.norm(direction)  # the solver's tolerances are absolute
    farthest = np.where(direction > 0, high, low)
    covariance = float(direction @ farthest)
    if covariance <= 0:
        middle = (low + high).mean() / 2
        norm = np.sqrt((np.maximum(np.abs(low - middle), np.abs(high - middle)) ** 2).sum())
        bound = covariance / norm if norm > 0 else 0.0
        return float(sign * max(bound, -1.0)), farthest

    def negative(x: Floats) -> tuple[float, Floats]:
        centred = x - x.mean()
        norm = np.linalg.norm(centred)
        if norm < 1e-12:
            return 0.0, -direction
        dot = direction @ centred
        return float(-dot / norm), -direction / norm + dot * centred / norm**3

    scale = float((high - low).max()) or 1.0  # rescaled to unit boxes, so that the solver's step size suits any scale
    found = optimize.minimize(
        negative,
        farthest / scale,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(low / scale, high / scale, strict=True)),
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 2000},
    )
    x = np.asarray(found.x) * scale
    return correlation(x, y), x

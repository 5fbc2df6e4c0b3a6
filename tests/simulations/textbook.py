"""Textbook intervals to compare the project's with: written from the references alone, for many samples at once.

Each takes answers (samples, occupations, templates) and returns ends (samples,) of an interval at ``confidence``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]
Interval = tuple[Floats, Floats]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_DRAWS = 500


class Crossed(NamedTuple):
    """Mean, its variance and degrees of freedom, and the three components, each (samples,)."""

    mean: Floats
    variance: Floats
    df: Floats
    components: tuple[Floats, Floats, Floats]
    squares: tuple[Floats, Floats, Floats]


def crossed(y: Floats) -> Crossed:
    """Crossed random effects by the analysis of variance, Satterthwaite's degrees of freedom (Searle, Casella,
    McCulloch 1992, ch. 4). With one template the occupations are the sample."""
    _, n, m = y.shape
    mean = y.mean(axis=(1, 2))
    rows, columns = y.mean(axis=2), y.mean(axis=1)
    of_rows = m * rows.var(axis=1, ddof=1)
    if m == 1:
        zero = np.zeros_like(mean)
        return Crossed(mean, of_rows / n, np.full_like(mean, n - 1.0), (of_rows, zero, zero), (of_rows, zero, zero))
    of_columns = n * columns.var(axis=1, ddof=1)
    residual = y - rows[:, :, None] - columns[:, None, :] + mean[:, None, None]
    rest = np.square(residual).sum(axis=(1, 2)) / ((n - 1) * (m - 1))
    total = np.maximum(of_rows + of_columns - rest, np.maximum(of_rows, of_columns))
    uncertain = of_rows**2 / (n - 1) + of_columns**2 / (m - 1) + rest**2 / ((n - 1) * (m - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        df = np.clip(total**2 / uncertain, min(n, m) - 1, n * m - 1)
    df = np.where(np.isfinite(df), df, min(n, m) - 1)
    components = (np.maximum(of_rows - rest, 0) / m, np.maximum(of_columns - rest, 0) / n, rest)
    return Crossed(mean, total / (n * m), df, components, (of_rows, of_columns, rest))


def _t(df: Floats, confidence: float) -> Floats:
    return np.asarray(special.stdtrit(df, (1 + confidence) / 2))


def mixed_model(y: Floats, confidence: float) -> Interval:
    """The crossed model on the scale of the answers, Student's t."""
    found = crossed(y)
    half = _t(found.df, confidence) * np.sqrt(found.variance)
    return found.mean - half, found.mean + half


def logit_of_mean(y: Floats, confidence: float) -> Interval:
    """The same for the log-odds of the mean, by the delta method (as survey software does for shares)."""
    found = crossed(y)
    mean = np.clip(found.mean, 1e-6, 1 - 1e-6)
    half = _t(found.df, confidence) * np.sqrt(found.variance) / (mean * (1 - mean))
    return special.expit(special.logit(mean) - half), special.expit(special.logit(mean) + half)


def _mean_of_logits(middle: Floats, variance: Floats) -> Floats:
    """Mean probability where log-odds are normal (…)."""
    at = middle[..., None] + np.sqrt(variance)[..., None] * _NODES
    return np.asarray(special.expit(at) @ _WEIGHTS / _WEIGHTS.sum())


def cox_on_logits(y: Floats, confidence: float) -> Interval:
    """Modified Cox (Zhou, Gao 1997) for the crossed model of the log-odds: the mean probability by the delta method."""
    logits = special.logit(np.clip(y, 1e-9, 1 - 1e-9))
    found = crossed(logits)
    _, n, m = y.shape
    squares, degrees = found.squares, (n - 1, max(m - 1, 1), max((n - 1) * (m - 1), 1))
    spread = sum(found.components)
    of_squares = (1 / m, 1 / n, 1 - 1 / m - 1 / n)
    uncertain = sum(
        (w * square) ** 2 * 2 / (df + 2) for w, square, df in zip(of_squares, squares, degrees, strict=True)
    )
    mean = np.clip(_mean_of_logits(found.mean, spread), 1e-12, 1 - 1e-12)
    step = 1e-4
    by_middle = (_mean_of_logits(found.mean + step, spread) - mean) / step
    by_spread = (_mean_of_logits(found.mean, spread + step) - mean) / step
    error = np.sqrt(by_middle**2 * found.variance + by_spread**2 * uncertain) / (mean * (1 - mean))
    half = _t(found.df, confidence) * error
    return special.expit(special.logit(mean) - half), special.expit(special.logit(mean) + half)


def generalised(y: Floats, confidence: float) -> Interval:
    """Generalised confidence interval of the crossed model of the log-odds (Krishnamoorthy, Mathew 2009, ch. 11)."""
    logits = special.logit(np.clip(y, 1e-9, 1 - 1e-9))
    _, n, m = y.shape
    found, rng = crossed(logits), np.random.default_rng(7)
    shape = (_DRAWS,)
    of_rows, of_columns, rest = (square[:, None] for square in found.squares)
    of_rows = of_rows * (n - 1) / rng.chisquare(n - 1, shape)
    if m > 1:
        of_columns = of_columns * (m - 1) / rng.chisquare(m - 1, shape)
        rest = rest * ((n - 1) * (m - 1)) / rng.chisquare((n - 1) * (m - 1), shape)
    spread = np.maximum(of_rows - rest, 0) / m + np.maximum(of_columns - rest, 0) / n + rest
    variance = np.maximum(of_rows + of_columns - rest, np.maximum(of_rows, of_columns)) / (n * m)
    middle = found.mean[:, None] + np.sqrt(variance) * rng.standard_normal(shape)
    ends = [np.empty(len(y)), np.empty(len(y))]
    for part in np.array_split(np.arange(len(y)), max(len(y) // 200, 1)):
        means = _mean_of_logits(middle[part], spread[part])
        ends[0][part], ends[1][part] = np.quantile(means, ((1 - confidence) / 2, (1 + confidence) / 2), axis=1)
    return ends[0], ends[1]


def _effective(y: Floats) -> tuple[Floats, Floats, Floats]:
    """Share, effective sample size (that of all answers where nothing varies), degrees of freedom."""
    found = crossed(y)
    n = float(y[0].size)
    with np.errstate(invalid="ignore", divide="ignore"):
        size = found.mean * (1 - found.mean) / found.variance
    return found.mean, np.where(np.isfinite(size), size, n), found.df


def wilson(y: Floats, confidence: float) -> Interval:
    """Wilson's interval with the effective sample size and t in place of z (Dean, Pagano 2015)."""
    p, n, df = _effective(y)
    t = _t(df, confidence)
    middle, half = (p + t**2 / (2 * n)), t * np.sqrt(p * (1 - p) / n + t**2 / (4 * n**2))
    return (middle - half) / (1 + t**2 / n), (middle + half) / (1 + t**2 / n)


def korn_graubard(y: Floats, confidence: float) -> Interval:
    """Clopper and Pearson's interval with the effective sample size, adjusted for degrees of freedom (Korn, Graubard
    1998)."""
    p, n, df = _effective(y)
    full = float(y[0].size)
    n = np.minimum(n * (stats.t.ppf((1 + confidence) / 2, full - 1) / _t(df, confidence)) ** 2, full)
    x, tail = p * n, (1 - confidence) / 2
    low = np.where(x > 0, special.betaincinv(np.maximum(x, 1e-12), n - x + 1, tail), 0.0)
    high = np.where(x < n, special.betaincinv(x + 1, np.maximum(n - x, 1e-12), 1 - tail), 1.0)
    return low, high


def _groups(groups: list[Floats]) -> tuple[Floats, list[Floats], list[Floats], Floats]:
    """The gap, the variances of the two groups' occupations, their parts, and the templates' net variance."""
    gap = groups[0].mean(axis=(1, 2)) - groups[1].mean(axis=(1, 2))
    rows = [group.mean(axis=2).var(axis=1, ddof=1) for group in groups]
    parts = [row / group.shape[1] for row, group in zip(rows, groups, strict=True)]
    m = groups[0].shape[2]
    if m == 1:
        return gap, rows, parts, np.zeros_like(gap)
    between = (groups[0].mean(axis=1) - groups[1].mean(axis=1)).var(axis=1, ddof=1) / m
    rest = sum(
        np.square(
            g - g.mean(axis=2, keepdims=True) - g.mean(axis=1, keepdims=True) + g.mean(axis=(1, 2))[:, None, None]
        ).sum(axis=(1, 2))
        / ((g.shape[1] - 1) * (m - 1) * g.shape[1] * m)
        for g in groups
    )
    return gap, rows, parts, np.maximum(between - rest, 0)


def welch(groups: list[Floats], confidence: float) -> Interval:
    """Welch's t (1947) of the occupations' means, with what templates add."""
    gap, _, parts, of_templates = _groups(groups)
    m = groups[0].shape[2]
    variance = sum(parts) + of_templates
    uncertain = sum(part**2 / (g.shape[1] - 1) for part, g in zip(parts, groups, strict=True))
    df = variance**2 / (uncertain + of_templates**2 / max(m - 1, 1))
    half = _t(df, confidence) * np.sqrt(variance)
    return gap - half, gap + half


def common_variance(groups: list[Floats], confidence: float) -> Interval:
    """A mixed model in which occupations vary alike in both groups."""
    gap, rows, _, of_templates = _groups(groups)
    sizes, m = [group.shape[1] for group in groups], groups[0].shape[2]
    df_rows = sum(sizes) - 2
    pooled = sum((n - 1) * row for n, row in zip(sizes, rows, strict=True)) / df_rows * sum(1 / n for n in sizes)
    variance = pooled + of_templates
    df = variance**2 / (pooled**2 / df_rows + of_templates**2 / max(m - 1, 1))
    half = _t(df, confidence) * np.sqrt(variance)
    return gap - half, gap + half


OfMeans = Callable[[Floats, float], Interval]
OfGaps = Callable[[list[Floats], float], Interval]

FOR_PROBABILITIES: dict[str, OfMeans] = {
    "mixed model": mixed_model,
    "logit of the mean": logit_of_mean,
    "Cox on log-odds": cox_on_logits,
    "generalised, log-odds": generalised,
}
FOR_SHARES: dict[str, OfMeans] = {
    "mixed model": mixed_model,
    "logit of the mean": logit_of_mean,
    "Wilson": wilson,
    "Korn-Graubard": korn_graubard,
}
FOR_GAPS: dict[str, OfGaps] = {"Welch": welch, "mixed model": common_variance}

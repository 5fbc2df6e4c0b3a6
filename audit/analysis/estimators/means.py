"""Means of items that are crossed: occupations × templates.

Items that share an occupation, or a template, are alike, and the levels of both are a sample of a larger population.
With ``V_k`` the variance of the mean clustered by factor k alone, and ``V_c`` that of the cells alone,

    V = Σ_k V_k - (K - 1) V_c

(Cameron, Gelbach & Miller 2011, J. Bus. Econ. Stat. 29(2), eq. 2.11), with V_c from the residuals of an additive fit:
in a balanced design the unbiased ANOVA estimate of the crossed random-effects model (Searle, Casella & McCulloch 1992,
Variance Components, ch. 4). Student's t has Satterthwaite's (1946, Biometrics Bull. 2(6)) degrees of freedom for that
sum; two to four levels have those of the levels alone, runs for their part. V is never below the largest V_k.

Of few of all combinations an additive fit leaves nothing, and each V_k holds the other factor's effects as well: V_c is
then from the residuals as they are, as in eq. 2.11 itself, and V_k has the degrees of freedom of independent items.

Strata (groups of occupations) are fixed: residuals are taken from the stratum's mean. A factor nested in them adds each
stratum's own V, with Welch's degrees of freedom (1947, Biometrika 34); or the V of one variance common to all, where
that is wider: the few levels of a small stratum may be alike by chance. A factor that crosses the strata is summed
over them first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

from audit.analysis.estimators.design import FEW_LEVELS, Cells, Design, LevelWeights, combined, level_sums
from audit.analysis.estimators.estimate import Estimate, Floats, Student, Wider, t_quantile, unknown

#: With fewer degrees of freedom V_c is not subtracted: t of so few is wider than a V that is too large.
_FEWEST_OF_CELLS = 4


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a mean's error.

    Attributes
    ----------
    variance, df, third : float
        Its part in the mean's variance, with degrees of freedom, and in the third cumulant.
    spread : float
        The sum of its levels' squared weights in the mean: the variance between levels is ``variance / spread``.
    common : (float, float)
        Variance and degrees of freedom if the levels of all strata vary alike.
    """

    variance: float
    df: float
    third: float
    spread: float
    common: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Sources:
    """A mean and the sources of its error: sampled factors, and the cells alone."""

    mean: float
    factors: Mapping[str, Source]
    cells: Source

    @property
    def third(self) -> float:
        """The third cumulant of the mean."""
        return sum([of.third for of in self.factors.values()]) - (len(self.factors) - 1) * self.cells.third

    @property
    def shared(self) -> float:
        """The part of the cells that is counted once too often for each further factor."""
        return (len(self.factors) - 1) * self.cells.variance if self.cells.df >= _FEWEST_OF_CELLS else 0.0

    def total(self, *, common: bool = False) -> tuple[float, float]:
        """The mean's variance and its degrees of freedom. ``common``: with one variance common to all strata."""
        parts = [of.common if common else (of.variance, of.df) for of in self.factors.values()]
        (variances, dfs), shared = zip(*parts, strict=True), self.shared
        variance = sum(variances) - shared
        if not variance > 0:
            return max(variances), min(dfs)
        uncertain = sum([part**2 / df for part, df in parts])
        uncertain += shared**2 / self.cells.df if shared else 0.0
        variance = max(variance, *variances)
        # Never fewer than the factor with fewest has by itself, as what is subtracted would make of it.
        df = max(variance**2 / uncertain, min(dfs))
        # Two to four levels may be alike by chance: their part keeps its own t (Banerjee 1960, Sankhyā 22).
        few = [(part, own) for part, own in parts if own < min(df, FEW_LEVELS - 1.5)]
        square = t_quantile(df, 0.975) ** 2
        square += sum(part / variance * (t_quantile(own, 0.975) ** 2 - square) for part, own in few)
        return variance, float(special.stdtridf(0.975, math.sqrt(square))) if few else df


def clustered_mean(values: Floats, design: Design) -> Estimate:
    """The mean of values (n,) with the error that its clusters make.

    Without clusters items are independent. The error is unknown with fewer than two clusters or items.
    """
    found = sources(values, design)
    if found is None:
        return unknown(weighted_mean(values, design))
    if design.membership is not None:
        return _with_memberships(found, values, design)
    one = student(found.mean, *found.total(), found.third, design)
    if len(design.weights) == 1:
        return one
    other = student(found.mean, *found.total(common=True), found.third, design)
    return one if one == other else Wider(one, other)


def student(mean: float, variance: float, df: float, third: float, design: Design) -> Student:
    """The estimate with these degrees of freedom, or the most that the design allows, and this third cumulant."""
    se = math.sqrt(variance)
    return Student(mean, se, min(df, design.most_df), third / se**3 if se > 0 else 0.0)


def weighted_mean(values: Floats, design: Design) -> float:
    """The mean of values (n,), each stratum with its weight."""
    if not values.size:
        return math.nan
    return float(design.weights @ _strata_means(values, design))


def _strata_means(values: Floats, design: Design) -> Floats:
    if len(design.weights) == 1:
        return np.array([values.sum() / len(values)])
    return np.asarray(np.bincount(design.strata, values) / np.bincount(design.strata))


def sources(values: Floats, design: Design) -> Sources | None:
    """The sources of the error of the mean of values (n,), each item one without clusters; None if it is unknown."""
    if not design.shows_an_error:
        return None
    weights = design.level_weights
    means = _strata_means(values, design)
    residual = values - (means[design.strata] if len(means) > 1 else means[0])
    if residual.max() - residual.min() <= 1e-13 * max(1.0, float(np.abs(means).max())):
        residual = np.zeros_like(residual)  # constant but for rounding
    weighted, mean = residual * design.item_weights, float(design.weights @ means)
    if not design.crossed:
        return Sources(mean, {"item": _of_levels(weighted, weights["item"])}, _NOTHING)
    found = {of: _of_levels(level_sums(codes, weighted), weights[of]) for of, codes in design.crossed.items()}
    return Sources(mean, found, _of_cells(residual, design.cells))


_NOTHING = Source(0.0, 0.0, 0.0, 0.0, (0.0, 0.0))


def _of_levels(added: Floats, of: LevelWeights) -> Source:
    """The error from levels (G,) with these weighted sums of residuals."""
    squares = added * added
    if len(of.df) == 1:
        variance, df = float(of.to_variance[0] * squares.sum()), float(of.df[0])
        third = float(of.to_third[0] * (squares @ added))
        return Source(variance, df, third, float(of.spread[0]), (variance, df))
    of_strata = np.bincount(of.strata, squares)
    own = of.to_variance * of_strata
    third = float(of.to_third @ np.bincount(of.strata, squares * added))
    variance, uncertain = float(own.sum()), float((own**2 / of.df).sum())
    free, spread = float(of.df.sum()), float(of.spread.sum())
    common = spread * float(of.df @ (of.to_between * of_strata)) / free
    return Source(variance, variance**2 / uncertain if uncertain > 0 else free, third, spread, (common, free))


def _of_cells(residual: Floats, cells: Cells) -> Source:
    """The error from the cells alone, without the factors' effects unless sparse; df 0 if nothing is left."""
    counts = cells.counts
    left = np.bincount(cells.of_item, residual) / counts if cells.number < len(residual) else residual[cells.first]
    if cells.are_sparse:
        return _of_levels(cells.weights * left, LevelWeights(np.arange(cells.number), cells.weights, cells.strata))
    most, free = float(np.abs(left).max(initial=0.0)), cells.free
    for _ in range(200):  # alternating projections
        moved = 0.0
        for of, items in cells.in_strata:
            effect = np.bincount(of, left * counts) / items
            left = left - effect[of]
            moved = max(moved, float(np.abs(effect).max()))
        if moved <= 1e-9 * most:
            break
    squares = np.bincount(cells.strata, (cells.weights * left) ** 2)
    own = np.where(free > 0, np.bincount(cells.strata) / np.maximum(free, 1) * squares, 0.0)
    variance, uncertain = float(own.sum()), float((own**2 / np.maximum(free, 1)).sum())
    df = variance**2 / uncertain if uncertain > 0 else float(free.sum())
    return Source(variance, df, 0.0, float((cells.weights**2).sum()), (variance, df))


def _with_memberships(found: Sources, values: Floats, design: Design) -> Estimate:
    """The mean of items that each belong to several levels of one more factor: lists of occupations.

    The levels' part is that of the jackknife that leaves out one level and all items that belong to it (Efron & Stein
    1981, Ann. Stat. 9(3)): of items that belong to m of G levels, leaving out level o moves the mean by

        ψ(o) = Σ_i w_i · (z_io - m_i/G) · (G - 1)/(G - m_i) · (y_i - mean of the items with as many levels).

    G/(G - 1) Σ ψ² holds the items' own noise, many times its part in the mean, so that their difference is known badly.
    The interval is the generalised one (Weerahandi 1993, J. Am. Stat. Assoc. 88) of

        V = V_items + max(V_jackknife · (G - 1)/χ² - noise, 0),

    as that of a Student's t of G - 1 degrees of freedom that reaches as far at 95 %.
    """
    assert design.membership is not None
    belongs = design.membership[1]
    levels, own = belongs.shape[1], belongs.sum(axis=1)
    informative = (own > 0) & (own < levels)
    if levels < 3 or not informative.any():
        return unknown(found.mean)
    part = np.where(informative, (own > 0).sum() / informative.sum() / len(values), 0.0)
    part = part * (levels - 1) / np.where(informative, levels - own, 1.0)
    weight = part[:, None] * (belongs - own[:, None] / levels)
    size = np.unique(own, return_inverse=True)[1]
    residual = values - (np.bincount(size, values) / np.bincount(size))[size]
    moved = weight.T @ residual
    factors = list(design.crossed.values())
    unit = combined(factors) if factors else np.arange(len(values))
    of_units = np.zeros((int(unit.max()) + 1, levels))
    np.add.at(of_units, unit, weight * residual[:, None])
    unbiased = levels / (levels - 1)
    jackknife, noise = unbiased * float((moved**2).sum()), unbiased * float((of_units**2).sum())
    items, _ = found.total()
    reach = _reach(items, jackknife, noise, levels - 1)
    se = max(reach / float(special.stdtrit(levels - 1, 0.975)), math.sqrt(items))
    return student(found.mean, se**2, levels - 1.0, found.third, design)


def _reach(items: float, jackknife: float, noise: float, df: int) -> float:
    """The 97.5 % quantile of a normal whose variance is items + max(jackknife · df/χ² - noise, 0)."""
    scale = df / special.chdtri(df, (np.arange(200) + 0.5) / 200)
    deviations = np.sqrt(items + np.maximum(jackknife * scale - noise, 0.0))
    low, high = 0.0, float(special.ndtri(0.975) * deviations.max())
    for _ in range(60):
        middle = (low + high) / 2
        short = high > 0 and special.ndtr(middle / np.maximum(deviations, 1e-300)).mean() < 0.975
        low, high = (middle, high) if short else (low, middle)
    return high

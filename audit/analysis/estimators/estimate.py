"""The result of an estimator: values, and how far their errors reach to either side."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

#: With fewer degrees of freedom, t's quantiles explode (10^150 where one cluster holds nearly all items):
#: such an error says nothing.
LEAST_DF = 0.5

#: Beyond it, the exponential is infinite.
_LARGEST_EXPONENT = 709.0

#: The number of identical items needed to count as certain.
_FEW_ALIKE = 5

#: The number of identical levels needed where nothing bounds the others: as few as that may lack a seventh of all.
_MANY_ALIKE = 25

#: Differences and errors below this are the rounding of double precision sums of values near 1.
ROUNDING = 1e-12


class Reach(NamedTuple):
    """How far an error reaches to one side: at a quantile t of Student's t, ``se`` · (exp(b · t) − 1) / b, b the bend.

    Without bend that is ``se`` · t, the classic interval. A bend above 0 means a long tail: on a log scale the interval
    is again the classic one.
    """

    se: Floats
    bend: Floats

    def at(self, t: Floats) -> Floats:
        """The distance (k,) at a quantile."""
        if not self.bend.any():
            return np.asarray(self.se * t)
        bent = self.bend * t
        with np.errstate(over="ignore"):  # at the confidence of 1 - 1e-15 the interval is as wide as can be
            return np.asarray(self.se * t * np.where(bent == 0, 1.0, np.expm1(bent) / np.where(bent == 0, 1.0, bent)))

    def bent(self, bend: Floats, t: Floats) -> Reach:
        """The reach with at least that bend (k,), as far as before at a quantile."""
        bend = np.maximum(self.bend, bend)
        return Reach(self.at(t) / Reach(np.ones_like(t), bend).at(t), bend)

    def part(self, columns: slice) -> Reach:
        """The reach of some of the columns."""
        return Reach(self.se[columns], self.bend[columns])

    def quantile(self, distance: Floats) -> Floats:
        """The quantile at a distance (k,); at negative distances, beyond the estimate, the error is not bent.

        A constant column (``se`` 0) is certain: ±inf, or 0 at distance 0. Numbers below `ROUNDING` are rounding errors,
        and count as 0.
        """
        distance, se = (np.where(np.abs(x) < ROUNDING, 0.0, x) for x in (distance, self.se))
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where((se == 0) & (distance == 0), 0.0, distance / se)
            if not self.bend.any():
                return np.asarray(t)
            bent = self.bend * t
            return np.where(bent > 0, np.log1p(bent) / np.where(self.bend > 0, self.bend, 1.0), t)


#: Beyond the quantile of a 95 % interval an error has its far tail.
_FAR = 0.975


def tail_quantile(df: Floats | float, far_df: Floats | float | None, share: float) -> Floats:
    """The quantile (k,) of an error that is Student's of ``df`` up to 95 %, and has the tail of ``far_df`` beyond it.

    ``share`` is at least one half. With 95 % in common the second is scaled to the first there.
    """
    near = np.asarray(special.stdtrit(df, share), dtype=np.float64)
    if far_df is None or share <= _FAR:
        return near
    scale = special.stdtrit(df, _FAR) / special.stdtrit(far_df, _FAR)
    return np.asarray(np.maximum(near, scale * special.stdtrit(far_df, share)))


def tail_probability(df: Floats, far_df: Floats | None, quantile: Floats) -> Floats:
    """The share (k,) of such an error beyond a quantile; the inverse of `tail_quantile`."""
    near = special.stdtr(df, -quantile)
    if far_df is None:
        return np.asarray(near)
    edge = special.stdtrit(df, _FAR)
    far = special.stdtr(far_df, -quantile * special.stdtrit(far_df, _FAR) / edge)
    return np.asarray(np.where(quantile > edge, np.maximum(near, far), near))


def distance_at(se: float, bend: float, t: float) -> float:
    """`Reach.at` for single numbers: thousands of decisions use it, and arrays of one element are ten times slower."""
    bent = bend * t
    if bent == 0:
        return se * t
    return se * t * ((math.expm1(bent) if bent < _LARGEST_EXPONENT else math.inf) / bent)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimates of several columns over the same items, with their errors.

    Attributes
    ----------
    value, se, df : array (k,)
        Estimate, standard error and degrees of freedom of each column. ``se`` is NaN with fewer
        than two clusters, and with fewer than `LEAST_DF` degrees of freedom: interval and p are unknown then.
    n_items : int
        Items behind each mean.
    n_clusters : int
        Levels of the cluster factor that has fewest, among those that vary, in the stratum that has fewest;
        items where they are independent.
    third : array (k,) or None
        Third cumulant of the estimate's error; None if not computed.
    below, above : Reach or None
        How far the error reaches to either side; None: as far as ``se`` to both.
    sampled : pair of Reach, or None
        How far it reaches to either side for sampling error alone, without kinds of levels that were not drawn; None:
        as far as ``below`` and ``above``.
    far_df : array (k,) or None
        Degrees of freedom of the tails beyond the 95 % interval, at most ``df`` (`tail_quantile`); None: ``df``.
    """

    value: Floats
    se: Floats
    df: Floats
    n_items: int
    n_clusters: int
    third: Floats | None = None
    below: Reach | None = None
    above: Reach | None = None
    sampled: tuple[Reach, Reach] | None = None
    far_df: Floats | None = None

    def __post_init__(self) -> None:
        if not (self.df >= LEAST_DF).all():
            object.__setattr__(self, "se", np.where(self.df >= LEAST_DF, self.se, np.nan))
        unknown = np.isnan(self.se)
        for side in ("below", "above"):
            reach = getattr(self, side) or Reach(self.se, np.zeros_like(self.se))
            if unknown.any():
                reach = reach._replace(se=np.where(unknown, np.nan, reach.se))
            object.__setattr__(self, side, reach)

    def interval(self, confidence: float) -> tuple[Floats, Floats]:
        """Two-sided confidence interval of each column: (lows, highs), NaN where unknown."""
        return self._interval(self.reach, confidence)

    def interval_of_sample(self, confidence: float) -> tuple[Floats, Floats]:
        """The same for sampling error alone."""
        return self._interval(self.sampled or self.reach, confidence)

    def _interval(self, reach: tuple[Reach, Reach], confidence: float) -> tuple[Floats, Floats]:
        t = np.where(np.isnan(self.se), np.nan, tail_quantile(self.df, self.far_df, (1 + confidence) / 2))
        below, above = (side.at(t) for side in reach)
        return np.asarray(self.value - below), np.asarray(self.value + above)

    @property
    def is_of_unseen(self) -> NDArray[np.bool_]:
        """Whether each column's interval reaches farther than sampling error, for kinds that were not drawn (k,)."""
        if self.sampled is None:
            return np.zeros(self.value.shape, dtype=np.bool_)
        wider = [mine.se > alone.se for mine, alone in zip(self.reach, self.sampled, strict=True)]
        return np.asarray(wider[0] | wider[1])

    def p_two_sided(self, null: float = 0.0) -> Floats:
        """Two-sided p-value of each column for the hypothesis that it is ``null``."""
        return np.asarray(np.minimum(1.0, 2 * np.minimum(self.p_above(null), self.p_below(null))))

    def p_above(self, null: float) -> Floats:
        """One-sided p-value of the hypothesis that it is at most ``null``."""
        return tail_probability(self.df, self.far_df, self.reach[0].quantile(self.value - null))

    def p_below(self, null: float) -> Floats:
        """One-sided p-value of the hypothesis that it is at least ``null``."""
        return tail_probability(self.df, self.far_df, self.reach[1].quantile(null - self.value))

    @property
    def t(self) -> Floats:
        """Student's quantile (k,) of a 95 % interval, at which the methods of special kinds are matched."""
        return np.asarray(special.stdtrit(self.df, 0.975), dtype=np.float64)

    def widened(self, below: Floats, above: Floats) -> Estimate:
        """The same estimate with a 95 % interval that reaches at least these distances (k,) to either side."""
        t = self.t
        low, high = (
            reach._replace(se=np.maximum(reach.se, distance / Reach(np.ones_like(t), reach.bend).at(t)))
            for reach, distance in zip(self.reach, (below, above), strict=True)
        )
        return replace(self, below=low, above=high)

    def part(self, columns: slice) -> Estimate:
        """The estimate of some of the columns."""
        below, above = (side.part(columns) for side in self.reach)
        third = None if self.third is None else self.third[columns]
        value, se, df = self.value[columns], self.se[columns], self.df[columns]
        sampled = None if self.sampled is None else (self.sampled[0].part(columns), self.sampled[1].part(columns))
        far_df = None if self.far_df is None else self.far_df[columns]
        return Estimate(value, se, df, self.n_items, self.n_clusters, third, below, above, sampled, far_df)

    def where(self, columns: NDArray[np.bool_], other: Estimate) -> Estimate:
        """This estimate with the errors of another in some columns (k,)."""
        below, above = _where(columns, other.reach, self.reach)
        sampled = None
        if self.sampled is not None or other.sampled is not None:
            sampled = _where(columns, other.sampled or other.reach, self.sampled or self.reach)
        return replace(self, below=below, above=above, sampled=sampled)

    @property
    def reach(self) -> tuple[Reach, Reach]:
        """How far the error reaches below and above."""
        assert self.below is not None
        assert self.above is not None
        return self.below, self.above


def _where(columns: NDArray[np.bool_], theirs: tuple[Reach, Reach], own: tuple[Reach, Reach]) -> tuple[Reach, Reach]:
    below, above = (
        Reach(*(np.where(columns, a, b) for a, b in zip(one, other, strict=True)))
        for one, other in zip(theirs, own, strict=True)
    )
    return below, above


def finite(number: float) -> float | None:
    """The number, or None if it is not finite."""
    return float(number) if math.isfinite(number) else None


def is_constant(columns: Floats, mean: Floats | float) -> NDArray[np.bool_]:
    """Whether each column (n, …) with that mean is constant, except for rounding errors."""
    return np.asarray(columns.max(axis=0) - columns.min(axis=0) <= 1e-13 * np.maximum(1.0, np.abs(mean)))


def unknown_where_few_are_alike(estimate: Estimate) -> Estimate:
    """The estimate with an unknown error if fewer than `_FEW_ALIKE` items are all alike: too few to be certain."""
    if estimate.n_items >= _FEW_ALIKE:
        return estimate
    below, above = estimate.reach
    return replace(estimate, se=np.where((below.se == 0) & (above.se == 0), np.nan, estimate.se))


def unknown_where_alike(estimate: Estimate, *, is_change: bool) -> Estimate:
    """The estimate of a quantity without a range with an unknown error where fewer than `_MANY_ALIKE` levels are alike.

    Nothing bounds how far an item of another kind may lie: of four differences in five that are +1, and one that is -4,
    ten are all +1 in one sample of nine. ``is_change``: no change in any item stays certain. Nothing but "alike" is
    claimed of it, and of two models that allows for other kinds by itself (`audit.analysis.comparing.paired`).
    """
    below, above = estimate.reach
    alike = (below.se == 0) & (above.se == 0) & (estimate.n_clusters < _MANY_ALIKE)
    if is_change and estimate.n_items >= _FEW_ALIKE:
        alike &= np.abs(estimate.value) >= ROUNDING
    return replace(estimate, se=np.where(alike, np.nan, estimate.se))

"""A figure's difference between two models, or two runs of one: its value, standard error and missing answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from audit.analysis.comparing.significance import p_of_counts_outside
from audit.analysis.estimators import Estimate, Reach, unseen_share
from audit.analysis.estimators.estimate import LEAST_DF, distance_at, tail_quantile
from suites.base import MeasureSpec


class End(NamedTuple):
    """A difference at one of its identification bounds: value, standard error, degrees of freedom. NaN if unknown.

    ``below`` and ``above`` are the `Reach` to either side as (se, bend), None if ``se`` applies to both; ``se`` is the
    larger of the two. ``far_df`` are the degrees of freedom of the tails (`Estimate.far_df`).
    """

    value: float = math.nan
    se: float = math.nan
    df: float = math.nan
    below: tuple[float, float] | None = None
    above: tuple[float, float] | None = None
    far_df: float | None = None

    def interval(self, confidence: float) -> tuple[float, float]:
        """The two-sided confidence interval; NaN if the standard error is unknown."""
        if not self.df >= LEAST_DF or math.isnan(self.se):
            return math.nan, math.nan
        below, above = self._distances(self.quantile((1 + confidence) / 2))
        return self.value - below, self.value + above

    def quantile(self, share: float) -> float:
        """The quantile of its error in standard errors, as of Student's t."""
        return float(tail_quantile(self.df, self.far_df, share))

    def detected(self, share: float, power: float) -> float:
        """The difference that another sample of this design finds with this power, in a test of this one-sided level.

        The other sample's error is known as badly as this one's, and both may be small or large by chance: of a
        quantile q and a variance s² with ν degrees of freedom, m · s is found where m - q is z(power) standard
        deviations of a normal error, q · s' and m · s together. Its variance is taken as 1 + (q² + m²) / 2ν. Which
        side of the error is longer may be the other way round there, so that the mean (geometric) of both counts.
        """
        q, z = self.quantile(share), float(special.ndtri(power))
        below, above = self._distances(q)
        lost = min(z**2 / (2 * (self.df if self.far_df is None else self.far_df)), 0.9)
        kept = 1 - lost
        steps = (q + math.sqrt(q**2 - kept * (q**2 * kept - z**2))) / kept
        return math.sqrt(below * above) * steps / q

    def _distances(self, quantile: float) -> tuple[float, float]:
        below, above = (distance_at(*(side or (self.se, 0.0)), quantile) for side in (self.below, self.above))
        return below, above

    def p_above(self, null: float) -> float:
        """One-sided p-value of the hypothesis that it is at most ``null``."""
        return float(self._estimate.p_above(null))

    def p_below(self, null: float) -> float:
        """One-sided p-value of the hypothesis that it is at least ``null``."""
        return float(self._estimate.p_below(null))

    @property
    def _estimate(self) -> Estimate:
        below, above = (
            None if side is None else Reach(np.array(side[0]), np.array(side[1])) for side in (self.below, self.above)
        )
        value, se, df = (np.array(number) for number in self[:3])
        far_df = None if self.far_df is None else np.array(self.far_df)
        return Estimate(value, se, df, 0, 0, None, below, above, far_df=far_df)


UNKNOWN = End()


@dataclass(slots=True)
class PairedDifference:
    """A figure of b minus the same figure of a, over the items that both were asked; NaN if unknown.

    Attributes
    ----------
    a, b : int
        Positions of the two among the compared tables.
    n_items : int
        Items that both answered.
    n_missing : int
        Items that one or both did not answer. They enter as bounds, see `audit.analysis.rows.missing`.
    n_missing_in_both : int
        Those of them that neither answered.
    n_unpaired : int
        Items that only one of the two has: they are left out.
    unpaired_weight : float
        The weight that these would have in the figure; their difference may be as large as the range.
    undefined : tuple of int
        As in `audit.results.Comparison.undefined_for`, by position.
    levels : mapping of str to int
        The number of levels of each sampled factor.
    low, high : End
        The difference at its identification bounds, each with its own standard error; equal if every item is exact.
    a_low, a_high : float
        The figure of a alone, over the same items.
    deviation : float
        Standard deviation of the items' differences.
    p : float
        Two-sided p-value for no difference.
    discordant : pair of (int, int), or None
        For yes/no answers: the items with a yes from a only, and from b only, at each of the two bounds.
    complete : PairedDifference or None
        The difference over the items that both answered; None if no answer is missing.
    margin : float
        Differences within ± the margin do not matter.
    largest_change : float
        How far the two can differ on any item; inf if unknown.
    is_of_few : bool
        As in `audit.results.Decided`.
    """

    spec: MeasureSpec
    a: int
    b: int
    test: str
    n_items: int = 0
    n_missing: int = 0
    n_missing_in_both: int = 0
    n_unpaired: int = 0
    unpaired_weight: float = 0.0
    undefined: tuple[int, ...] = ()
    n_clusters: int = 0
    levels: dict[str, int] = field(default_factory=dict)
    weighted_levels: Sequence[tuple[float, int]] = ()
    low: End = UNKNOWN
    high: End = UNKNOWN
    a_low: float = math.nan
    a_high: float = math.nan
    deviation: float = math.nan
    p: float = math.nan
    discordant: tuple[tuple[int, int], tuple[int, int]] | None = None
    complete: PairedDifference | None = None
    margin: float = math.nan
    largest_change: float = math.inf
    is_of_few: bool = False

    @property
    def answered(self) -> PairedDifference:
        """The difference over the items that both answered, which is the one reported as a number."""
        return self if self.complete is None else self.complete

    @property
    def exact(self) -> bool:
        """Whether the difference itself is known, rather than only bounds."""
        return self.low.value == self.high.value

    @property
    def is_identical(self) -> bool:
        """Whether both gave the same answers throughout, and no answer is missing."""
        return self.exact and self.low.value == 0 and self.complete is None and not self.deviation > 0

    @property
    def of_pairs(self) -> PairedDifference:
        """The difference as it would be without unpaired items."""
        return replace(self, unpaired_weight=0.0)

    @property
    def unpaired_room(self) -> float:
        """How far the unpaired items could move the difference."""
        least, most = self.spec.limits
        apart = math.inf if self.spec.estimator == "correlation" else most - least
        return self.unpaired_weight * apart if self.unpaired_weight else 0.0

    @property
    def fewest_levels(self) -> int:
        """The smallest number of levels of any sampled factor in any stratum."""
        return min([*self.levels.values(), *(n for _, n in self.weighted_levels)], default=0)

    @property
    def p_of_counts_outside(self) -> float:
        """p-value of the score test of a difference of the margin or more; NaN unless all answers are binary."""
        if self.discordant is None or not 0 < self.margin < 1:
            return math.nan
        n = self.n_items + self.n_missing
        return max(p_of_counts_outside(*counts, n, self.margin) for counts in self.discordant)

    def allow_unseen(self, largest_change: float | None) -> None:
        """Assume that clusters of a kind not in the sample differ by at most this much; None: by the whole range."""
        if largest_change is not None:
            self.largest_change = min(self.largest_change, largest_change)
            self.answered.largest_change = self.largest_change

    @property
    def assumed_change(self) -> float | None:
        """The largest difference assumed for clusters of a kind not seen; None if there is no bound."""
        return None if self.spec.estimator == "correlation" or math.isinf(self.largest_change) else self.largest_change

    def of_one_model(self) -> PairedDifference:
        """The difference between two runs of an unchanged model: an item left unanswered both times is no change.

        If it gave the same answers throughout, neither these items nor clusters outside the sample can differ.
        """
        if not self.answered.is_identical or self.n_missing != self.n_missing_in_both:
            return self
        nothing = End(0.0, 0.0, math.inf)
        return replace(
            self.answered,
            low=nothing,
            high=nothing,
            n_missing=self.n_missing,
            n_missing_in_both=self.n_missing_in_both,
            n_unpaired=self.n_unpaired,
            unpaired_weight=self.unpaired_weight,
            largest_change=0.0,
        )

    def interval(self, confidence: float) -> tuple[float, float]:
        """Confidence interval, from that of the lower bound to that of the upper, truncated to the possible range."""
        low, high = self.low.interval(confidence)[0], self.high.interval(confidence)[1]
        least, most = self.spec.limits
        if self.spec.estimator == "correlation":
            return max(low, -2.0), min(high, 2.0)
        if self.spec.estimator == "mean" and max(abs(self.low.value), abs(self.high.value)) <= most - least:
            low, high = (math.copysign(min(abs(end), most - least), end) for end in (low, high))
        return low, high

    def p_above(self, null: float) -> float:
        """One-sided p-value of the hypothesis that the difference is at most ``null``; NaN if unknown."""
        return self.low.p_above(null)

    def p_below(self, null: float) -> float:
        """One-sided p-value of the hypothesis that the difference is at least ``null``; NaN if unknown."""
        return self.high.p_below(null)

    def interval_with_unpaired(self, confidence: float) -> tuple[float, float]:
        """The interval for all items, if the unpaired ones differ as much as possible."""
        return self._with_unpaired(*self.interval(confidence))

    def _with_unpaired(self, low: float, high: float) -> tuple[float, float]:
        if not self.unpaired_weight:
            return low, high
        paired = 1 - self.unpaired_weight
        return paired * low - self.unpaired_room, paired * high + self.unpaired_room

    def interval_with_unseen(self, confidence: float) -> tuple[float, float]:
        """The interval for all items, with an allowance for kinds of clusters that are not in the sample.

        A sample of n templates misses a kind that makes up a share π of all templates with probability (1 - π)^n. So up
        to 1 - α^(1/n) of them, with α = (1 - confidence) / 2, may be of a kind that was not seen, and differ by as much
        as the range (3 / n at 95 %: the rule of three, Hanley & Lippman-Hand 1983, JAMA 249(13)). Student's t ignores
        them: it calls two models equivalent although a tenth of the templates changed by 0.3, whenever none of the ten
        in the sample is one of these. No sample can show how far they may differ: that is the whole range, or what the
        user assumes (`allow_unseen`). Each stratum has kinds of its own, weighted like the strata. A correlation has no
        such bound, nor has a quantity without a range about which nothing is assumed.
        """
        low, high = self.interval(confidence)
        if self.largest_change == 0:
            return self._with_unpaired(low, high)
        if self.spec.estimator == "correlation" or math.isinf(self.largest_change):
            return -math.inf, math.inf
        alpha = (1 - confidence) / 2
        unseen = unseen_share(self.weighted_levels, alpha)
        most = self.largest_change
        return self._with_unpaired(min(low, low - unseen * (most + low)), max(high, high + unseen * (most - high)))

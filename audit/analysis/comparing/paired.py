"""What separates two models, or two runs of one, in a figure: the value, its error, and what may be missing of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from audit.analysis.comparing.significance import p_of_counts_outside
from audit.analysis.estimators import Estimate, Reach
from audit.analysis.estimators.estimate import LEAST_DF, distance_at
from audit.analysis.missing import has_range
from suites.base import MeasureSpec


class End(NamedTuple):
    """A difference at one of its identification bounds: value, standard error, degrees of freedom. NaN: unknown.

    ``se`` is the larger one where the error reaches farther to one side.
    ``below`` and ``above`` are the `Reach` to either side as (se, bend); None: as far as ``se`` to both.
    """

    value: float = math.nan
    se: float = math.nan
    df: float = math.nan
    below: tuple[float, float] | None = None
    above: tuple[float, float] | None = None

    def interval(self, confidence: float) -> tuple[float, float]:
        """Its two-sided confidence interval; NaN where the error is unknown."""
        if not self.df >= LEAST_DF or math.isnan(self.se):
            return math.nan, math.nan
        t = float(special.stdtrit(self.df, (1 + confidence) / 2))
        below, above = (distance_at(*(side or (self.se, 0.0)), t) for side in (self.below, self.above))
        return self.value - below, self.value + above

    def p_above(self, null: float) -> float:
        """One-sided p against the hypothesis that it is at most ``null``."""
        return float(self._estimate.p_above(null))

    def p_below(self, null: float) -> float:
        """One-sided p against the hypothesis that it is at least ``null``."""
        return float(self._estimate.p_below(null))

    @property
    def _estimate(self) -> Estimate:
        sides = [None if side is None else Reach(np.array(side[0]), np.array(side[1])) for side in self[3:]]
        value, se, df = (np.array(number) for number in self[:3])
        return Estimate(value, se, df, 0, 0, None, *sides)


UNKNOWN = End()


@dataclass(slots=True)
class PairedDifference:
    """A figure of b minus the same figure of a, over the items that both were asked; NaN where unknown.

    Attributes
    ----------
    a, b : int
        Positions of the two among the tables that were compared.
    n_items : int
        Items that both answered.
    n_missing : int
        Items whose answer is missing of one or both. They enter as bounds, see `audit.analysis.missing`.
    n_missing_in_both : int
        Those of them whose answer is missing of both.
    n_unpaired : int
        Items that only one of the two has: they are left out.
    unpaired_weight : float
        The part that these would have in the figure: it may be apart by all that the quantity can be.
    undefined : tuple of int
        As in `audit.results.Comparison.undefined_for`, by position.
    levels : mapping of str to int
        How many levels of each sampled factor the items hold.
    low, high : End
        The difference at its identification bounds, each with its own sampling error; equal where every item
        is exact.
    a_low, a_high : float
        The figure of a alone, over the same items.
    deviation : float
        Standard deviation of the items' differences.
    p : float
        Two-sided, that there is no difference.
    discordant : pair of (int, int), or None
        Where both answered yes or no: items with a yes of a only, and of b only, at each of the two bounds.
    complete : PairedDifference or None
        The same of the items that both answered; None where no answer is missing.
    margin : float
        Differences within ± the margin do not matter.
    largest_change : float
        How far apart the two can be on any item; inf where that is not known.
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

    @property
    def answered(self) -> PairedDifference:
        """The difference over the items that both answered: the one that is shown as a number."""
        return self if self.complete is None else self.complete

    @property
    def exact(self) -> bool:
        """Whether the difference itself is known, not only its bounds."""
        return self.low.value == self.high.value

    @property
    def is_identical(self) -> bool:
        """Whether both gave the same answers throughout, and none is missing of one alone."""
        return self.exact and self.low.value == 0 and self.complete is None and not self.deviation > 0

    @property
    def of_pairs(self) -> PairedDifference:
        """The same, were there no items that only one of the two has."""
        return replace(self, unpaired_weight=0.0)

    @property
    def unpaired_room(self) -> float:
        """How far the items that only one of the two has can move the figure of either."""
        least, most = self.spec.limits
        apart = math.inf if self.spec.estimator == "correlation" else most - least
        return self.unpaired_weight * apart if self.unpaired_weight else 0.0

    @property
    def fewest_levels(self) -> int:
        """Levels of the sampled factor that has fewest, in the stratum that has fewest of it."""
        return min([*self.levels.values(), *(n for _, n in self.weighted_levels)], default=0)

    @property
    def has_range(self) -> bool:
        """Whether missing answers are bounded by what the quantity can be, not by what was seen of it."""
        return has_range(self.spec)

    @property
    def p_of_counts_outside(self) -> float:
        """p of the score test against a difference of the margin or more; NaN unless all answers are binary."""
        if self.discordant is None or not 0 < self.margin < 1:
            return math.nan
        n = self.n_items + self.n_missing
        return max(p_of_counts_outside(*counts, n, self.margin) for counts in self.discordant)

    def allow_unseen(self, largest_change: float | None) -> None:
        """Assume that clusters of a kind not seen are apart by at most so much; None: by all that can be."""
        if largest_change is not None:
            self.largest_change = min(self.largest_change, largest_change)
            self.answered.largest_change = self.largest_change

    @property
    def assumed_change(self) -> float | None:
        """The largest change of clusters not seen that is assumed; None: there is no bound."""
        return None if self.spec.estimator == "correlation" or math.isinf(self.largest_change) else self.largest_change

    def of_one_model(self) -> PairedDifference:
        """The same of one model that has not changed: an item that it left without an answer twice is no change.

        So where it gave the same answers throughout, neither these items nor clusters not seen can be apart.
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
        """Confidence interval, from that of the lower bound to that of the upper, within what a difference can be."""
        low, high = self.low.interval(confidence)[0], self.high.interval(confidence)[1]
        least, most = self.spec.limits
        if self.spec.estimator == "mean" and max(abs(self.low.value), abs(self.high.value)) <= most - least:
            low, high = (math.copysign(min(abs(end), most - least), end) for end in (low, high))
        return low, high

    def p_above(self, null: float) -> float:
        """One-sided p against the hypothesis that the difference is at most ``null``; NaN where unknown."""
        return self.low.p_above(null)

    def p_below(self, null: float) -> float:
        """One-sided p against the hypothesis that the difference is at least ``null``; NaN where unknown."""
        return self.high.p_below(null)

    def interval_with_unpaired(self, confidence: float) -> tuple[float, float]:
        """The interval of all items, were those that only one of the two has apart by all that they can be."""
        return self._with_unpaired(*self.interval(confidence))

    def _with_unpaired(self, low: float, high: float) -> tuple[float, float]:
        if not self.unpaired_weight:
            return low, high
        paired = 1 - self.unpaired_weight
        return paired * low - self.unpaired_room, paired * high + self.unpaired_room

    def interval_with_unseen(self, confidence: float) -> tuple[float, float]:
        """The interval of all items, with room for a kind of cluster that is in none of those drawn.

        Of n templates drawn, a share π of all templates has no member with chance (1 - π)^n. So up to 1 - α^(1/n)
        of them, α = (1 - confidence) / 2, may be of a kind that was not seen, and be apart by as much as the quantity
        can be (3 / n at 95 %: the rule of three, Hanley & Lippman-Hand 1983, JAMA 249(13)). Student's t knows
        nothing of them: it calls two models alike although a tenth of the templates moved by 0.3, whenever none
        of the ten in the sample is one of these. How far they may be apart no sample can show: it is all that the
        quantity can be, or what the user assumes (`allow_unseen`). Strata have kinds of their own, which weigh as the
        strata do. A correlation has no such bound, nor has a quantity without a range of which nothing is assumed.
        """
        low, high = self.interval(confidence)
        if self.largest_change == 0:
            return self._with_unpaired(low, high)
        if self.spec.estimator == "correlation" or math.isinf(self.largest_change):
            return -math.inf, math.inf
        alpha = (1 - confidence) / 2
        unseen = max((weight * (1 - alpha ** (1 / n)) for weight, n in self.weighted_levels if n), default=1.0)
        most = self.largest_change
        return self._with_unpaired(min(low, low - unseen * (most + low)), max(high, high + unseen * (most - high)))

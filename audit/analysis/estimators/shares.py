"""Shares of yes and no over clusters, and their paired differences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from audit.analysis.estimators.design import Design
from audit.analysis.estimators.estimate import Estimate, Floats, Student, Wider, p_of_interval
from audit.analysis.estimators.means import clustered_mean


@dataclass(frozen=True, slots=True)
class Share(Estimate):
    """A share of yes among as many independent answers as the clustered ones are worth (``n``, not whole).

    Its interval is Clopper and Pearson's for that number: Korn & Graubard 1998, Surv. Methodol. 24(2).
    """

    value: float
    n: float

    def interval(self, confidence: float) -> tuple[float, float]:
        """The two-sided confidence interval."""
        tail, yes = (1 - confidence) / 2, self.value * self.n
        low = float(special.betaincinv(yes, self.n - yes + 1, tail)) if yes > 0 else 0.0
        high = float(special.betaincinv(yes + 1, self.n - yes, 1 - tail)) if self.value < 1 else 1.0
        return low, high

    def p_beyond(self, null: float, side: int) -> float:
        """One-sided p-value of the hypothesis that it is not above ``null``, or not below it."""
        yes = self.value * self.n
        if side > 0:
            return float(special.betainc(yes, self.n - yes + 1, null)) if yes > 0 else 1.0
        return float(1 - special.betainc(yes + 1, self.n - yes, null)) if self.value < 1 else 1.0


@dataclass(frozen=True, slots=True)
class ShareDifference(Estimate):
    """The share of items that only b answers yes minus that of only a, times ``most``, from the intervals of both.

    Each end lies as far from the difference as the root of the sum of the squares of the two distances (Newcombe 1998,
    Stat. Med. 17, method 10; Zou & Donner 2008, Stat. Med. 27).
    """

    only_a: Share
    only_b: Share
    most: float = 1.0

    @property
    def value(self) -> float:  # type: ignore[override]
        """The difference."""
        return self.most * (self.only_b.value - self.only_a.value)

    def interval(self, confidence: float) -> tuple[float, float]:
        """The two-sided confidence interval."""
        (a_low, a_high), (b_low, b_high) = self.only_a.interval(confidence), self.only_b.interval(confidence)
        below = math.hypot(self.only_b.value - b_low, a_high - self.only_a.value)
        above = math.hypot(b_high - self.only_b.value, self.only_a.value - a_low)
        return self.value - self.most * below, self.value + self.most * above

    def p_beyond(self, null: float, side: int) -> float:
        """One-sided p-value of the hypothesis that it is not above ``null``, or not below it."""
        return p_of_interval(self.interval, null, side)


def mean_share(values: Floats, design: Design) -> Estimate:
    """The share of yes in values (n,) of [0, 1] that are counted: 0 or 1, or shares of drawn answers."""
    plain = clustered_mean(values, design)
    return plain if math.isnan(plain.interval(0.95)[0]) else _share(plain, design)


def share_difference(values: Floats, design: Design, most: float = 1.0) -> Estimate:
    """The mean of differences (n,) of counted answers, which are ``most`` at most: of yes and no -1, 0 or 1.

    Student's, or that of the items that fall either way where wider, as it is if these are few.
    """
    plain = clustered_mean(values, design)
    if math.isnan(plain.interval(0.95)[0]):
        return plain
    parts = (np.maximum(sign * values / most, 0.0) for sign in (-1.0, 1.0))
    only_a, only_b = (_share(clustered_mean(part, design), design) for part in parts)
    return Wider(plain, ShareDifference(only_a, only_b, most))


def _share(plain: Estimate, design: Design) -> Share:
    """The share with as many independent answers as have the clustered mean's error: n = p(1 - p)/V."""
    p, low = min(max(plain.value, 0.0), 1.0), plain.one if isinstance(plain, Wider) else plain
    other = plain.other if isinstance(plain, Wider) else plain
    n = float(design.n)
    for of in (low, other):
        if isinstance(of, Student) and of.se > 0 and 0 < p < 1:
            # As much wider as t of its degrees of freedom is than that of all items.
            ratio = special.stdtrit(design.n - 1, 0.975) / special.stdtrit(of.df, 0.975)
            n = min(n, p * (1 - p) / of.se**2 * float(ratio) ** 2)
    return Share(p, max(n, 1e-6))

"""Shares of yes and no over clusters, and their paired differences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from audit.analysis.estimators.design import Design
from audit.analysis.estimators.estimate import (
    Estimate,
    Floats,
    Student,
    Wider,
    p_of_interval,
    t_quantile,
    t_share_below,
)
from audit.analysis.estimators.means import clustered_mean


@dataclass(frozen=True, slots=True)
class Share(Estimate):
    """A share of yes among as many independent answers as the clustered ones are worth (``n``, not whole).

    Wilson's interval with Student's t of ``df``: Dean & Pagano 2015, J. Surv. Stat. Methodol. 3(4).
    """

    value: float
    n: float
    df: float

    def interval(self, confidence: float) -> tuple[float, float]:
        square = t_quantile(self.df, (1 + confidence) / 2) ** 2 / self.n
        middle, half = self.value + square / 2, math.sqrt(square * (self.value * (1 - self.value) + square / 4))
        return max((middle - half) / (1 + square), 0.0), min((middle + half) / (1 + square), 1.0)

    def p_beyond(self, null: float, side: int) -> float:
        error = math.sqrt(max(null * (1 - null), 1e-300) / self.n)
        return t_share_below(self.df, side * (null - self.value) / error)


@dataclass(frozen=True, slots=True)
class ShareDifference(Estimate):
    """The share of items that only b answers yes minus that of only a, times ``most``, from the intervals of both.

    Each end lies as far from the difference as the root of the sum of the squares of the two distances (Newcombe 1998,
    Stat. Med. 17, method 10; Zou & Donner 2008, Stat. Med. 27).
    """

    only_a: Estimate
    only_b: Estimate
    most: float = 1.0

    @property
    def value(self) -> float:  # type: ignore[override]
        return self.most * (self.only_b.value - self.only_a.value)

    def interval(self, confidence: float) -> tuple[float, float]:
        (a_low, a_high), (b_low, b_high) = self.only_a.interval(confidence), self.only_b.interval(confidence)
        below = math.hypot(self.only_b.value - b_low, a_high - self.only_a.value)
        above = math.hypot(b_high - self.only_b.value, self.only_a.value - a_low)
        return self.value - self.most * below, self.value + self.most * above

    def p_beyond(self, null: float, side: int) -> float:
        return p_of_interval(self.interval, null, side)


def mean_share(values: Floats, design: Design) -> Estimate:
    """The share of yes in values (n,) of [0, 1] that are counted: 0 or 1, or shares of drawn answers."""
    plain = clustered_mean(values, design)
    return plain if math.isnan(plain.interval(0.95)[0]) else _share(plain, design.n)


def share_difference(values: Floats, design: Design, most: float = 1.0) -> Estimate:
    """The mean of differences (n,) of counted answers, which are ``most`` at most: of yes and no -1, 0 or 1.

    Student's, or that of the items that fall either way where wider, as it is if these are few.
    """
    plain = clustered_mean(values, design)
    if math.isnan(plain.interval(0.95)[0]):
        return plain
    parts = (np.maximum(sign * values / most, 0.0) for sign in (-1.0, 1.0))
    only_a, only_b = (_share(clustered_mean(part, design), design.n) for part in parts)
    return Wider(plain, ShareDifference(only_a, only_b, most))


def _share(plain: Estimate, most: int) -> Estimate:
    """The share of as many independent answers as have the clustered mean's error: p(1 - p)/V, or all if V is 0."""
    if isinstance(plain, Wider):
        return Wider(_share(plain.one, most), _share(plain.other, most))
    assert isinstance(plain, Student)
    p = min(max(plain.value, 0.0), 1.0)
    if plain.se == 0 or p in (0.0, 1.0):
        return Share(p, most, most - 1.0)
    return Share(p, min(p * (1 - p) / plain.se**2, most), plain.df)

"""What an estimator gives: a value, and a confidence interval and one-sided tests that agree with each other."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

#: Differences and errors below this are the rounding of double precision sums of values near 1.
ROUNDING = 1e-12
#: With fewer degrees of freedom an error says nothing: Student's quantiles explode.
_LEAST_DF = 0.5
#: What samples of ten or twenty levels show of a skewness at most; beyond it, the exponential runs away.
_MOST_SKEWNESS = 1.5


class Estimate(ABC):
    """A value with its error. All numbers are NaN if the error is unknown, as with a single cluster."""

    value: float

    @abstractmethod
    def interval(self, confidence: float) -> tuple[float, float]:
        """The two-sided confidence interval."""

    @abstractmethod
    def p_beyond(self, null: float, side: int) -> float:
        """One-sided p-value of the hypothesis that it is not above ``null`` (``side`` 1), or not below it (-1)."""

    def p_two_sided(self, null: float = 0.0) -> float:
        """Two-sided p-value of the hypothesis that it is ``null``."""
        above, below = self.p_beyond(null, 1), self.p_beyond(null, -1)
        return math.nan if math.isnan(above + below) else min(1.0, 2 * min(above, below))

    def p_outside(self, margin: float) -> float:
        """p-value of ``margin`` or farther from 0: two one-sided tests (Schuirmann 1987, J. Pharm. Biopharm. 15)."""
        return _largest(self.p_beyond(-margin, 1), self.p_beyond(margin, -1))


@dataclass(frozen=True, slots=True)
class Student(Estimate):
    """A value with a standard error and Student's t.

    Attributes
    ----------
    se, df : float
        Standard error, NaN if unknown, and degrees of freedom.
    skewness : float
        Of the error. To the side of the longer tail the interval reaches se · (γ/6 + (exp(κt) - 1)/κ) with κ = 2γ/3
        (Hall 1992, J. R. Stat. Soc. B 54, the exponential transformation). The other side stays Student's: its shorter
        reach is worth less than what twenty levels show of a skewness by luck.
    scale : str
        ``fisher``: ``se`` is that of artanh(value); ``logit``: that of its log-odds.
    """

    value: float
    se: float
    df: float
    skewness: float = 0.0
    scale: Literal["plain", "fisher", "logit"] = "plain"

    @property
    def is_known(self) -> bool:
        """Whether there is an error."""
        return self.df >= _LEAST_DF and not math.isnan(self.se)

    def interval(self, confidence: float) -> tuple[float, float]:
        if not self.is_known:
            return math.nan, math.nan
        t = t_quantile(self.df, (1 + confidence) / 2)
        centre = self._scaled(self.value)
        low, high = centre - self._reach(t, -self.skewness), centre + self._reach(t, self.skewness)
        if self.scale == "plain":
            return low, high
        back = math.tanh if self.scale == "fisher" else special.expit
        return float(back(low)), float(back(high))

    def p_beyond(self, null: float, side: int) -> float:
        if not self.is_known:
            return math.nan
        distance = side * (self._scaled(self.value) - self._scaled(null))
        if math.isnan(distance):
            return math.nan
        if abs(distance) < ROUNDING:
            distance = 0.0
        if self.se < ROUNDING * max(1.0, abs(distance)):  # all alike: certain
            return 0.5 if distance == 0 else float(distance < 0)
        t, skewness = distance / self.se, min(-side * self.skewness, _MOST_SKEWNESS)
        if skewness > 0 and t > 0:
            bend = 2 / 3 * skewness
            t = max(math.log1p(bend * max(t - skewness / 6, 0.0)) / bend, 0.0)
        return t_share_below(self.df, -t)

    def _scaled(self, value: float) -> float:
        if self.scale == "plain":
            return value
        if self.scale == "logit":
            return float(special.logit(min(max(value, 0.0), 1.0)))
        return math.copysign(math.inf, value) if abs(value) >= 1 else math.atanh(value)

    def _reach(self, t: float, skewness: float) -> float:
        skewness = min(skewness, _MOST_SKEWNESS)
        if skewness <= 0 or self.se == 0:
            return self.se * t
        bend = 2 / 3 * skewness
        return self.se * (skewness / 6 + math.expm1(min(bend * t, 700.0)) / bend)


@dataclass(frozen=True, slots=True)
class Wider(Estimate):
    """The wider of two estimates of one value, to each side: a claim holds by both."""

    one: Estimate
    other: Estimate

    @property
    def value(self) -> float:  # type: ignore[override]
        return self.one.value

    def interval(self, confidence: float) -> tuple[float, float]:
        (low, high), (a, b) = self.one.interval(confidence), self.other.interval(confidence)
        return (math.nan, math.nan) if math.isnan(low + high + a + b) else (min(low, a), max(high, b))

    def p_beyond(self, null: float, side: int) -> float:
        return _largest(self.one.p_beyond(null, side), self.other.p_beyond(null, side))


@dataclass(frozen=True, slots=True)
class Between(Estimate):
    """What is known only by bounds: the estimates of the lower and of the upper one.

    The interval reaches from the lower end of the one to the upper end of the other (Horowitz & Manski 2000, J. Am.
    Stat. Assoc. 95), so that a claim holds whatever is true within the bounds.
    """

    low: Estimate
    high: Estimate

    @property
    def value(self) -> float:  # type: ignore[override]
        """NaN: only bounds are known."""
        return math.nan

    def interval(self, confidence: float) -> tuple[float, float]:
        low, high = self.low.interval(confidence)[0], self.high.interval(confidence)[1]
        return (math.nan, math.nan) if math.isnan(low + high) else (low, high)

    def p_beyond(self, null: float, side: int) -> float:
        return (self.low if side > 0 else self.high).p_beyond(null, side)


def unknown(value: float = math.nan) -> Student:
    """A value without an error."""
    return Student(value, math.nan, math.nan)


def finite(number: float) -> float | None:
    """The number, or None if it is not finite."""
    return float(number) if math.isfinite(number) else None


def p_of_interval(interval: Callable[[float], tuple[float, float]], null: float, side: int) -> float:
    """`Estimate.p_beyond` by intervals: half the error at which their end reaches ``null``; at most 0.5."""
    place, side = (0, -1) if side > 0 else (1, 1)
    return smallest_error(lambda error: side * (null - interval(1 - error)[place]) > 0, 1.001) / 2


def smallest_error(shows: Callable[[float], bool], closeness: float) -> float:
    """The smallest error from 1e-15 to 1 at which something is shown, up to a factor; 1 if it is not shown at all."""
    shown, open_ = 1.0, 1e-15
    if not shows(1 - 1e-9):
        return 1.0
    if shows(open_):
        return open_
    while shown / open_ > closeness:
        middle = math.sqrt(shown * open_)
        shown, open_ = (middle, open_) if shows(middle) else (shown, middle)
    return shown


def t_quantile(df: float, share: float) -> float:
    """The quantile of Student's t; of the normal distribution, with infinite degrees of freedom."""
    return float(special.stdtrit(df, share) if math.isfinite(df) else special.ndtri(share))


def t_share_below(df: float, t: float) -> float:
    """The share of Student's t, or of the normal distribution, below ``t``."""
    return float(special.stdtr(df, t) if math.isfinite(df) else special.ndtr(t))


def _largest(one: float, other: float) -> float:
    return math.nan if math.isnan(one + other) else max(one, other)

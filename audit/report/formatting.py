"""How figures are written: as many decimals as the interval supports, and a sign that shows."""

from __future__ import annotations

import math
from typing import Protocol

from audit.results import Measure

MISSING = "–"
_LEVELS = (0.1, 0.05, 0.01)  # at which a p is usually judged
_ROUNDING = 1e-9  # what is no farther apart than this is apart by floating point alone


class Estimated(Protocol):
    """What has a value, an interval and bounds: a measure, or its point in a history."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def bound_low(self) -> float | None: ...
    @property
    def bound_high(self) -> float | None: ...


def decimals_for(half_width: float | None) -> int:
    """Decimals worth showing: the first digit in which the interval moves, 2 to 4."""
    if not half_width:
        return 3
    return max(2, min(4, -math.floor(math.log10(half_width))))


def number(value: float | None, decimals: int = 3) -> str:
    """A number in words' reach: a true minus sign, and never 0.000 for what is not zero."""
    if value is None:
        return MISSING
    text = f"{value:.{decimals}f}"
    if float(text) == 0:
        text = f"{value:.0e}".replace("e-0", "e-") if value else text.removeprefix("-")
    return text.replace("-", "−")


def _mean_abs_diff(decimals: int, mark: float | None, *numbers: float | None) -> int:
    """As many decimals, or more where a number would read as the mark that it lies beside.

    A mark of zero needs no more: `number` never writes zero for what is not.
    """
    if mark:
        beside = [x for x in numbers if x is not None and abs(x - mark) > _ROUNDING]
        while any(round(x, decimals) == round(mark, decimals) for x in beside):
            decimals += 1
    return decimals


def with_interval(
    value: float | None,
    low: float | None,
    high: float | None,
    decimals: int | None = None,
    neutral: float | None = None,
) -> str:
    """``0.41 [0.37, 0.45]``; the interval alone where there is no value; a dash where nothing is."""
    if decimals is None:
        decimals = decimals_for(None if low is None or high is None else (high - low) / 2)
        while decimals < 4 and any(x and not round(x, decimals) for x in (value, low, high)):
            decimals += 1  # an end near zero must not look like zero
        decimals = _mean_abs_diff(decimals, neutral, low, high)
    interval = "" if low is None or high is None else f"[{number(low, decimals)}, {number(high, decimals)}]"
    if value is None:
        return interval or MISSING
    return f"{number(value, decimals)} {interval}".strip()


def p_value(p: float | None) -> str:
    """``p = 0.012``, or ``p < 0.001``."""
    if p is None:
        return ""
    if p < 0.001:
        return "p < 0.001"
    decimals = 3 if p < 0.1 else 2
    for level in _LEVELS:
        decimals = _mean_abs_diff(decimals, level, p)
    return f"p = {p:.{decimals}f}"


def bounded(measure: Estimated) -> bool:
    """Whether the figure itself is known only by bounds (which are not sampling error)."""
    return measure.bound_low is not None and measure.bound_high is not None and measure.bound_high > measure.bound_low


def figure(measure: Estimated, scale: float = 1.0, decimals: int | None = None) -> str:
    """The figure as text; ``between a and b`` where only bounds are known."""

    def scaled(x: float | None) -> float | None:
        return None if x is None else x * scale

    low, high = scaled(measure.low), scaled(measure.high)
    neutral = scaled(measure.neutral) if isinstance(measure, Measure) else None
    if measure.value is None and bounded(measure):
        places = _mean_abs_diff(3, neutral, low, high) if decimals is None else decimals
        between = (
            f"between {number(scaled(measure.bound_low), places)} and {number(scaled(measure.bound_high), places)}"
        )
        return between if low is None else f"{between} {with_interval(None, low, high, places)}"
    if measure.value is None:
        return MISSING
    return with_interval(scaled(measure.value), low, high, decimals, neutral)


def why_missing(measure: Measure | None) -> str:
    """The reason in words for a figure without value."""
    if measure is None:
        return "not measured"
    if measure.n_items == 0 and measure.missing:
        return f"no readable answer ({measure.missing} missing)"
    if measure.n_items == 0:
        return "no items"
    return "not defined for these answers"

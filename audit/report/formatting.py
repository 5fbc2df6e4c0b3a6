"""Figures, factors, levels and units as readers see them: numbers with as many decimals as the interval supports."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from audit.report.plain_text import one_line
from audit.results import level_key
from backends.base import Scalar
from suites.base import KIND

if TYPE_CHECKING:
    from audit.analysis.history import Point
    from audit.results import Measure

MISSING = "–"
_LEVELS = (0.1, 0.05, 0.01)  # usual levels of significance
_ROUNDING = 1e-9  # differences below it are floating-point noise
_NOTHING = 1e-12  # and so is a number below it


#: A value with its interval and bounds.
Estimated: TypeAlias = "Measure | Point"


def number(value: float | None, decimals: int = 3) -> str:
    """A number with a true minus sign and without an exponent; rounding noise is 0.

    A number that would read as zero gets up to three more decimals to show its first digit; below that, ``<0.0001``.
    """
    if value is None:
        return MISSING
    if abs(value) < _NOTHING:
        value = 0.0
    text = f"{value:.{decimals}f}"
    if value and float(text) == 0:
        places = -math.floor(math.log10(abs(value)))
        if places > decimals + 3:
            smallest = f"{10.0 ** -(decimals + 3):.{decimals + 3}f}"
            return f"<{smallest}" if value > 0 else f">−{smallest}"
        text = f"{value:.{places}f}"
    return (text if value else text.removeprefix("-")).replace("-", "−")


def shortened(x: float | None) -> float | None:
    """Rounded to eight significant digits, more than a plot, hover text or dialog shows: a page stays small."""
    return None if x is None else float(f"{x:.8g}")


def with_interval(
    value: float | None,
    low: float | None,
    high: float | None,
    decimals: int | None = None,
    neutral: float | None = None,
) -> str:
    """``0.41 [0.37, 0.45]``; the interval alone if there is no value; a dash if there is neither. No exponents."""
    value, low, high = (0.0 if x is not None and abs(x) < _NOTHING else x for x in (value, low, high))
    if value == low == high == 0:
        return "0 [0, 0]"
    if decimals is None:
        decimals = _decimals_for(None if low is None or high is None else (high - low) / 2)
        while decimals < 4 and any(x and not round(x, decimals) for x in (value, low, high)):
            decimals += 1  # an end near zero must not look like zero
        decimals = distinct_decimals(decimals, neutral, low, high)
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
        decimals = distinct_decimals(decimals, level, p)
    return f"p = {p:.{decimals}f}"


def percent(share: float) -> str:
    """A share in percent; one that is neither 0 nor 1 never reads as 0 or 100."""
    return f"{hundredths(share, 1)} %"


def hundredths(share: float, decimals: int, marks: Sequence[float] = ()) -> str:
    """``74``: a share or a difference of shares in hundredths, without floating-point noise or an exponent.

    What is not 0, 1 or −1, or one of the ``marks``, never reads as that: it gets up to three more decimals, beyond
    which ``<0.001`` or ``>99.999``.
    """
    exact = round(100 * share, 9)
    whole = (0.0, 100.0, -100.0, *(100 * mark for mark in marks))
    near = min(whole, key=lambda mark: abs(exact - mark))
    if abs(exact - near) < _ROUNDING:
        return number(near, 0 if float(near).is_integer() else decimals)
    places = decimals
    while places < decimals + 3 and abs(round(exact, places) - near) < _ROUNDING:
        places += 1
    if abs(round(exact, places) - near) >= _ROUNDING:
        return number(exact, places)
    step = 10.0**-places
    return f"{'>' if exact < near else '<'}{number(near - step if exact < near else near + step, places)}"


def level(confidence: float) -> str:
    """A confidence level: ``95 %``, ``99.17 %``; with enough digits not to read as 100 %."""
    return f"{100 * confidence:.{max(3, 2 - math.floor(math.log10(1 - confidence)))}g} %" if confidence < 1 else "100 %"


def bounded(measure: Estimated) -> bool:
    """Whether the figure itself is known only by bounds (which are not sampling error)."""
    return measure.bound_low is not None and measure.bound_high is not None and measure.bound_high > measure.bound_low


def figure(measure: Estimated, scale: float = 1.0, decimals: int | None = None) -> str:
    """The figure as text; ``between a and b`` if only bounds are known."""
    neutral = getattr(measure, "neutral", None)  # a point in a history has none
    value, low, high, bound_low, bound_high, neutral = (
        None if x is None else x * scale
        for x in (measure.value, measure.low, measure.high, measure.bound_low, measure.bound_high, neutral)
    )
    if value is not None:
        return with_interval(value, low, high, decimals, neutral)
    if not bounded(measure):
        return MISSING
    places = distinct_decimals(3, neutral, low, high) if decimals is None else decimals
    between = f"between {number(bound_low, places)} and {number(bound_high, places)}"
    return between if low is None else f"{between} {with_interval(None, low, high, places)}"


def _decimals_for(half_width: float | None) -> int:
    """Decimals worth showing: down to the first digit of the interval's half-width, 2 to 4."""
    if not half_width:
        return 3
    return max(2, min(4, -math.floor(math.log10(half_width))))


def distinct_decimals(decimals: int, mark: float | None, *numbers: float | None) -> int:
    """``decimals``, or more if a number would otherwise read like ``mark``.

    A mark of zero needs no more: `number` never writes zero for anything else.
    """
    if mark and math.isfinite(mark):
        beside = [x for x in numbers if x is not None and abs(x - mark) > _ROUNDING]
        while any(round(x, decimals) == round(mark, decimals) for x in beside):
            decimals += 1
    return decimals


def measure_label(name: str) -> str:
    """``p_female`` → ``P̃(female)``: the normalised probability; others lose their underscores."""
    if name.startswith("p_") and len(name) > 2:
        return f"P̃({factor_label(name[2:])})"
    return factor_label(name)


def factor_label(name: str) -> str:
    """A factor's name without underscores."""
    return one_line(name.replace("_", " "))


def level_label(level: Scalar) -> str:
    """A factor's level; None is the level without treatment."""
    if level is None:
        return "none"
    if isinstance(level, bool):
        return "yes" if level else "no"
    return one_line(str(level)).replace("_", " ")


def short_level(factor: str, level: Scalar) -> str:
    """A label that can stand alone: numbers are preceded by the factor's name; None is the level without treatment."""
    if level is None:
        return f"without {factor_label(factor)}"
    return level_label(level) if isinstance(level, str) else f"{factor_label(factor)} {level_label(level)}"


def distinct_labels(levels: Iterable[Scalar], label: Callable[[Scalar], str]) -> dict[tuple[bool, Scalar], str]:
    """``level_key → label`` of a factor's levels. Levels with the same label are written as code: 'a_b', 'a b'."""
    labels = {level_key(level): label(level) for level in levels}
    times = Counter(labels.values())
    return {key: text if times[text] == 1 else one_line(repr(key[1])) for key, text in labels.items()}


def where_label(where: Mapping[str, Scalar], labels: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """``asked directly · debiasing 3``, by the suite's own ``labels`` of levels; ``overall`` if nothing is narrowed."""
    parts = []
    for name, level in where.items():
        own = (labels or {}).get(name, {}).get(str(level))
        if name != KIND:
            named = short_level(name, None) if level is None else f"{factor_label(name)} {level_label(level)}"
            parts.append(own or named)
    return " · ".join(parts) or "overall"


def unit_label(unit: str) -> str:
    """A unit for an axis; none for plain ratios and probabilities."""
    return "" if unit in ("", "probability", "ratio", "correlation") else one_line(unit)

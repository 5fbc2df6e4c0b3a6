"""On which side of the neutral value a figure lies."""

from __future__ import annotations

from typing import Literal

from audit.results import Measure

Side = Literal["above", "below", "open", "missing", "no interval"]


def side_of(measure: Measure, neutral: float, alpha: float) -> Side:
    """On which side of neutral the whole interval lies, also after correction; or why on neither.

    Without a p-value the interval alone decides.
    """
    if measure.low is None or measure.high is None:
        return "no interval"
    is_sure = measure.p_adjusted is None or measure.p_adjusted < alpha
    if is_sure and not measure.low <= neutral <= measure.high:
        return "above" if measure.low > neutral else "below"
    return "missing" if _excludes(measure.complete_case_low, measure.complete_case_high, neutral) else "open"


def _excludes(low: float | None, high: float | None, neutral: float) -> bool:
    return low is not None and high is not None and not low <= neutral <= high

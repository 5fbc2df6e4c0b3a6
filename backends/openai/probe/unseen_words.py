"""How false the probability of the audited words may be without the draws after a run's own questions showing it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from backends.base import DrawsCompared
from backends.openai.probe.calibration import Place, audited_level, count_bound, likeliest_audited

#: Standard errors by which the count may be unlucky: a lie of this size is found 19 times in 20, in two looks.
_UNLUCKY = 1.96
#: A factor above this counts as any size.
_LARGEST = 20.0
_STEPS = 40


def draws_compared(places: Sequence[Place], *, noise: float, level: float) -> DrawsCompared | None:
    """What these draws show about the likeliest audited word; None if no audited word is listed there.

    ``level`` is the value of `audited_bound` below which a run is contradicted.
    """
    chances = np.array([p for p, _ in likeliest_audited(places)])
    if not len(chances):
        return None
    too_low = _smallest(lambda factor: np.minimum(chances * factor, 1.0), chances, noise, level, unlucky=-_UNLUCKY)
    too_high = _smallest(lambda factor: chances / factor, chances, noise, level, unlucky=_UNLUCKY)
    factor = max(too_low, too_high)
    return DrawsCompared(len(chances), float(chances.mean()), factor if factor < _LARGEST else None)


def _smallest(
    true: Callable[[float], np.ndarray], listed: np.ndarray, noise: float, level: float, *, unlucky: float
) -> float:
    """The smallest factor at which even an unlucky count contradicts what is listed; by bisection."""

    def shows(factor: float) -> bool:
        chances = true(factor)
        hits = chances.sum() + unlucky * math.sqrt(float((chances * (1 - chances)).sum()))
        return audited_level(count_bound(listed, max(float(hits), 0.0), noise)) <= level

    low, high = 1.0, _LARGEST
    if not shows(high):
        return high
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high

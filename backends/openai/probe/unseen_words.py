"""How false the probability of the audited words may be without the draws after a run's own questions showing it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from backends.openai.probe.calibration import Place, audited_level, count_bound, likeliest_audited


class DrawsCompared(NamedTuple):
    """Tokens drawn after a run's own questions that fit its scores, and how large a lie they would not have shown.

    Attributes
    ----------
    draws : int
    probability : float
        The mean probability of the likeliest audited word where they were drawn.
    unseen_factor : float or None
        By how much that word's probabilities may be too high or too low in all answers and still be missed more often
        than once in 20 runs; None for any factor.
    left_out : float
        The most that the audited words outside the lists may have together, on average over the questions, by the draws
        (95 % confidence); 0 if there are none.
    doubted : bool
        Whether such words were drawn more often than their bounds allow, though not so often that it proves the lists
        false.
    """

    draws: int
    probability: float
    unseen_factor: float | None
    left_out: float = 0.0
    doubted: bool = False


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

"""Whether listed log-probabilities were rounded so coarsely that none of them is exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Nats. The least step of a grid that is refused, and how far a value on it may be off (four decimals are printed).
_COARSE, _OFF = 0.02, 1e-4
#: Fewer different values than this may be alike by chance: of all lists, and of one.
_ENOUGH, _ENOUGH_OF_ONE = 20, 8
#: Values of one list that are looked at, likeliest first.
_OF_ONE = 100


def rounding(lists: Sequence[Sequence[float]]) -> str:
    """How the log-probabilities of many lists were rounded, in words; empty where they were not, or finely.

    Logits of 16 bits put the values of one list on a grid, each list's with an offset of its own; its step is a power
    of two. A step of that kind that differs from list to list is not told apart from such logits.
    """
    found = np.unique(np.array([value for values in lists for value in values if value < 0]))
    if len(found) < _ENOUGH:
        return ""
    steps = [step for values in lists if (step := _own_step(values))]
    if len(steps) > len(lists) / 2:
        return f"log-probabilities are rounded to {min(steps):.3g} to {max(steps):.3g} nats, each list by itself"
    if step := _step(found):
        return f"log-probabilities are rounded to {step:.3g} nats"
    mantissas = np.frexp(found)[0] * 2**8
    if _are_whole(mantissas, 1e-4):
        return "log-probabilities are rounded to 8 bits of mantissa or fewer"
    for digits in (2, 3):
        rounded = np.array([float(f"{value:.{digits}g}") for value in found])
        if found.min() <= -(10 ** (digits - 2)) and np.all(np.abs(rounded / found - 1) < 1e-6):
            return f"log-probabilities are rounded to {digits} digits"
    likely = np.exp(found[found > np.log(0.0095)]) * 1000
    if len(likely) >= _ENOUGH and _are_whole(likely, 1e-3):
        return "probabilities are rounded to 3 decimals"
    return ""


def _own_step(values: Sequence[float]) -> float:
    """The step of one list's grid; 0 where there is none, or one that logits of 16 bits have."""
    step = _step(np.unique(np.array(sorted(values, reverse=True)[:_OF_ONE])), _ENOUGH_OF_ONE)
    parts = step * 2**7
    return 0.0 if abs(parts - round(parts)) < 0.02 else step


def _step(ordered: np.ndarray, enough: int = _ENOUGH) -> float:
    """The step of the grid that all values are on, whatever its offset; 0 where there is none of `_COARSE` or more."""
    gaps = np.diff(ordered)
    gaps = gaps[gaps > 2 * _OFF]
    if len(gaps) < enough - 1:
        return 0.0
    distances = np.sort(np.concatenate([gaps, ordered - ordered[0]]))
    for parts in range(1, 6):
        step = float(gaps.min()) / parts
        for distance in distances[distances > 0]:  # the longer, the closer
            if (steps := round(distance / step)) > 0 and abs(distance - steps * step) < step / 4:
                step = min(max(distance / steps, step * 0.99), step * 1.01)
        off = np.abs((ordered - ordered[0]) / step - np.round((ordered - ordered[0]) / step)) * step
        if step >= _COARSE * 0.999 and off.max() <= 2 * _OFF:
            return step
    return 0.0


def _are_whole(numbers: np.ndarray, within: float) -> bool:
    return bool(np.all(np.abs(numbers - np.round(numbers)) < within))

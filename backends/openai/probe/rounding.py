"""Whether listed log-probabilities are rounded too coarsely to be exact."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

#: Nats. The smallest grid step that is refused, and the tolerance around it (some servers print four decimals).
_COARSE, _OFF = 0.02, 1e-4
#: Fewer distinct values than this may lie on a grid by chance: in all lists together, and in one.
_ENOUGH, _ENOUGH_OF_ONE = 20, 8
#: How many values of one list are examined, likeliest first.
_OF_ONE = 100
#: Lists with so many different values that share more than this part of them with other lists are rounded, whatever
#: the grid. Counted are the first of each list that are not nearly certain: 16-bit logits give each its own offset.
_MANY, _MOST_SHARED, _FIRST, _SURE = 30, 0.5, 20, -0.01
#: Words of two lists that have one value in both: so many, and more than this share of those that both have. Other
#: prompts give other values, but where each word has a grid of its own.
_REPEATED, _MOST_REPEATED = 8, 0.025


def rounding_of_words(lists: Sequence[Mapping[str, float]]) -> str:
    """How words have the same log-probability after different prompts, if too often; else empty."""
    shared = repeated = 0
    for a, b in itertools.combinations(map(_single_values, lists), 2):
        common = a.keys() & b.keys()
        shared += len(common)
        repeated += sum(a[word] == b[word] for word in common)
    if repeated >= _REPEATED and repeated > _MOST_REPEATED * shared:
        return f"log-probabilities are rounded: {repeated} of {shared} are the same after another prompt"
    return ""


def _single_values(listed: Mapping[str, float]) -> dict[str, float]:
    """The likeliest words with a value that no other word of the list has, and that is not nearly certain."""
    likeliest = dict(sorted(listed.items(), key=lambda entry: -entry[1])[:_OF_ONE])
    counts = Counter(likeliest.values())
    return {word: value for word, value in likeliest.items() if counts[value] == 1 and value < _SURE}


def rounding(lists: Sequence[Sequence[float]]) -> str:
    """How the log-probabilities of these lists are rounded, in words; empty if they are not, or only finely.

    16-bit logits put the values of each list on a grid with an offset of its own and a power of two as its step.
    Rounding to such a step that differs between lists cannot be distinguished from 16-bit logits.
    """
    found = np.unique(np.array([value for values in lists for value in values if value < 0]))
    return (_grid(lists, found) if len(found) >= _ENOUGH else "") or _shared(lists)


def _shared(lists: Sequence[Sequence[float]]) -> str:
    """How many values these lists share, if too many; the coarser they are, the fewer show their grid."""
    own = [{value for value in sorted(values, reverse=True)[:_FIRST] if value < _SURE} for values in lists]
    in_all, distinct = sum(map(len, own)), len(set().union(*own))
    if in_all >= _MANY and in_all - distinct > _MOST_SHARED * in_all:
        return f"log-probabilities are rounded: {len(own)} lists share {distinct} different values"
    return ""


def _grid(lists: Sequence[Sequence[float]], found: np.ndarray) -> str:
    """The grid on which all values ``found`` in these lists lie, in words; empty if there is none."""
    steps = [step for values in lists if (step := _own_step(values))]
    if len(steps) > len(lists) / 2:
        return f"log-probabilities are rounded to {min(steps):.3g} to {max(steps):.3g} nats, each list separately"
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
    """The step of one list's grid; 0 if there is none, or one that 16-bit logits have."""
    step = _step(np.unique(np.array(sorted(values, reverse=True)[:_OF_ONE])), _ENOUGH_OF_ONE)
    parts = step * 2**7
    return 0.0 if abs(parts - round(parts)) < 0.02 else step


def _step(ordered: np.ndarray, enough: int = _ENOUGH) -> float:
    """The step of the grid on which all values lie, at any offset; 0 if there is none of `_COARSE` or more."""
    gaps = np.diff(ordered)
    gaps = gaps[gaps > 2 * _OFF]
    if len(gaps) < enough - 1:
        return 0.0
    distances = np.sort(np.concatenate([gaps, ordered - ordered[0]]))
    for parts in range(1, 6):
        step = float(gaps.min()) / parts
        for distance in distances[distances > 0]:  # longer distances give the step more precisely
            if (steps := round(distance / step)) > 0 and abs(distance - steps * step) < step / 4:
                step = min(max(distance / steps, step * 0.99), step * 1.01)
        off = np.abs((ordered - ordered[0]) / step - np.round((ordered - ordered[0]) / step)) * step
        if step >= _COARSE * 0.999 and off.max() <= 2 * _OFF:
            return step
    return 0.0


def _are_whole(numbers: np.ndarray, within: float) -> bool:
    return bool(np.all(np.abs(numbers - np.round(numbers)) < within))

"""Whether some of the drawn answers are copies of others, by the order in which they were asked for.

Draws of one question may be equal, and those of a model that is sure of its answer mostly are. But they come in no
particular order: equal ones are as near to each other as in a random permutation of the same draws. A cache that
returns an answer twice, at once or a little later, puts more equal ones near each other than that.

Each count of equal pairs at some distances has its mean and variance over all permutations (Moran, J. R. Stat. Soc. B
10, 1948), and a largest value. These bound its moment generating function (Bennett, J. Am. Stat. Assoc. 57, 1962), so
the evidence of all questions multiplies to an e-value: of runs whose draws are true, at most one in x ever exceeds x,
however often one looks (Ville, 1939) and however rare other answers than the likeliest are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence

import numpy as np

#: Pairs at distances up to each of these are counted together, and those at each single distance up to the last.
_NEAR, _FARTHEST = (1, 2, 4, 8), 200
#: λ of the exponential moments, over which the evidence is averaged.
_TILTS = np.geomspace(0.005, 4, 24)
#: Of honest runs, one in so many is refused at most.
_REFUSED = 1e5


class CopiedDraws:
    """The evidence for copies among the drawn answers of a run."""

    def __init__(self) -> None:
        self._near = {distance: np.zeros(len(_TILTS)) for distance in _NEAR}
        self._at = np.zeros((_FARTHEST, len(_TILTS)))

    def add(self, drawn: Sequence[Hashable]) -> None:
        """Add the drawn answers to one question, in the order in which they were asked for."""
        numbers: dict[Hashable, int] = {}
        codes = np.array([numbers.setdefault(one, len(numbers)) for one in drawn])
        if len(codes) < 4 or len(numbers) in (1, len(codes)):
            return  # every order is the same
        pairs = _EqualPairs(np.bincount(codes))
        equal = [int((codes[d:] == codes[:-d]).sum()) for d in range(1, min(len(codes) - 1, _FARTHEST) + 1)]
        for distance, count in enumerate(equal, 1):
            self._at[distance - 1] += pairs.log_ratios(count, range(distance, distance + 1))
        for distance in _NEAR:
            near = range(1, min(distance, len(equal)) + 1)
            self._near[distance] += pairs.log_ratios(sum(equal[: len(near)]), near)

    @property
    def found(self) -> bool:
        """Whether some draws are copies of others."""
        near = np.logaddexp.reduce([*self._near.values()], axis=None) - math.log(len(_NEAR))
        at_one = np.logaddexp.reduce(self._at, axis=None) - math.log(_FARTHEST)
        return bool(np.logaddexp(near, at_one) - math.log(2 * len(_TILTS)) > math.log(_REFUSED))


class _EqualPairs:
    """How many pairs of draws are equal in a random permutation; ``counts`` is how often each answer was drawn."""

    def __init__(self, counts: np.ndarray) -> None:
        self._counts = counts.astype(float)
        self._n = n = int(counts.sum())
        two = float((self._counts * (self._counts - 1)).sum())
        three = float((self._counts * (self._counts - 1) * (self._counts - 2)).sum())
        # The chances that two draws are equal, that three are, and that the members of each of two pairs are.
        self._two, self._three = two / (n * (n - 1)), three / (n * (n - 1) * (n - 2))
        self._two_and_two = (two**2 - 4 * three - 2 * two) / (n * (n - 1) * (n - 2) * (n - 3))

    def log_ratios(self, observed: int, distances: range) -> np.ndarray:
        """The log evidence, for each λ, of so many equal pairs at these distances: a single one, or all from 1 on."""
        pairs, chained = _pairs(self._n, distances)
        mean = pairs * self._two
        apart = pairs**2 - pairs - chained
        variance = pairs * self._two + chained * self._three + apart * self._two_and_two - mean**2
        # In each class of equal draws, pairs are most where its members stand next to each other.
        most = sum(float(np.maximum(self._counts - at, 0).sum()) for at in range(1, len(distances) + 1))
        above = min(pairs, most) - mean
        if variance < 1e-9 or above < 1e-9:
            return np.zeros(len(_TILTS))
        low = 2 * math.log(above) - _TILTS * variance / above
        high = math.log(variance) + _TILTS * above
        return np.asarray(_TILTS * (observed - mean) - np.logaddexp(low, high) + math.log(above**2 + variance))


@functools.lru_cache(maxsize=4096)
def _pairs(n: int, distances: range) -> tuple[float, float]:
    """How many pairs of ``n`` draws are at these distances, and how many pairs of such pairs share a draw (ordered)."""
    places = np.arange(n)
    others = np.sum([(places >= d).astype(float) + (places < n - d) for d in distances], axis=0)  # paired with each
    return float(others.sum()) / 2, float((others * (others - 1)).sum())

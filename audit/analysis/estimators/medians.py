"""Medians by stratum. Of many rows they are found by counting, block by block: sorting needs a copy of all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from audit.analysis.estimators.clusters import BLOCK, Strata, blocks
from audit.analysis.estimators.estimate import Codes, Floats

#: Bits of a number that are counted at a time, and the number of different ones.
_BITS, _DIGITS = 16, 2**16
_SIGN = np.uint64(1 << 63)


def medians(columns: Floats, strata: Strata) -> Floats:
    """The median (S, k) of each stratum's values (n, k)."""
    numbers = range(len(strata.weights))
    if len(columns) <= BLOCK:
        return np.stack([np.median(columns[strata.codes == s], axis=0) for s in numbers])
    return np.array([[_median(column, strata.codes, s) for column in columns.T] for s in numbers])


def _median(column: Floats, codes: Codes, stratum: int) -> float:
    size = sum(int((codes[rows] == stratum).sum()) for rows in blocks(len(codes)))
    middle = {_at_rank(column, codes, stratum, rank) for rank in ((size - 1) // 2, size // 2)}
    return float(np.mean(sorted(middle)))


def _at_rank(column: Floats, codes: Codes, stratum: int, rank: int) -> float:
    """The value of a rank, from 0, among a stratum's: its bits are found from the first to the last."""
    found = 0
    for shift in range(64 - _BITS, -1, -_BITS):
        counts = np.zeros(_DIGITS, dtype=np.intp)
        for keys in _keys(column, codes, stratum):
            near = keys if shift == 64 - _BITS else keys[keys >> np.uint64(shift + _BITS) == np.uint64(found)]
            digits = (near >> np.uint64(shift)) & np.uint64(_DIGITS - 1)
            counts += np.bincount(digits.astype(np.intp), minlength=_DIGITS)
        up_to = np.cumsum(counts)
        digit = int(np.searchsorted(up_to, rank, side="right"))
        rank -= int(up_to[digit] - counts[digit])
        found = found << _BITS | digit
    bits = np.array([found], dtype=np.uint64)
    return float(np.where(bits & _SIGN, bits ^ _SIGN, ~bits).view(float)[0])


def _keys(column: Floats, codes: Codes, stratum: int) -> Iterator[NDArray[np.uint64]]:
    """A stratum's values, block by block, as whole numbers in the same order."""
    for rows in blocks(len(codes)):
        own = column[rows][codes[rows] == stratum] + 0.0  # -0.0 equals 0.0
        bits = own.view(np.uint64)
        yield np.where(bits & _SIGN, ~bits, bits | _SIGN)

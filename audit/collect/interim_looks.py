"""The interim looks of a run with `until`: when it evaluates, and which items it has asked by then.

The items are taken in an order that the seed fixes in advance: balanced, otherwise random. So the data of each look are
a random sample that contains those of the look before. Look j may spend the share ``error`` of the error allowed over
all looks. The shares sum to 1, so by Bonferroni's inequality the run's statements hold at its confidence wherever it
stops, however the looks depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Cumulative shares of the items, by look. Finer steps cost more in error than they save in items.
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0)
#: Parts of the error that the last look, with all items, may spend; each earlier one spends one part.
_LAST_PARTS = 3
#: Looks at which no suite has this many items are left out: they decide next to nothing.
_MIN_ITEMS = 40


@dataclass(frozen=True, slots=True)
class InterimLook:
    """A look at the answers: its number (from 1), the share of the items asked by then, its share of the error."""

    number: int
    items: float
    error: float


#: The only look of a run that asks everything.
ALL_AT_ONCE = (InterimLook(1, 1.0, 1.0),)


def plan_looks(sizes: Iterable[int]) -> tuple[InterimLook, ...]:
    """The looks of a run, given each suite's number of items."""
    largest = max(sizes)
    shares = [share for share in SHARES if share == 1.0 or share * largest >= _MIN_ITEMS]
    parts = len(shares) - 1 + _LAST_PARTS
    return tuple(
        InterimLook(number, share, (_LAST_PARTS if share == 1.0 else 1) / parts)
        for number, share in enumerate(shares, 1)
    )


def plan_precision_looks(sizes: Iterable[int]) -> tuple[InterimLook, ...]:
    """The looks of a run that ends by the width of its intervals.

    Each look has all of the error: the width says when to stop, and not where the interval lies, so that it still holds
    the truth as often as one of a fixed sample (Chow and Robbins 1965, Annals of Mathematical Statistics 36(2)).
    """
    largest = max(sizes)
    shares = [tenths / 10 for tenths in range(1, 11) if tenths == 10 or tenths / 10 * largest >= _MIN_ITEMS]
    return tuple(InterimLook(number, share, 1.0) for number, share in enumerate(shares, 1))


def assign_looks(units: Sequence[int], of_item: Sequence[int], looks: Sequence[InterimLook]) -> list[int]:
    """The number of the look (n,) by which each of n items is asked.

    Parameters
    ----------
    units : sequence of int
        Ids of the sets of items that are asked together, in the order in which they are taken.
    of_item : sequence of int
        The id of each item's set (n,).
    """
    sizes: dict[int, int] = dict.fromkeys(units, 0)
    for unit in of_item:
        sizes[unit] += 1
    by_unit = _assign_units(sizes, len(of_item), looks)
    return [by_unit[unit] for unit in of_item]


def _assign_units(sizes: Mapping[int, int], total: int, looks: Sequence[InterimLook]) -> dict[int, int]:
    ends = [math.ceil(look.items * total) for look in looks]
    found: dict[int, int] = {}
    taken = place = 0
    for unit, size in sizes.items():
        # A set goes to the first look that is not full yet; the first look gets at least one.
        while taken >= ends[place] and place < len(ends) - 1:
            place += 1
        found[unit] = looks[place].number
        taken += size
    return found

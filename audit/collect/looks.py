"""When a run that asks until it is decided looks at its answers, and which items it has asked by then.

The items are taken in an order that the seed fixes beforehand: balanced, and otherwise random. So each look sees a
random sample, and the next one goes on from there. Look j may spend the share ``error`` of the error that is allowed
over all looks. These shares add up to 1, so by Bonferroni's inequality the run's statements hold at its confidence,
wherever it ends and however the looks depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Shares of the items that are asked by each look. Finer steps cost more in error than they save in items.
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0)
#: Parts of the error that the last look, at all items, may spend; the others spend one each.
_LAST = 3
#: Earlier looks at fewer items than this of every suite are left out: they decide next to nothing.
_FEWEST = 40


@dataclass(frozen=True, slots=True)
class Look:
    """A look: which one (from 1), by which share of the items, with which share of the error."""

    number: int
    items: float
    error: float


#: The only look of a run that asks everything.
ALL_AT_ONCE = (Look(1, 1.0, 1.0),)


def plan_looks(sizes: Iterable[int]) -> tuple[Look, ...]:
    """The looks of a run whose suites have these numbers of items."""
    largest = max(sizes)
    shares = [share for share in SHARES if share == 1.0 or share * largest >= _FEWEST]
    parts = len(shares) - 1 + _LAST
    return tuple(Look(number, share, (_LAST if share == 1.0 else 1) / parts) for number, share in enumerate(shares, 1))


def looks_of_items(units: Sequence[int], of_item: Sequence[int], looks: Sequence[Look]) -> list[int]:
    """The number of the look (n,) by which each item is asked.

    Parameters
    ----------
    units : sequence of int
        Names of the sets of items that are asked together, in the order in which they are taken.
    of_item : sequence of int
        For each of the n items the name of its set.
    """
    sizes: dict[int, int] = dict.fromkeys(units, 0)
    for unit in of_item:
        sizes[unit] += 1
    by_unit = _looks_of_units(sizes, len(of_item), looks)
    return [by_unit[unit] for unit in of_item]


def _looks_of_units(sizes: Mapping[int, int], total: int, looks: Sequence[Look]) -> dict[int, int]:
    ends = [math.ceil(look.items * total) for look in looks]
    found: dict[int, int] = {}
    taken = place = 0
    for unit, size in sizes.items():
        # A set begins in the look that is not full yet; the first look has at least one.
        while taken >= ends[place] and place < len(ends) - 1:
            place += 1
        found[unit] = looks[place].number
        taken += size
    return found

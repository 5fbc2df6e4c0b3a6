"""Which of a suite's items are asked: a balanced sample, the same for every model, or one part of several.

What a sample needs to decide something is checked in `audit.prepare.resolve`.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from audit.store.keys import canonical_json, prompt_json, text_id, to_bytes
from backends.errors import ConfigError
from suites.base import Factor, Family, Item, MeasureSpec, Suite

#: Raise it when a limit and seed select other items than before: figures of different versions are not compared.
SAMPLE_VERSION = 2


class Sample:
    """A suite's items in the order in which a limited run takes them.

    Items (or whole sets of them) are drawn one by one, each where it is needed most: from the combination of
    ``strata`` drawn least so far, and there the one whose levels of ``strata`` and ``crossed`` were drawn least.
    Of items that lack a crossed factor the same share is drawn as of the others. So a small sample has many levels of
    every factor, and a larger sample contains it. Controls, on which the rows of others depend, come first.

    Parameters
    ----------
    items : iterable of Item
        All items, in order. Iterated over once here, and once for each sample.
    strata : sequence of str
        Factors: each combination of their levels gets the same number of items, as far as it has that many.
    seed : int
        Breaks ties by a hash of ``seed`` and the item's identity: the choice depends on nothing else.
    together : sequence of str
        Items with equal values of these factors are kept or dropped as a whole. A sample then has as many whole sets
        as fit into its limit.
    crossed : sequence of str
        Further factors whose levels should be drawn equally often: those that figures generalise over.
    """

    def __init__(
        self,
        items: Iterable[Item],
        strata: Sequence[str],
        seed: int,
        together: Sequence[str] = (),
        crossed: Sequence[str] = (),
    ) -> None:
        self._items = items
        self._units, self._of_item = _units(items, tuple(strata), tuple(together), tuple(crossed), seed)

    def take(self, limit: int) -> list[Item]:
        """At most ``limit`` items, in their original order; all items if there are no more than that.

        Raises
        ------
        ConfigError
            If ``limit`` is below 1, or smaller than one set of items that belong together.
        """
        if limit < 1:
            raise ConfigError("limit", limit, "is not a number of items", "Give at least 1, or leave it out for all")
        if len(self._of_item) <= limit:
            return list(self._items)
        chosen, room = set[int](), limit
        for rank in _in_order(self._units):
            room -= self._units[rank].size
            if room < 0:  # even if a later one would fit: a larger limit only adds units
                break
            chosen.add(rank)
        if all(self._units[rank].first for rank in chosen):
            besides = f", and the {self._controls} controls" if self._controls else ""
            problem = f"is smaller than one set of items that belong together{besides}"
            raise ConfigError("limit", limit, problem, f"Give {self.smallest} or more")
        return list(itertools.compress(self._items, (unit in chosen for unit in self._of_item)))

    @property
    def smallest(self) -> int:
        """The smallest possible limit: one set of items, and all controls."""
        return self._controls + min((unit.size for unit in self._units.values() if not unit.first), default=0)

    def looks(self, shares: Sequence[float]) -> list[int]:
        """The number (n,), from 1, of the look by which each item is taken; by each look this share of all is."""
        sizes = Counter(self._of_item)
        ends = [math.ceil(share * len(self._of_item)) for share in shares]
        by_unit: dict[int, int] = {}
        taken = place = 0
        for rank in _in_order(self._units):
            # A set goes to the first look that is not full yet; the first look gets at least one.
            while taken >= ends[place] and place < len(ends) - 1:
                place += 1
            by_unit[rank] = place + 1
            taken += sizes[rank]
        return [by_unit[rank] for rank in self._of_item]

    def least(self, enough: Callable[[Sequence[Item]], bool]) -> int:
        """The smallest limit whose sample is ``enough``; that of all items if none is."""
        of_unit: dict[int, list[Item]] = {}
        for item, rank in zip(self._items, self._of_item, strict=True):
            of_unit.setdefault(rank, []).append(item)
        taken: list[Item] = []
        size = 0
        for rank in _in_order(self._units):
            taken += of_unit[rank]
            size += self._units[rank].size
            if enough(taken):
                break
        return size

    @property
    def _controls(self) -> int:
        return sum(unit.size for unit in self._units.values() if unit.first)


@dataclass
class _Unit:
    """An item, or a set of items that belong together, with its levels, its size and its strata.

    ``aside``: it lacks a crossed factor, so it does not enter figures that generalise over that factor.
    ``first``: it is a control. ``size``: its questions to the audited model, and those of its own to scorers.
    """

    levels: tuple[str, ...]
    aside: bool
    first: bool
    size: int = 0
    strata: set[str] = field(default_factory=set)


def _units(
    items: Iterable[Item], strata: tuple[str, ...], together: tuple[str, ...], crossed: tuple[str, ...], seed: int
) -> tuple[dict[int, _Unit], list[int]]:
    """The units by rank, and the rank of each item's unit."""
    units: dict[int, _Unit] = {}
    of_item: list[int] = []
    balanced = tuple(dict.fromkeys((*strata, *crossed)))
    for item in items:
        rank = _rank(item, () if item.is_control else together, seed)
        of_item.append(rank)
        unit = units.get(rank)
        if unit is None:
            aside = None in map(item.factors.get, crossed)
            levels = tuple(map(_as_text, map(item.factors.get, balanced)))
            unit = units[rank] = _Unit(levels, aside, item.is_control)
        unit.size += not (item.is_control and item.scorer)  # what a scorer reads first costs the model nothing
        unit.strata.add(_as_text(*map(item.factors.get, strata)))
    return units, of_item


@functools.lru_cache(maxsize=4096, typed=True)  # True is not 1
def _as_text(*levels: Factor) -> str:
    return canonical_json(levels)


def _rank(item: Item, together: tuple[str, ...], seed: int) -> int:
    identity = list(map(item.factors.get, together)) if together else item.id
    digest = hashlib.sha256(to_bytes(f"{seed}\n{canonical_json(identity)}")).digest()
    return int.from_bytes(digest[:16], "big")


def _in_order(units: Mapping[int, _Unit]) -> Iterator[int]:
    """The ranks of all units: controls first, then each unit where it is needed most."""
    yield from (rank for rank in sorted(units) if units[rank].first)
    ranks = [rank for rank in sorted(units) if not units[rank].first]
    strata = _codes([_as_text(*sorted(units[rank].strata)) for rank in ranks])
    factors = [_codes(list(of_factor)) for of_factor in zip(*(units[rank].levels for rank in ranks), strict=True)]
    aside = np.array([units[rank].aside for rank in ranks], dtype=np.bool_)
    served = np.zeros(int(strata.max(initial=-1)) + 1)
    times = [np.zeros(int(codes.max()) + 1) for codes in factors]
    total, drawn = Counter(aside.tolist()), Counter[bool]()
    left = np.ones(len(ranks), dtype=np.bool_)
    for _ in ranks:
        # Of the units aside, the same share is drawn as of the others.
        late = (drawn[True] + 1) * total[False] <= drawn[False] * total[True]
        behind = left & (aside == late)
        behind = behind if behind.any() else left
        need = np.where(behind, served[strata], np.inf)
        candidates = np.flatnonzero(need == need.min())  # in the order of their ranks
        # A level's count is weighted by the number of levels, so that each factor cycles through its own levels.
        turns = np.zeros(len(candidates))
        for counts, codes in zip(times, factors, strict=True):
            turns = turns + counts[codes[candidates]] * counts.size
        place = int(candidates[int(turns.argmin())])
        left[place] = False
        drawn[bool(aside[place])] += 1
        served[strata[place]] += 1
        for counts, codes in zip(times, factors, strict=True):
            counts[codes[place]] += 1
        yield ranks[place]


def _codes(labels: list[str]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return np.fromiter(map(numbers.__getitem__, labels), np.intp, len(labels))


def in_part(items: Iterable[Item], part: tuple[int, int]) -> bytearray:
    """1 for each item that belongs to a part, else 0. (2, 3) is the second of three.

    An item's prompt decides, by its hash: so the parts do not depend on the order of the items, on the machine or on
    the model; a prompt that several items share is asked in one part alone; and so is what follows from its answer.
    """
    number, of = part
    return bytearray(int.from_bytes(text_id(prompt_json(item.request))) % of + 1 == number for item in items)


# -- the interim looks of a run with `until` ---------------------------------------------------------

#: Cumulative shares of the items, by look. Finer steps cost more in error than they save in items.
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0)
#: Parts of the error that the last look, with all items, may spend; each earlier one spends one part.
_LAST_PARTS = 3
#: Looks at which no suite has this many items are left out: they decide next to nothing.
_MIN_ITEMS = 40


@dataclass(frozen=True, slots=True)
class InterimLook:
    """A look at the answers: its number (from 1), the share of the items asked by then, its share of the error.

    The seed fixes in advance in which order items are taken: balanced, otherwise random. So each look's data are a
    random sample that contains those of the look before. The errors sum to 1, so by Bonferroni's inequality the run's
    statements hold at its confidence wherever it stops, however the looks depend on each other.
    """

    number: int
    items: float
    error: float


#: The only look of a run that asks everything.
ALL_AT_ONCE = (InterimLook(1, 1.0, 1.0),)


def plan_looks(sizes: Iterable[int], *, by_width: bool = False) -> tuple[InterimLook, ...]:
    """The looks of a run, given each suite's number of items.

    ``by_width``: the run ends by the width of its intervals. Then each look has all of the error: the width says when
    to stop, and not where the interval lies, so that it still holds the truth as often as one of a fixed sample (Chow
    and Robbins 1965, Annals of Mathematical Statistics 36(2)).
    """
    largest = max(sizes)
    planned = [tenths / 10 for tenths in range(1, 11)] if by_width else SHARES
    shares = [share for share in planned if share == 1.0 or share * largest >= _MIN_ITEMS]
    parts = len(shares) - 1 + _LAST_PARTS
    errors = [1.0 if by_width else (_LAST_PARTS if share == 1.0 else 1) / parts for share in shares]
    return tuple(map(InterimLook, range(1, len(shares) + 1), shares, errors))


# -- what figures generalise over ------------------------------------------------------------------

#: The levels of each factor that a sample should have: two to four decide only what is large (t with one to three
#: degrees of freedom).
LEAST_LEVELS = 5


def leading_specs(suite: Suite) -> list[MeasureSpec]:
    """The figures that a sample must support: the suite's primary ones, or else all that are not of a single level."""
    specs = [spec for spec in suite.measures(()) if not spec.is_subgroup]
    return [spec for spec in specs if spec.primary] or specs


def sampled_factors(specs: Sequence[MeasureSpec]) -> tuple[str, ...]:
    """The factors over which the figures generalise."""
    return tuple(dict.fromkeys(factor for spec in specs for factor in spec.clusters if factor not in spec.where))


def sample_of(suite: Suite, items: Iterable[Item], seed: int) -> Sample:
    """A sample of a suite's items, balanced over what its leading figures generalise over."""
    return Sample(items, suite.strata, seed, suite.sampled_together, sampled_factors(leading_specs(suite)))


def levels_behind(
    items: Collection[Item], spec: MeasureSpec, families: Mapping[str, Family] | None = None
) -> dict[str, int]:
    """The number of levels, among the items behind a figure, of each factor that it generalises over; or of the
    factor's family, by its name, where the suite declares one (`suites.base.Suite.families`)."""
    found: dict[str, int] = {}
    behind = items_behind(items, spec)
    for factor in sampled_factors([spec]):
        levels = {item.factors[factor] for item in behind if item.factors.get(factor) is not None}
        family = (families or {}).get(factor)
        if family is not None:
            levels = {family.of.get(level, level) for level in levels}
        if levels:
            found[factor if family is None else family.name] = len(levels)
    return found


def items_behind(items: Collection[Item], spec: MeasureSpec) -> Collection[Item]:
    """The items behind a figure, of strata that have a weight.

    A figure of derived rows may be conditioned on factors that no item has; all items are then taken to be behind it.
    """
    behind = matching(items, spec) or items
    if spec.stratum is None or spec.weights is None:
        return behind
    return [item for item in behind if item.factors.get(spec.stratum) in spec.weights] or behind


def matching(items: Collection[Item], spec: MeasureSpec) -> Collection[Item]:
    """The items that fulfil a figure's condition."""
    for name, level in spec.where.items():
        items = [item for item in items if item.factors.get(name) == level]
    return items

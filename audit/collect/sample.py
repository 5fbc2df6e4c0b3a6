"""Which of a suite's items are asked: a balanced sample, the same for every model, or one part of several."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from audit.store.keys import canonical_json, prompt_json, text_id, to_bytes
from backends.errors import ConfigError
from suites.base import Factor, Item

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
        chosen = self._choose(limit)
        return list(itertools.compress(self._items, (unit in chosen for unit in self._of_item)))

    @property
    def smallest(self) -> int:
        """The smallest possible limit: one set of items, and all controls."""
        return self._controls + min((unit.size for unit in self._units.values() if not unit.first), default=0)

    def order(self) -> tuple[list[int], list[int]]:
        """Ids of the sets of items in the order in which they are drawn, and the id of each item's set (n,)."""
        return list(_in_order(self._units)), self._of_item

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

    def _choose(self, limit: int) -> Set[int]:
        """Ranks of the units up to the first that does not fit, so that a larger limit only adds units."""
        if len(self._of_item) <= limit:
            return self._units.keys()
        chosen: set[int] = set()
        room = limit
        for rank in _in_order(self._units):
            room -= self._units[rank].size
            if room < 0:
                break
            chosen.add(rank)
        if all(self._units[rank].first for rank in chosen):
            besides = f", and the {self._controls} controls" if self._controls else ""
            problem = f"is smaller than one set of items that belong together{besides}"
            raise ConfigError("limit", limit, problem, f"Give {self.smallest} or more")
        return chosen

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
            aside = any(item.factors.get(f) is None for f in crossed)
            unit = units[rank] = _Unit(tuple([_levels(item.factors.get(f)) for f in balanced]), aside, item.is_control)
        unit.size += not (item.is_control and item.scorer)  # what a scorer reads first costs the model nothing
        unit.strata.add(_levels(*[item.factors.get(f) for f in strata]))
    return units, of_item


@functools.lru_cache(maxsize=4096, typed=True)  # True is not 1
def _levels(*levels: Factor) -> str:
    return canonical_json(levels)


def _rank(item: Item, together: tuple[str, ...], seed: int) -> int:
    if together:
        return _rank_of_levels(seed, *[item.factors.get(f) for f in together])
    return _hashed(seed, item.id)


@functools.lru_cache(maxsize=4096, typed=True)  # a set's items mostly follow each other
def _rank_of_levels(seed: int, *levels: Factor) -> int:
    return _hashed(seed, levels)


def _hashed(seed: int, identity: object) -> int:
    digest = hashlib.sha256(to_bytes(f"{seed}\n{canonical_json(identity)}")).digest()
    return int.from_bytes(digest[:16], "big")


def _in_order(units: Mapping[int, _Unit]) -> Iterator[int]:
    """The ranks of all units: controls first, then each unit where it is needed most."""
    yield from (rank for rank in sorted(units) if units[rank].first)
    ranks = [rank for rank in sorted(units) if not units[rank].first]
    strata = _codes([_levels(*sorted(units[rank].strata)) for rank in ranks])
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

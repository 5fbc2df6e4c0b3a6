"""Which of a suite's items are asked: a balanced sample, the same for every model, or one part of several.

A sample decides something only if it has several levels of each factor to generalise over (`Requirement`).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

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
            unit = units[rank] = _Unit(tuple([_as_text(item.factors.get(f)) for f in balanced]), aside, item.is_control)
        unit.size += not (item.is_control and item.scorer)  # what a scorer reads first costs the model nothing
        unit.strata.add(_as_text(*[item.factors.get(f) for f in strata]))
    return units, of_item


@functools.lru_cache(maxsize=4096, typed=True)  # True is not 1
def _as_text(*levels: Factor) -> str:
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


# -- what a sample needs ---------------------------------------------------------------------------

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


def levels_behind(
    items: Collection[Item], spec: MeasureSpec, families: Mapping[str, Family] | None = None
) -> dict[str, int]:
    """The number of levels, among the items behind a figure, of each factor that it generalises over; or of the
    factor's family, by its name, where the suite declares one (`suites.base.Suite.families`).

    A figure of derived rows may be conditioned on factors that no item has; all items are then taken to be behind it.
    """
    found: dict[str, int] = {}
    for factor, strata in _levels(items_behind(items, spec), spec).items():
        levels = set().union(*strata.values())
        family = (families or {}).get(factor)
        found[factor if family is None else family.name] = len(
            levels if family is None else {family.of.get(level, level) for level in levels}
        )
    return found


def _by_stratum(of_levels: Mapping[str, Mapping[Factor, set[Factor]]]) -> dict[str, dict[Factor, int]]:
    found: dict[str, dict[Factor, int]] = {}
    for factor, strata in of_levels.items():
        levels = len(set().union(*strata.values()))
        is_nested = levels == sum(map(len, strata.values()))
        found[factor] = {stratum: len(own) for stratum, own in strata.items()} if is_nested else {None: levels}
    return found


def items_behind(items: Collection[Item], spec: MeasureSpec) -> Collection[Item]:
    """The items behind a figure, of strata that have a weight; all of them if its condition is on factors that no item
    has."""
    behind = _matching(items, spec.where) or items
    return _weighted(behind, spec) or behind


def _matching(items: Collection[Item], where: Mapping[str, Factor]) -> Collection[Item]:
    """The items that fulfil a condition."""
    for name, level in where.items():
        items = [item for item in items if item.factors.get(name) == level]
    return items


def _weighted(items: Collection[Item], spec: MeasureSpec) -> Collection[Item]:
    """The items of strata that count in the figure."""
    if spec.stratum is None or spec.weights is None:
        return items
    return [item for item in items if item.factors.get(spec.stratum) in spec.weights]


def _weighted_strata(items: Collection[Item], spec: MeasureSpec) -> set[Factor]:
    """The strata that count in the figure and have items."""
    if not spec.stratum or not spec.weights:
        return set()
    return {item.factors.get(spec.stratum) for item in items} & set(spec.weights)


def _levels(items: Collection[Item], spec: MeasureSpec) -> dict[str, dict[Factor, set[Factor]]]:
    """The levels of each factor, by stratum."""
    factors = [factor for factor in spec.clusters if factor not in spec.where]
    found: dict[str, dict[Factor, set[Factor]]] = {factor: defaultdict(set) for factor in factors}
    for item in items:
        stratum = None if spec.stratum is None else item.factors.get(spec.stratum)
        for factor in factors:
            if item.factors.get(factor) is not None:
                found[factor][stratum].add(item.factors[factor])
    return {factor: dict(strata) for factor, strata in found.items() if strata}


def _levels_or_items(items: Collection[Item], spec: MeasureSpec) -> dict[str, dict[Factor, set[Factor]]]:
    """The levels of each factor, by stratum; of a figure that samples none, the items are the sample."""
    if sampled_factors([spec]) or spec.membership is not None:
        return _levels(items, spec)
    found: dict[Factor, set[Factor]] = defaultdict(set)
    for item in items:
        if not item.is_control:
            found[None if spec.stratum is None else item.factors.get(spec.stratum)].add(item.id)
    return {"item": dict(found)} if found else {}


class Lacking(NamedTuple):
    """A figure whose items have ``found`` levels of a factor, but need ``needed``."""

    spec: MeasureSpec
    factor: str
    found: int
    needed: int


class Requirement:
    """A sample needs, for each figure, `LEAST_LEVELS` levels of each factor in each stratum, or all that exist, and
    items of each stratum; for a figure without such factors, as many items."""

    def __init__(self, items: Collection[Item], specs: Sequence[MeasureSpec]) -> None:
        # Whether a figure's condition is one of the items' factors does not depend on the sample.
        self._is_of_items = [bool(_matching(items, spec.where)) for spec in specs]
        self._whole = [(spec, _by_stratum(_levels_or_items(items_behind(items, spec), spec))) for spec in specs]
        self._strata = [_weighted_strata(items_behind(items, spec), spec) for spec in specs]

    def lacking(self, items: Collection[Item]) -> Lacking | None:
        """The factor of which the sample has the smallest part of the levels needed; None if it has enough of each."""
        found = [one for one in self._found(items) if one.found < one.needed]
        return min(found, key=lambda one: one.found / one.needed, default=None)

    @property
    def unattainable(self) -> Lacking | None:
        """The factor that has the fewest levels, below `LEAST_LEVELS`, among all items; None if all have enough."""
        needed = (
            Lacking(spec, factor, min(strata.values()), LEAST_LEVELS)
            for spec, whole in self._whole
            for factor, strata in whole.items()
        )
        found = [one for one in needed if one.found < one.needed]
        return min(found, key=lambda one: one.found, default=None)

    def _found(self, items: Collection[Item]) -> Iterator[Lacking]:
        """The levels of each factor of each figure; of each stratum, if the factor is nested in it. Then the strata."""
        for (spec, whole), strata_of, is_of_items in zip(self._whole, self._strata, self._is_of_items, strict=True):
            behind = _matching(items, spec.where) if is_of_items else items
            if strata_of:
                behind = _weighted(behind, spec)
            found = _levels_or_items(behind, spec)
            for factor, strata in whole.items():
                of = found.get(factor, {})
                is_crossed = None in strata
                for stratum, levels in strata.items():  # a stratum that the sample lacks has no levels
                    own = set().union(*of.values()) if is_crossed else of.get(stratum, set())
                    yield Lacking(spec, factor, len(own), min(levels, LEAST_LEVELS))
            if spec.stratum is not None and strata_of:  # factors that cross the strata say nothing of one that lacks
                yield Lacking(spec, spec.stratum, len(_weighted_strata(behind, spec)), len(strata_of))

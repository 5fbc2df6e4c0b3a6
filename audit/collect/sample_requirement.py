"""Whether a sample is large enough to decide anything: it needs several levels of each factor to generalise over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from suites.base import Factor, Family, Item, MeasureSpec, Suite

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

"""Whether a sample is large enough to decide anything: it needs several levels of each factor to generalise over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from suites.base import Factor, Item, MeasureSpec, Suite

#: With fewer levels of a factor, a figure that generalises over it decides nothing.
LEAST_LEVELS = 5


def leading_specs(suite: Suite) -> list[MeasureSpec]:
    """The figures that a sample must support: the suite's primary ones, or else all that are not of a single level."""
    specs = [spec for spec in suite.measures(()) if not spec.is_subgroup]
    return [spec for spec in specs if spec.primary] or specs


def sampled_factors(specs: Sequence[MeasureSpec]) -> tuple[str, ...]:
    """The factors over which the figures generalise."""
    return tuple(dict.fromkeys(factor for spec in specs for factor in spec.clusters if factor not in spec.where))


def levels_behind(items: Collection[Item], spec: MeasureSpec) -> dict[str, int]:
    """The number of levels, among the items behind a figure, of each factor that it generalises over.

    A figure of derived rows may be conditioned on factors that no item has; all items are then taken to be behind it.
    """
    return {factor: len(set().union(*strata.values())) for factor, strata in _levels(items, spec).items()}


def levels_by_stratum(items: Collection[Item], spec: MeasureSpec) -> dict[str, dict[Factor, int]]:
    """`levels_behind` by stratum if each level belongs to only one; otherwise the total, under None."""
    found: dict[str, dict[Factor, int]] = {}
    for factor, strata in _levels(items, spec).items():
        levels = len(set().union(*strata.values()))
        is_nested = levels == sum(map(len, strata.values()))
        found[factor] = {stratum: len(own) for stratum, own in strata.items()} if is_nested else {None: levels}
    return found


def _levels(items: Collection[Item], spec: MeasureSpec) -> dict[str, dict[Factor, set[Factor]]]:
    """The levels of each factor, by stratum."""
    factors = [factor for factor in spec.clusters if factor not in spec.where]
    matching = [item for item in items if _matches(item.factors, spec.where)] or items
    found: dict[str, dict[Factor, set[Factor]]] = {factor: defaultdict(set) for factor in factors}
    for item in matching:
        stratum = None if spec.stratum is None else item.factors.get(spec.stratum)
        for factor in factors:
            if item.factors.get(factor) is not None:
                found[factor][stratum].add(item.factors[factor])
    return {factor: dict(strata) for factor, strata in found.items() if strata}


def _matches(factors: Mapping[str, Factor], where: Mapping[str, Factor]) -> bool:
    return all(factors.get(name) == level for name, level in where.items())


class Lacking(NamedTuple):
    """A figure whose items have ``found`` levels of a factor, but need ``needed``."""

    measure: str
    factor: str
    found: int
    needed: int


class Requirement:
    """A sample needs, for each figure, `LEAST_LEVELS` levels of each factor in each stratum, or all that exist."""

    def __init__(self, items: Collection[Item], specs: Sequence[MeasureSpec]) -> None:
        self._whole = [(spec, levels_by_stratum(items, spec)) for spec in specs]

    def lacking(self, items: Collection[Item]) -> Lacking | None:
        """The first factor of which the sample has too few levels; None if it has enough."""
        for spec, whole in self._whole:
            found = _levels(items, spec)
            for factor, strata in whole.items():
                of = found.get(factor, {})
                is_crossed = None in strata
                for stratum, levels in strata.items():  # a stratum that the sample lacks has no levels
                    own = set().union(*of.values()) if is_crossed else of.get(stratum, set())
                    if len(own) < min(levels, LEAST_LEVELS):
                        return Lacking(spec.measure, factor, len(own), min(levels, LEAST_LEVELS))
        return None

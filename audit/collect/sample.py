"""A balanced sample of a suite's items, the same for every model."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Sequence

from audit.store.keys import canonical_json, to_bytes
from backends.errors import ConfigError
from suites.base import Factor, Item


def limit_items(
    items: Iterable[Item], strata: Sequence[str], limit: int, seed: int, together: Sequence[str] = ()
) -> list[Item]:
    """A balanced sample of ``limit`` items, the same for every model.

    Parameters
    ----------
    items : iterable of Item
        All items, in their order. Gone through twice: first to choose, then to pick.
    strata : sequence of str
        Factors: each combination of their levels gets the same number of items, as far as it
        has that many; what is over goes to combinations drawn by ``seed``.
    limit : int
        How many items, at least 1. All of them when there are no more than that.
    seed : int
        Which items: they are ranked by a hash of ``seed`` and their identity, so that the choice
        depends on nothing else.
    together : sequence of str
        Factors whose equal values name one set of items that is kept or dropped as a whole. The
        sample then has as many whole sets as fit into ``limit``.

    Returns
    -------
    list of Item
        The sampled items, in their original order.

    Raises
    ------
    ConfigError
        ``limit`` is below 1, or smaller than one set of ``together``.
    """
    if limit < 1:
        raise ConfigError("limit", limit, "is not a number of items", "Give at least 1, or leave it out for all")
    strata, together = tuple(strata), tuple(together)
    sizes: dict[int, int] = {}
    strata_of: dict[int, tuple[str, ...]] = {}
    units: list[int] = []
    for item in items:
        unit = _rank(item, together, seed)
        units.append(unit)
        sizes[unit] = sizes.get(unit, 0) + 1
        levels = _levels(*[item.factors.get(f) for f in strata])
        present = strata_of.get(unit, ())
        if levels not in present:
            strata_of[unit] = tuple(sorted((*present, levels)))
    chosen = _choose(sizes, strata_of, limit, seed)
    return list(itertools.compress(items, (unit in chosen for unit in units)))


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


def _choose(sizes: dict[int, int], strata_of: dict[int, tuple[str, ...]], limit: int, seed: int) -> frozenset[int]:
    """Units in rounds: each round gives one more to every stratum, least served first, until none fits."""
    waiting: dict[tuple[str, ...], list[int]] = {}
    for unit in sorted(sizes, reverse=True):
        waiting.setdefault(strata_of[unit], []).append(unit)
    order = sorted(waiting, key=lambda s: hashlib.sha256(to_bytes(f"{seed}\n{canonical_json(s)}")).digest())
    chosen: set[int] = set()
    left = limit
    while order:
        for stratum in list(order):
            units = waiting[stratum]
            if not units or sizes[units[-1]] > left:
                order.remove(stratum)
                continue
            unit = units.pop()
            chosen.add(unit)
            left -= sizes[unit]
    if sizes and not chosen:
        raise ConfigError(
            "limit", limit, f"is smaller than one set of items that belong together ({min(sizes.values())})", "Raise it"
        )
    return frozenset(chosen)

"""The positions of items by id, without the ids in memory: a million of them take 150 MB as keys of a dict."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from audit.spool import mapped, scratch

_BYTES = 16  # of an id's hash: no two of 10^9 ids share one, but for a chance of 10^-21

_AT_ONCE = 2**16  # ids that are hashed, and about half of those that are put in order, at a time

_Hashes = np.ndarray[Any, np.dtype[Any]]


class ItemIndex(Mapping[str, int]):
    """The position of each of different ids, by their hashes.

    Parameters
    ----------
    ids : callable
        Gives the ids in order, as often as it is called.

    Raises
    ------
    ValueError
        If an id occurs twice.
    """

    def __init__(self, ids: Callable[[], Iterator[str]]) -> None:
        self._ids = ids
        pieces = list(_hashes(ids()))
        n, end = sum(map(len, pieces)), 0
        self._first, self._second = scratch(n, np.uint64, stays=True), scratch(n, np.uint64, stays=True)
        self._order = scratch(n, np.uint32, stays=True)
        for first, second, places in _in_order(pieces, n):
            if ((first[1:] == first[:-1]) & (second[1:] == second[:-1])).any():
                raise ValueError("an id occurs twice")
            rows = slice(end, end := end + len(places))
            self._first[rows], self._second[rows], self._order[rows] = first, second, places

    def __getitem__(self, item: str) -> int:
        found = _hash(item)
        first, second = int.from_bytes(found[:8], "big"), int.from_bytes(found[8:], "big")
        at = int(np.searchsorted(self._first, np.uint64(first)))
        while at < len(self) and self._first[at] == first:
            if self._second[at] == second:
                return int(self._order[at])
            at += 1
        raise KeyError(item)

    def __contains__(self, item: object) -> bool:
        return isinstance(item, str) and self.get(item) is not None

    def __iter__(self) -> Iterator[str]:
        return self._ids()

    def __len__(self) -> int:
        return len(self._order)

    def is_like(self, other: ItemIndex) -> bool:
        """Whether the other has the same ids at the same positions."""
        return all(
            np.array_equal(mine, theirs)
            for mine, theirs in (
                (self._first, other._first), (self._second, other._second), (self._order, other._order)
            )
        )  # fmt: skip


def positions_of(ids: Callable[[], Iterator[str]], like: Mapping[str, int] | None = None) -> Mapping[str, int] | None:
    """The position of each id; ``like`` itself where it is equal, and None if an id occurs twice."""
    try:
        own = ItemIndex(ids)
    except ValueError:
        return None
    return like if isinstance(like, ItemIndex) and own.is_like(like) else own


def are_alike(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether both are known to have the same ids at the same positions."""
    return one is other or (isinstance(one, ItemIndex) and isinstance(other, ItemIndex) and one.is_like(other))


def _hash(item: str) -> bytes:
    return hashlib.blake2b(item.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()


def _hashes(ids: Iterable[str]) -> Iterator[_Hashes]:
    """The hashes (n, 2) of ids, piece by piece."""
    source = iter(ids)
    while found := b"".join(map(_hash, itertools.islice(source, _AT_ONCE))):
        yield mapped(np.frombuffer(found, np.dtype(">u8")).astype(np.uint64).reshape(-1, 2))


def _in_order(pieces: Sequence[_Hashes], n: int) -> Iterator[tuple[_Hashes, _Hashes, _Hashes]]:
    """The halves of all n hashes in order, and where each stood; some at a time, by how a hash begins."""
    parts = min(n // (2 * _AT_ONCE) + 1, 256)
    starts = np.cumsum([0, *map(len, pieces)])
    for part in range(parts):
        own = [
            np.flatnonzero((piece[:, 0] >> np.uint64(56)) * np.uint64(parts) >> np.uint64(8) == part)
            for piece in pieces
        ]
        some = np.concatenate(
            [np.empty((0, 2), np.uint64), *(piece[at] for piece, at in zip(pieces, own, strict=True))]
        )
        places = np.concatenate(
            [np.empty(0, np.intp), *(at + start for at, start in zip(own, starts[:-1], strict=True))]
        )
        order = np.lexsort((some[:, 1], some[:, 0]))
        yield some[order, 0], some[order, 1], places[order]

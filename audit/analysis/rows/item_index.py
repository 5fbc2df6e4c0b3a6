"""The positions of items by id, without the ids in memory: a million of them take 150 MB as keys of a dict."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from audit.analysis.rows.spool import mapped

_BYTES = 16  # of an id's hash: no two of 10^9 ids share one, but for a chance of 10^-21


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
        hashes = np.frombuffer(_hashes(ids()), np.dtype(">u8")).astype(np.uint64).reshape(-1, 2)
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        first, second = hashes[order, 0], hashes[order, 1]
        if ((first[1:] == first[:-1]) & (second[1:] == second[:-1])).any():
            raise ValueError("an id occurs twice")
        self._first, self._second, self._order = mapped(first), mapped(second), mapped(order.astype(np.uint32))

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


def _hash(item: str) -> bytes:
    return hashlib.blake2b(item.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()


def _hashes(ids: Iterable[str]) -> bytearray:
    found = bytearray()
    for item in ids:
        found += _hash(item)
    return found

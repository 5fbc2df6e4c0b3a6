"""Finds packed rows by key alone: keys are hashes, and do not reveal their group.

So the first four bytes of each key are kept beside its row. They are read once and held sorted, 12 bytes a key; what
they lead to is unpacked and its keys computed again.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence

import numpy as np

from audit.store.answers import packed, prompts
from audit.store.answers.packed import PackedRow, Unpacked
from audit.store.answers.rows import DamagedError

_KEY = re.compile("a1-[0-9a-f]{40}")


class ByKey:
    """Finds packed rows by key. Used under the lock of the reading connection."""

    def __init__(self) -> None:
        self._last = 0  # the last row whose keys are known
        self._tags = np.empty(0, np.uint32)
        self._ids = np.empty(0, np.int64)

    def find(
        self, db: sqlite3.Connection, keys: Iterable[str]
    ) -> tuple[dict[str, tuple[Unpacked, int]], dict[PackedRow, set[str]]]:
        """Each key's row and place in it; and rows that, or whose prompt, cannot be read, with keys they may have."""
        keys = list(keys)
        if not keys or not packed.is_any(db):
            return {}, {}
        self._read(db)
        candidates = self._candidates(keys)
        found: dict[str, tuple[Unpacked, int]] = {}
        damaged: dict[PackedRow, set[str]] = {}
        for row in packed.of_ids(db, candidates):
            try:
                unpacked = Unpacked.of(row, row.scores(), prompts.read(db, row.prompt))
            except DamagedError:
                damaged[row] = set(candidates[row.id])
                continue
            places = {key: place for place, key in enumerate(unpacked.question.keys)}
            for key in candidates[row.id]:
                if key in places:
                    found.setdefault(key, (unpacked, places[key]))
        return found, {row: some - found.keys() for row, some in damaged.items()}

    def _read(self, db: sqlite3.Connection) -> None:
        sql = "SELECT id, tags FROM packed_keys WHERE id > ? AND typeof(tags) = 'blob' ORDER BY id"  # else damaged
        rows = db.execute(sql, (self._last,)).fetchall()
        if not rows:
            return
        ids = np.repeat([id for id, _ in rows], [len(some) // 4 for _, some in rows])
        new = np.frombuffer(b"".join(some[: len(some) // 4 * 4] for _, some in rows), ">u4")
        all_tags, all_ids = np.concatenate([self._tags, new]), np.concatenate([self._ids, ids])
        order = np.argsort(all_tags, kind="stable")
        self._tags, self._ids, self._last = all_tags[order].astype(np.uint32), all_ids[order], rows[-1][0]

    def _candidates(self, keys: Sequence[str]) -> dict[int, list[str]]:
        """Rows that may have some of the keys, by id."""
        keys = [key for key in keys if _KEY.fullmatch(key)]
        wanted = np.frombuffer(packed.tags(keys), ">u4")
        first, last = np.searchsorted(self._tags, wanted, "left"), np.searchsorted(self._tags, wanted, "right")
        found: dict[int, list[str]] = {}
        for key, start, end in zip(keys, first, last, strict=True):
            for id in self._ids[start:end].tolist():
                found.setdefault(id, []).append(key)
        return found

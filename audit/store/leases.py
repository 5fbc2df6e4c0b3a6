"""Leases on questions, so that two audits that share a store do not ask the same question at once.

A lease belongs to a client: one open store in one process. It ends when the answer is written, when it is released,
when its client's process is seen to have ended, or when the client has not renewed it for 30 seconds.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from audit.store.clients import is_gone
from audit.store.database import chunked, placeholders
from audit.store.files import Files
from audit.store.keys import Keyed

LEASE_SECONDS = 30.0

_Key = tuple[bytes, bytes]


class Leases:
    """The leases of one open store. ``client`` is the store's name as their holder."""

    def __init__(self, files: Files, client: str) -> None:
        self._files, self._client = files, client

    async def take(self, questions: Sequence[Keyed]) -> list[bool]:
        """For each question, whether this store may ask it now.

        False if another job or audit is asking it already, or it has just been answered.
        """
        granted = [False] * len(questions)
        for file, places in self._files.split(range(len(questions)), lambda place: questions[place].prompt):
            keys = [(questions[place].prompt, questions[place].part) for place in places]
            taking: Future[list[bool]] = file.submit(partial(_take, client=self._client, keys=keys))
            free = await asyncio.wrap_future(taking)
            for place, is_free in zip(places, free, strict=True):
                granted[place] = is_free
        return granted

    async def release(self, questions: Iterable[Keyed]) -> None:
        """Release this store's leases on questions, which it will not ask after all."""
        for file, some in self._files.split(questions, lambda question: question.prompt):
            keys = [(one.prompt, one.part, self._client) for one in some]
            await asyncio.wrap_future(file.submit(partial(_release, keys=keys)))

    async def release_all(self) -> None:
        """Release all leases of this store."""
        for file in self._files:
            await asyncio.wrap_future(file.submit(partial(_remove, client=self._client)))

    async def renew(self) -> None:
        """Renew this store's leases. Call it every few seconds while asking."""
        for file in self._files:
            await asyncio.wrap_future(file.submit(partial(_renew, client=self._client)))

    def close(self) -> None:
        """Release all leases, before the store closes. One that has written nothing has none."""
        for file in self._files:
            if file.has_written:
                file.submit(partial(_remove, client=self._client)).result()


def _renew(db: sqlite3.Connection, *, client: str) -> None:
    # Monotonic rather than wall-clock time: setting the clock forward must not end a lease.
    db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (client, time.monotonic() + LEASE_SECONDS))


def _take(db: sqlite3.Connection, *, client: str, keys: Sequence[_Key]) -> list[bool]:
    _renew(db, client=client)
    now = time.monotonic()
    for other, until in db.execute("SELECT owner, until FROM owners").fetchall():
        # A later time than any lease has means that it was renewed before a reboot.
        if not now <= until <= now + LEASE_SECONDS or is_gone(other):
            _remove(db, client=other)
    taken = {key for table in ("leases", "answers") for key in _among(db, table, keys)}
    granted = []
    for key in keys:
        granted.append(key not in taken)
        taken.add(key)
    free = [(*key, client) for key, is_free in zip(keys, granted, strict=True) if is_free]
    db.executemany("INSERT INTO leases VALUES (?, ?, ?)", free)
    return granted


def _among(db: sqlite3.Connection, table: str, keys: Sequence[_Key]) -> Iterable[_Key]:
    for chunk in chunked({prompt for prompt, _ in keys}):
        yield from db.execute(f"SELECT prompt, part FROM {table} WHERE prompt IN ({placeholders(chunk)})", chunk)


def _release(db: sqlite3.Connection, *, keys: Sequence[tuple[bytes, bytes, str]]) -> None:
    db.executemany("DELETE FROM leases WHERE prompt = ? AND part = ? AND owner = ?", keys)


def _remove(db: sqlite3.Connection, *, client: str) -> None:
    db.execute("DELETE FROM leases WHERE owner = ?", (client,))
    db.execute("DELETE FROM owners WHERE owner = ?", (client,))

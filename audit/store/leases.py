"""Leases on questions, so that two audits that share a store never ask the same question.

A lease belongs to a client: one open store in one process. It ends when the answer is written, when it is released,
when its client's process is seen to have ended, or when the client has not renewed it for 30 seconds.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from audit.store.answers import lookup, packed
from audit.store.clients import is_gone
from audit.store.keys import KeyedRequest
from audit.store.sqlite.database import Database, chunked, placeholders

LEASE_SECONDS = 30.0


class Leases:
    """The leases of one open store, in one file. ``client`` is the store's name as their holder."""

    def __init__(self, database: Database, client: str) -> None:
        self._database, self._client = database, client

    async def take(self, requests: Sequence[KeyedRequest]) -> list[bool]:
        """For each request, whether this store may ask it now.

        False if another audit, or this one, is already asking for one of its keys, or it has just been answered.
        """
        return await asyncio.wrap_future(self._database.submit(partial(_take, client=self._client, requests=requests)))

    async def release(self, requests: Iterable[KeyedRequest]) -> None:
        """Release this store's leases on requests, which it will not ask after all."""
        held = [(request.group, packed.tags(request.keys)) for request in requests]
        await asyncio.wrap_future(self._database.submit(partial(_release, client=self._client, held=held)))

    async def release_all(self) -> None:
        """Release all leases of this store."""
        await asyncio.wrap_future(self._database.submit(partial(remove, client=self._client)))

    async def renew(self) -> None:
        """Renew this store's leases. Call it every few seconds while asking."""
        await asyncio.wrap_future(self._database.submit(partial(_renew, client=self._client)))

    def close(self) -> None:
        """Release all leases, before the store closes. One that has written nothing has none."""
        if self._database.has_written:
            self._database.submit(partial(remove, client=self._client)).result()


def keep_through_change(db: sqlite3.Connection) -> None:
    """Let all leases last their whole time from now: a new owner's clock may be another machine's."""
    db.execute("UPDATE owners SET until = ?", (time.monotonic() + LEASE_SECONDS,))


def _renew(db: sqlite3.Connection, *, client: str) -> None:
    # Monotonic rather than wall-clock time: setting the clock forward must not end a lease. All processes that write
    # one file run on one machine since the same boot, and so share this clock; clients elsewhere ask such a process.
    db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (client, time.monotonic() + LEASE_SECONDS))


def _take(db: sqlite3.Connection, *, client: str, requests: Sequence[KeyedRequest]) -> list[bool]:
    _renew(db, client=client)
    now = time.monotonic()
    for other, until in db.execute("SELECT owner, until FROM owners").fetchall():
        if not _is_alive(other, until, now):
            remove(db, client=other)
    asked = _asked(db, requests)
    taken = lookup.find(db, requests).answered()
    taken.update(key for (key,) in db.execute("SELECT key FROM leases"))  # of earlier versions that still run
    granted = []
    for request in requests:
        tags = packed.tags(request.keys)
        own = _each(tags)
        free = taken.isdisjoint(request.keys) and asked[request.group].isdisjoint(own)
        granted.append(free)
        if free:
            asked[request.group].update(own)
            db.execute("INSERT INTO request_leases VALUES (?, ?, ?)", (request.group, tags, client))
    return granted


def _release(db: sqlite3.Connection, *, client: str, held: Sequence[tuple[bytes, bytes]]) -> None:
    sql = "DELETE FROM request_leases WHERE grp = ? AND tags = ? AND owner = ?"
    db.executemany(sql, [(*one, client) for one in held])


def remove(db: sqlite3.Connection, *, client: str) -> None:
    """Remove a client and all its leases."""
    for table in ("leases", "request_leases"):
        db.execute(f"DELETE FROM {table} WHERE owner = ?", (client,))
    db.execute("DELETE FROM owners WHERE owner = ?", (client,))


def _asked(db: sqlite3.Connection, requests: Iterable[KeyedRequest]) -> dict[bytes, set[bytes]]:
    """The first bytes of the keys that are being asked in the groups of these requests."""
    found: dict[bytes, set[bytes]] = defaultdict(set)
    for chunk in chunked({request.group for request in requests}):
        sql = f"SELECT grp, tags FROM request_leases WHERE grp IN ({placeholders(chunk)})"
        for group, tags in db.execute(sql, chunk):
            found[group].update(_each(tags))
    return found


def _each(tags: bytes) -> set[bytes]:
    return {tags[place : place + 4] for place in range(0, len(tags), 4)}


def _is_alive(client: str, until: float, now: float) -> bool:
    """Whether a client is alive, judging by its renewals and, if visible from here, its process."""
    if not now <= until <= now + LEASE_SECONDS:  # a later time means that it was renewed before a reboot
        return False
    return not is_gone(client)

"""Leases on questions, so that two audits that share a store never ask the same question.

A lease belongs to an owner: one open store in one process. It ends when the answer is written, when it is released,
when its owner's process ends, or when the owner has not renewed it for 30 seconds.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from audit.store.answers import lookup, packed
from audit.store.keys import KeyedRequest
from audit.store.owner import is_gone, new_owner
from audit.store.sqlite.database import Database, chunked, placeholders

LEASE_SECONDS = 30.0


class Leases:
    """The leases of one open store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owner = new_owner()

    async def take(self, requests: Sequence[KeyedRequest]) -> list[bool]:
        """For each request, whether this store may ask it now.

        False if another audit, or this one, is already asking for one of its keys, or it has just been answered.
        """
        return await asyncio.wrap_future(self._database.submit(lambda db: self._take(db, requests)))

    async def release(self, requests: Iterable[KeyedRequest]) -> None:
        """Release this store's leases on requests, which it will not ask after all."""
        owned = [(request.group, packed.tags(request.keys), self._owner) for request in requests]
        sql = "DELETE FROM request_leases WHERE grp = ? AND tags = ? AND owner = ?"
        await asyncio.wrap_future(self._database.submit(lambda db: db.executemany(sql, owned)))

    async def release_all(self) -> None:
        """Release all leases of this store."""
        await asyncio.wrap_future(self._database.submit(self._remove_owner))

    async def renew(self) -> None:
        """Renew this store's leases. Call it every few seconds while asking."""
        await asyncio.wrap_future(self._database.submit(self._renew))

    def close(self) -> None:
        """Release all leases, before the store closes."""
        self._database.submit(self._remove_owner).result()

    def _renew(self, db: sqlite3.Connection) -> None:
        # Monotonic rather than wall-clock time: setting the clock forward must not end a lease. All processes that
        # can share a WAL file run on one machine since the same boot, and so share this clock.
        db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (self._owner, time.monotonic() + LEASE_SECONDS))

    def _take(self, db: sqlite3.Connection, requests: Sequence[KeyedRequest]) -> list[bool]:
        self._renew(db)
        now = time.monotonic()
        for owner, until in db.execute("SELECT owner, until FROM owners").fetchall():
            if not _is_alive(owner, until, now):
                _remove(db, owner)
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
                db.execute("INSERT INTO request_leases VALUES (?, ?, ?)", (request.group, tags, self._owner))
        return granted

    def _remove_owner(self, db: sqlite3.Connection) -> None:
        _remove(db, self._owner)


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


def _remove(db: sqlite3.Connection, owner: str) -> None:
    for table in ("leases", "request_leases"):
        db.execute(f"DELETE FROM {table} WHERE owner = ?", (owner,))
    db.execute("DELETE FROM owners WHERE owner = ?", (owner,))


def _is_alive(owner: str, until: float, now: float) -> bool:
    """Whether an owner is alive, judging by its renewals and, if visible from here, its process."""
    if not now <= until <= now + LEASE_SECONDS:  # a later time means that it was renewed before a reboot
        return False
    return not is_gone(owner)

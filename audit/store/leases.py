"""Leases on questions, so that two audits that share a store do not ask the same question at once.

A lease belongs to a client: one open store in one process. It ends when the answer is written, when it is released,
when its client's process is seen to have ended, or when the client has not renewed it for 30 seconds. A client's name
reveals whether its process is still alive.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sqlite3
import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import psutil

from audit.store.database import chunked, placeholders
from audit.store.files import Files
from audit.store.keys import Keyed

LEASE_SECONDS = 30.0
_START_TOLERANCE = 2.0  # seconds by which two readings of a process's start time may differ

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


# -- clients -----------------------------------------------------------------------------------


def new_client() -> str:
    """A name for a store that this process has just opened."""
    started = _start_since_boot(os.getpid())
    return f"{_boot()}/{_process_namespace()}:{os.getpid()}:{started}:{uuid.uuid4().hex[:8]}"


def is_gone(client: str) -> bool:
    """Whether the client's process has certainly ended: it would be visible from here, and is not."""
    namespace, pid, start, *rest = client.split(":")
    boot, _, namespace = namespace.rpartition("/")
    if len(rest) != 1 or boot != _boot() or namespace != _process_namespace():
        return False
    found = _start_since_boot(int(pid))
    return found is None or abs(found - float(start)) > _START_TOLERANCE


@functools.cache
def _boot() -> str:
    """An id of this machine's last start; empty if the system has none.

    Namespaces of processes have the same name on all machines, so that a process of another one would seem gone.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _process_namespace() -> str:
    """The namespace of process ids, which differs between containers; empty if the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _start_since_boot(pid: int) -> float | None:
    """Seconds from boot to the start of a process, independent of the wall clock. None if it has ended."""
    try:
        boot = psutil.boot_time()  # first: psutil 6 adds the one read last, perhaps before the clock was set
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:  # ended, and its parent has not asked how: in a container, never
            return None
        return float(process.create_time() - boot)
    except psutil.Error:
        return None

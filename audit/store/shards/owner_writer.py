"""Writes a shard by way of its owner, which may be lost at any time and found again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from audit.store.clients import new_client
from audit.store.shards.owner import Done, Work
from audit.store.sqlite.database import StoreError
from audit.store.sqlite.writer import Job, JobQueue

#: How long a shard may be without an owner before what is to be written fails, in seconds.
PATIENCE_SECONDS = 120.0
#: How many owners may be lost with one call: what it asks for may be what ends them.
_MOST_LOST = 8
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # between attempts to reach an owner, in seconds


class OwnerLostError(Exception):
    """An owner did not answer; whether it did what it was told is unknown."""


class Reached(Protocol):
    """A shard's owner, as it is reached from here."""

    def perform(self, client: str, number: int, works: Sequence[Work]) -> list[Done]:
        """As `ShardOwner.perform`; also raises `OwnerLostError`."""
        ...

    def forget(self, client: str) -> None:
        """As `ShardOwner.forget`; also raises `OwnerLostError`."""
        ...


class OwnerWriter(JobQueue):
    """Runs submitted work at a shard's owner, call by call. A call without an answer is repeated.

    Parameters
    ----------
    path : Path
        The shard's file, for error messages.
    reach : callable
        Finds the shard's owner, or starts one, and returns once it lives. May raise `OwnerLostError`.
    """

    def __init__(self, path: Path, reach: Callable[[], Reached]) -> None:
        super().__init__()
        self._path, self._client, self._reach = path, new_client(), reach
        self._owner: Reached | None = None

    def _run(self) -> None:
        for number in itertools.count(1):
            batch = self._next()
            if batch is None:
                break
            self._hand_over(number, batch)
        if self._owner is not None:
            try:
                self._owner.forget(self._client)
            except (OwnerLostError, StoreError):  # the next owner forgets it
                return

    def _hand_over(self, number: int, batch: Sequence[Job]) -> None:
        try:
            all_done = self._perform(number, [job.work for job in batch])
        except Exception as error:
            for job in batch:
                job.done.set_exception(error)
            return
        for job, done in zip(batch, all_done, strict=True):
            if done.error is None:
                job.done.set_result(done.result)
            else:
                job.done.set_exception(done.error)

    def _perform(self, number: int, works: Sequence[Work]) -> list[Done]:
        without_since, pause, lost = time.monotonic(), _FIRST_PAUSE, 0
        while True:
            try:
                self._owner = self._owner or self._reach()
                return self._owner.perform(self._client, number, works)
            except (OwnerLostError, StoreError) as error:
                if isinstance(error, StoreError) and error.reason != "replaced":
                    raise
                if self._owner is not None:  # there was one until now
                    self._owner, without_since, lost = None, time.monotonic(), lost + 1
                if time.monotonic() - without_since > PATIENCE_SECONDS or lost > _MOST_LOST:
                    raise StoreError(self._path, "lost", f"no owner can be reached: {error}") from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

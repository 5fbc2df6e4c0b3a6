"""The thread that writes a file, with group commits.

Work that arrives while a transaction commits goes into the next one, so that the cost of a flush is shared and no
caller waits longer than about two of them. Other processes may write to the same file: each transaction is short and
begins IMMEDIATE, so that none can fail halfway because it cannot get a lock.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

GATHER_SECONDS = 0.002
_MOST_JOBS = 1024  # per transaction

T = TypeVar("T")


@dataclass(slots=True)
class Job:
    """Submitted work. ``gather``: it may wait briefly for other work to join its transaction."""

    work: Callable[[sqlite3.Connection], Any]
    done: concurrent.futures.Future[Any]
    gather: bool


class JobQueue(ABC):
    """Work for one thread, which starts with the first of it and takes all that waits at a time."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def started(self) -> bool:
        """Whether anything was submitted."""
        return self._thread is not None

    def submit(self, work: Callable[[sqlite3.Connection], T], *, gather: bool) -> concurrent.futures.Future[T]:
        """Queue ``work``. The future completes after the commit; an error fails only the work that raised it."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
                self._thread.start()
        job = Job(work, concurrent.futures.Future(), gather)
        job.done.set_running_or_notify_cancel()  # queued work is written, even if its caller stops waiting
        self._jobs.put(job)
        return job.done

    def close(self) -> None:
        """Finish queued work and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    @abstractmethod
    def _run(self) -> None:
        """What the thread does until `_next` gives None."""

    def _next(self) -> list[Job] | None:
        """Wait for work, and return all of it that may go into one transaction; None once the queue is closed."""
        job = self._jobs.get()
        if job is None:
            return None
        if job.gather:
            time.sleep(GATHER_SECONDS)
        batch = [job]
        while len(batch) < _MOST_JOBS:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)  # nothing is submitted after it
                break
            batch.append(job)
        return batch


class Writer(JobQueue):
    """Runs submitted work on a connection of its own.

    Parameters
    ----------
    connect : callable
        Opens the connection, in the thread.
    translate : callable
        Converts an SQLite error to the exception that callers get.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], translate: Callable[[sqlite3.Error], Exception]
    ) -> None:
        super().__init__()
        self._connect, self._translate = connect, translate

    def _run(self) -> None:
        try:
            db = self._connect()
        except sqlite3.Error as error:
            while (batch := self._next()) is not None:  # or else their callers would wait for ever
                for job in batch:
                    job.done.set_exception(self._translate(error))
            return
        with contextlib.closing(db):
            while (batch := self._next()) is not None:
                self._commit(db, batch)

    def _commit(self, db: sqlite3.Connection, batch: Sequence[Job]) -> None:
        try:
            db.execute("BEGIN IMMEDIATE")
            results = [job.work(db) for job in batch]
            db.execute("COMMIT")
        except BaseException as error:
            if db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            if len(batch) > 1 and not isinstance(error, sqlite3.OperationalError):
                for job in batch:  # one bad job must not fail its neighbours
                    self._commit(db, [job])
                return
            reported = self._translate(error) if isinstance(error, sqlite3.Error) else error
            for job in batch:
                job.done.set_exception(reported)
            return
        for job, result in zip(batch, results, strict=True):
            job.done.set_result(result)

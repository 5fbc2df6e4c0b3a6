"""One SQLite file: a connection to read, a thread that writes with group commits, and error messages in plain words.

Work that arrives while a transaction commits goes into the next one, so that the cost of a flush is shared and no
caller waits longer than about two of them. Other processes may write to the same file: each transaction is short and
begins IMMEDIATE, so that none can fail halfway because it cannot get a lock.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from backends.errors import AuditError

BUSY_SECONDS = 60.0
GATHER_SECONDS = 0.002
_MOST_JOBS = 1024  # per transaction
_IN = 500  # parameters of one IN (...)

T = TypeVar("T")

#: SQLite's result codes as reasons of a `StoreError`.
_REASONS = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_CANTOPEN: "read_only",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
}
_HINTS = {
    "full": "The disk is full. Free some space and start again: stored answers are safe",
    "read_only": "The file is read-only. Give it write permission, or another --db",
    "damaged": "The file is damaged and was left as it is. Restore a backup, or give another --db",
    "locked": "Another process keeps it locked. End that process, or give another --db",
    "io": "The disk failed. Check it, then start again: stored answers are safe",
}


class StoreError(AuditError):
    """The store can no longer be written or read.

    ``reason`` is ``full``, ``read_only``, ``damaged``, ``locked`` or ``io``.
    """

    def __init__(self, path: Path, reason: str, problem: str) -> None:
        self.path, self.reason, self.problem, self.hint = path, reason, problem, _HINTS[reason]
        super().__init__(f"store {str(path)!r}: {problem}. {self.hint}.")

    def __reduce__(self) -> tuple[type[StoreError], tuple[Path, str, str]]:
        return StoreError, (self.path, self.reason, self.problem)


def store_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Convert an SQLite error to a `StoreError`."""
    code = getattr(error, "sqlite_errorcode", None)
    reason = None if code is None else _REASONS.get(code & 0xFF)
    if reason is None:
        reason = "damaged" if type(error) is sqlite3.DatabaseError else "io"
    return StoreError(path, reason, str(error))


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Connect to an existing file. Once a transaction has ended, it is on the disk.

    To read, SQLite makes a file beside this one. Where nothing can be made, as in another team's folder or on a medium
    for reading only, a file without a log is read as one that nobody changes; each row has its checksum.
    """
    if not read_only:
        return _connection(path, "rw")
    try:
        return _connection(path, "ro")
    except sqlite3.OperationalError as error:
        log = path.with_name(f"{path.name}-wal")
        has_log = log.exists() and log.stat().st_size > 0
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CANTOPEN or has_log:
            raise
        return _connection(path, "ro&immutable=1")


def _connection(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions are begun and ended explicitly
        check_same_thread=False,
    )
    db.text_factory = _readable
    db.execute("PRAGMA synchronous=FULL")
    return db


#: Damaged text is read as what it is not, and its row's checksum tells; else no row of a query could be read.
_readable = functools.partial(str, encoding="utf-8", errors="replace")


class _Job(NamedTuple):
    work: Callable[[sqlite3.Connection], Any]
    done: concurrent.futures.Future[Any]
    gather: bool


class Database:
    """One connection for reading, under a lock, and one thread for writing, which starts with the first work."""

    def __init__(self, path: Path, read_only: bool) -> None:
        self.path, self.read_only = path, read_only
        self._reading, self._starting = threading.Lock(), threading.Lock()
        self._reader = connect(path, read_only=read_only)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The reading connection, for one thread at a time.

        Raises
        ------
        StoreError
            If the file cannot be read.
        """
        with self._reading:
            try:
                yield self._reader
            except sqlite3.Error as error:
                raise store_error(self.path, error) from None

    def write(self, sql: str, values: Sequence[Any]) -> None:
        """Execute one statement; returns when it is on the disk."""
        self.submit(lambda db: db.execute(sql, values) and None).result()

    def submit(self, work: Callable[[sqlite3.Connection], T], *, gather: bool = False) -> concurrent.futures.Future[T]:
        """Run ``work`` in a transaction of the writer. The future completes when it is on the disk.

        ``gather``: wait briefly before the transaction, so that other work can join it.
        """
        if self.read_only:
            raise StoreError(self.path, "read_only", "opened for reading only")
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
                self._thread.start()
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        done.set_running_or_notify_cancel()  # queued work is written, even if its caller stops waiting
        self._jobs.put(_Job(work, done, gather))
        return done

    @property
    def has_written(self) -> bool:
        """Whether anything was submitted since the file was opened."""
        return self._thread is not None

    def close(self) -> None:
        """Finish queued work, then close both connections. May be called twice."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._reader.close()

    def _run(self) -> None:
        try:
            db = connect(self.path)
        except sqlite3.Error as error:
            while (batch := self._next()) is not None:  # or else their callers would wait for ever
                for job in batch:
                    job.done.set_exception(store_error(self.path, error))
            return
        with contextlib.closing(db):
            while (batch := self._next()) is not None:
                self._commit(db, batch)

    def _next(self) -> list[_Job] | None:
        """Wait for work, and return all of it that may go into one transaction; None once it is closed."""
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

    def _commit(self, db: sqlite3.Connection, batch: Sequence[_Job]) -> None:
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
            reported = store_error(self.path, error) if isinstance(error, sqlite3.Error) else error
            for job in batch:
                job.done.set_exception(reported)
            return
        for job, result in zip(batch, results, strict=True):
            job.done.set_result(result)


def placeholders(values: Sequence[object]) -> str:
    """Question marks for an SQL list of these values."""
    return ",".join("?" * len(values))


def chunked(values: Iterable[T], size: int = _IN) -> Iterator[list[T]]:
    """The values in lists of at most ``size``, by default as many as fit into one statement."""
    chunk: list[T] = []
    for value in values:
        chunk.append(value)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk

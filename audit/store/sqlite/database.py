"""The store's SQLite file: connections, reads and writes, and error messages in plain words."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from audit.store.sqlite.writer import JobQueue, Writer
from backends.errors import AuditError

BUSY_SECONDS = 60.0
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
    "lost": "Look into the cluster's logs, then start again: stored answers are safe",
    "replaced": "Another process writes it now. End that process, or start again",
    "io": "The disk failed. Check it, then start again: stored answers are safe",
}


class StoreError(AuditError):
    """The store can no longer be written or read: disk full, read-only, damaged.

    ``reason`` is one of ``full``, ``read_only``, ``damaged``, ``locked``, ``lost`` (the process that writes a shard),
    ``replaced`` (that process, by another one), ``io``.
    """

    def __init__(self, path: Path, reason: str, problem: str) -> None:
        self.reason, self.problem, self.hint = reason, problem, _HINTS[reason]
        super().__init__(f"store {str(path)!r}: {problem}. {self.hint}.")
        self._given = path, reason, problem

    def __reduce__(self) -> tuple[type[StoreError], tuple[Path, str, str]]:
        return StoreError, self._given


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
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CANTOPEN or _has_log(path):
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


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


#: Damaged text is read as what it is not, and its row's checksum tells; else no row of a query could be read.
_readable = functools.partial(str, encoding="utf-8", errors="replace")


class Database:
    """One connection for reading, under a lock, and one thread for writing."""

    def __init__(self, path: Path, read_only: bool) -> None:
        self.path, self.read_only = path, read_only
        self._reading = threading.Lock()
        self._reader = connect(path, read_only=read_only)
        self._writer: JobQueue = self._own_writer()

    def _own_writer(self) -> Writer:
        return Writer(lambda: connect(self.path), lambda error: store_error(self.path, error))

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
        self.submit(functools.partial(_execute, sql=sql, values=values)).result()

    def submit(self, work: Callable[[sqlite3.Connection], T], *, gather: bool = False) -> concurrent.futures.Future[T]:
        """Run ``work`` in a transaction of the writer. The future completes when it is on the disk.

        ``gather``: wait briefly before the transaction, so that other work can join it.
        """
        if self.read_only:
            raise StoreError(self.path, "read_only", "opened for reading only")
        return self._writer.submit(work, gather=gather)

    def write_through(self, writer: JobQueue) -> None:
        """Write by other means from now on, such as another process; what was submitted is finished first."""
        self._writer.close()
        self._writer = writer

    def write_itself(self) -> None:
        """Write from this process again."""
        self.write_through(self._own_writer())

    @property
    def has_written(self) -> bool:
        """Whether anything was submitted since the file was opened."""
        return self._writer.started

    def close(self) -> None:
        """Finish queued work, then close both connections. May be called twice."""
        self._writer.close()
        self._reader.close()


def _execute(db: sqlite3.Connection, *, sql: str, values: Sequence[Any]) -> None:
    db.execute(sql, values)


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

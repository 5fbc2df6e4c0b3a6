"""Opening the store's file: foreign files and newer schemas are rejected, older schemas are brought up to date."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from audit.store.sqlite.database import BUSY_SECONDS, connect
from backends.errors import ConfigError

#: Number of migrations, which is also kept in the file's header, so that checking it imports nothing.
SCHEMA = 10
APPLICATION_ID = 0x42494153  # "BIAS" in the file's header marks the database as ours
_ANOTHER = "Give another --db: the file was left untouched"
_NOT_NEEDED_FOR_READING = {
    "m005_fingerprint_aliases",
    "m006_second_answers",
    "m007_gate_nights",
    "m008_packed_scores",
    "m009_shards",
    "m010_doubts",
}


def refuse_foreign_file(path: Path, *, read_only: bool) -> None:
    """Raise `ConfigError` for a path that cannot be a store, without changing anything there."""
    if path.is_dir():
        raise ConfigError("db", str(path), "is a folder", "Give the path of a file")
    if not path.exists():
        if read_only:
            raise ConfigError("db", str(path), "does not exist", "Run an audit first, or give another --db")
        return
    try:
        with path.open("rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ConfigError("db", str(path), f"cannot be read: {error.strerror}", _ANOTHER) from None
    if not header:
        return
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise ConfigError("db", str(path), "is not a store (not an SQLite file)", _ANOTHER)
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    # After a crash, or on a full disk, the rest of the pages may still be in the write-ahead log.
    log = Path(f"{path}-wal")
    complete_with_log = log.exists() and log.stat().st_size > 0
    if page < 512 or (size < pages * page and not complete_with_log):
        raise ConfigError("db", str(path), "is damaged (shorter than its header says)", f"Restore a backup. {_ANOTHER}")


def prepare(path: Path) -> None:
    """Create the file if it is new, bring its schema up to date, and check that it can be written."""
    if not path.exists():
        path.touch(mode=0o600)  # answers may be confidential
    with contextlib.closing(connect(path)) as db:
        if _has_tables(db):
            _refuse_another(path, db)
        db.execute(f"PRAGMA mmap_size={1 << 40}")  # the check reads every page, ten times faster without copying
        problems = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        db.execute("PRAGMA mmap_size=0")
        if problems != "ok":
            raise sqlite3.DatabaseError(problems)
        _switch_to_wal(db)
        db.execute("BEGIN IMMEDIATE")  # if several audits open a new store at once, only one creates its tables
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        if db.execute("PRAGMA user_version").fetchone()[0] < SCHEMA:
            sqlite_utils, migrations = _migration_tools()
            migrations.apply(sqlite_utils.Database(db))
            db.execute(f"PRAGMA user_version={SCHEMA}")
        db.execute("COMMIT")


def check_version(path: Path, db: sqlite3.Connection) -> None:
    """Raise `ConfigError` for a file that is no store, or has a schema that this version cannot read."""
    _refuse_another(path, db)
    if db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA:
        return
    sqlite_utils, migrations = _migration_tools()
    steps = {m.name for m in migrations._migrations}
    applied = {m.name for m in migrations.applied(sqlite_utils.Database(db))}
    if applied - steps:
        raise ConfigError(
            "db", str(path), "was written by a newer version", "Update this package, or give another --db"
        )
    if steps - applied - _NOT_NEEDED_FOR_READING:  # only possible when opened read-only
        raise ConfigError("db", str(path), "has an older schema", "Open it once for writing to bring it up to date")


def _refuse_another(path: Path, db: sqlite3.Connection) -> None:
    """Raise `ConfigError` for a database that no audit has written."""
    if db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        return
    if _has_tables(db):
        problem = "is an SQLite database of another program, not a store of answers"
        raise ConfigError("db", str(path), problem, _ANOTHER)
    raise ConfigError("db", str(path), "is empty: no audit has stored an answer in it", "Run one, or give another --db")


def _has_tables(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _migration_tools() -> tuple[Any, Any]:
    """sqlite-utils and the migrations, imported only when needed: half a second if pandas is installed."""
    import sqlite_utils

    from audit.store.sqlite.migrations import migrations

    return sqlite_utils, migrations


def _switch_to_wal(db: sqlite3.Connection) -> None:
    """Set the journal mode. SQLite's busy timeout does not apply to this statement."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)

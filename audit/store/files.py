"""The files of a store: their tables, and how its answers are divided among several, each with a range of the keys.

What is not a store of this schema is refused, untouched.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from audit.store.database import BUSY_SECONDS, Database, connect
from backends.errors import ConfigError

MOST_SHARDS = 256
_JOIN = "join it into a new store: audit cache merge NEW.db OLD.db --store-shards N"

T = TypeVar("T")

#: Raise it when a table changes, or what its columns hold: stores of another schema are refused.
SCHEMA = 105
APPLICATION_ID = 0x42494153  # "BIAS" in the file's header marks the database as ours
_ANOTHER = "Give another --db: the file was left untouched"


class Files(tuple[Database, ...]):
    """The open files of a store's answers: its shards in order, or its one file.

    A shard holds the keys that begin within its range. So all answers to a prompt lie together, and the shards are
    about equally full.
    """

    def of(self, key: bytes) -> Database:
        """The file that a key belongs to."""
        return self[int.from_bytes(key[:8]) * len(self) >> 64]

    def split(self, values: Iterable[T], key: Callable[[T], bytes]) -> Iterable[tuple[Database, list[T]]]:
        """The values of each file that has some, by their keys."""
        if len(self) == 1 and (own := list(values)):
            return [(self[0], own)]
        found: dict[Database, list[T]] = {}
        for value in values:
            found.setdefault(self.of(key(value)), []).append(value)
        return found.items()


class ShardId(NamedTuple):
    """What a file is: number 0 of N is the store that was opened, the others are its shards."""

    store: str
    number: int
    shards: int


def shard_files(path: Path, shards: int) -> list[Path]:
    """The files of a store's shards, beside it: ``audit.shard-1-of-4.db``."""
    return [path.with_name(f"{path.stem}.shard-{number}-of-{shards}{path.suffix}") for number in range(1, shards + 1)]


def arrange(path: Path, shards: int | None, *, read_only: bool) -> list[Path]:
    """The files of an existing store's shards, which are made if the store is new; none if it is one file.

    ``shards``: how many there should be. Default: as many as the store has, and one file for a new one.

    Raises
    ------
    ConfigError
        If the store has another number of shards, one is missing or belongs elsewhere, or the file is itself a shard.
    """
    if shards is not None and not 1 <= shards <= MOST_SHARDS:
        raise ConfigError("store_shards", shards, "not a number of shards", f"Give 1 to {MOST_SHARDS}")
    own = shard_id(path)
    if own is None and not read_only and (shards or 1) > 1:
        own = _divide(path, shards or 1)
    if own is None:
        return []
    if own.number:
        if read_only:
            return []
        problem = f"is shard {own.number} of {own.shards} of a store"
        raise ConfigError("db", str(path), problem, "Give the store's own file, from whose name its shards have theirs")
    if shards not in (None, own.shards) and not read_only:
        raise ConfigError("store_shards", shards, f"this store has {own.shards}", f"Leave the number out, or {_JOIN}")
    files = shard_files(path, own.shards)
    for number, file in enumerate(files, 1):
        hint = "Move a store together with its shards, and rename them alike"
        if not file.exists():
            raise ConfigError("db", str(file), f"is missing: shard {number} of {own.shards} of {path.name}", hint)
        if not read_only:
            prepare(file)
        if shard_id(file) != ShardId(own.store, number, own.shards):
            raise ConfigError("db", str(file), f"is not shard {number} of this store", hint)
    return files


def shard_id(path: Path) -> ShardId | None:
    """What a store's file is among shards; None if it is a store by itself."""
    with contextlib.closing(connect(path, read_only=True)) as db:
        return _identity(db)


def _identity(db: sqlite3.Connection) -> ShardId | None:
    row = db.execute("SELECT store, number, shards FROM shard").fetchone()
    return None if row is None else ShardId(*row)


def _divide(path: Path, shards: int) -> ShardId:
    """Make a store without answers one of several shards, unless another process has just done so."""
    with contextlib.closing(connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        if (found := _identity(db)) is not None:
            db.execute("ROLLBACK")
            return found
        if _has_answers(db):
            db.execute("ROLLBACK")
            problem = "this store is one file and holds answers"
            raise ConfigError("store_shards", shards, problem, f"Leave the number out, or {_JOIN}")
        own = ShardId(uuid.uuid4().hex, 0, shards)
        for number, file in enumerate(shard_files(path, shards), 1):
            _make_shard(file, ShardId(own.store, number, shards))
        db.execute("INSERT INTO shard (id, store, number, shards) VALUES (1, ?, ?, ?)", own)
        db.execute("COMMIT")
    return own


def _make_shard(file: Path, own: ShardId) -> None:
    prepare(file)
    with contextlib.closing(connect(file)) as db:
        if _has_answers(db):  # what an interrupted beginning left has none
            raise ConfigError("db", str(file), "holds answers of another store", "Move it away, or give another --db")
        db.execute("INSERT OR REPLACE INTO shard (id, store, number, shards) VALUES (1, ?, ?, ?)", own)


def _has_answers(db: sqlite3.Connection) -> bool:
    return any(db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in ("answers", "failures"))


# -- opening a file --------------------------------------------------------------------------------


def refuse_foreign_file(path: Path, *, read_only: bool) -> None:
    """Raise `ConfigError` for a path that cannot be a store, without changing anything there."""
    if path.is_dir():
        raise ConfigError("db", str(path), "is a folder", "Give the path of a file")
    if read_only and not path.exists():
        raise ConfigError("db", str(path), "does not exist", "Run an audit first, or give another --db")


def prepare(path: Path) -> None:
    """Create the file if it is new, and check that it is sound and can be written."""
    if not path.exists():
        path.touch(mode=0o600)  # answers may be confidential
    with contextlib.closing(connect(path)) as db:
        if _has_tables(db):
            check_schema(path, db)
        db.execute(f"PRAGMA mmap_size={1 << 40}")  # the check reads every page, ten times faster without copying
        problems = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        db.execute("PRAGMA mmap_size=0")
        if problems != "ok":
            raise sqlite3.DatabaseError(problems)
        _switch_to_wal(db)
        db.execute("BEGIN IMMEDIATE")  # if several audits open a new store at once, only one creates its tables
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        if not _has_tables(db):
            _make_tables(db)
            db.execute(f"PRAGMA user_version={SCHEMA}")
        db.execute("COMMIT")


def _make_tables(db: sqlite3.Connection) -> None:
    """Create the tables of a new store. No column may be NULL but those of a run that has not finished.

    ``run`` in ``answers`` is the id of the run that asked; ``text`` the prompt's id in ``prompts``.
    """
    import sqlite_utils  # here, since a store is new once: its import takes 0.1 s, 0.4 s where pandas is installed

    def table(name: str, pk: str | tuple[str, ...], unique: tuple[str, ...] = (), /, **columns: type) -> None:
        made = store[name]
        made.create(columns, pk=pk, not_null=columns.keys() - {"id", "finished", "result"})
        if unique:
            made.create_index(unique, unique=True)

    store = sqlite_utils.Database(db)
    asked = {"prompt": bytes, "part": bytes, "fingerprint": str, "text": bytes}
    table("answers", "id", ("prompt", "part"), id=int, **asked, value=bytes, checksum=bytes, at=float, run=str)
    store["answers"].create_index(["fingerprint", "at"])
    table("prompts", "id", id=bytes, body=bytes)
    table("fingerprints", "id", id=str, body=bytes, at=float)
    table("failures", ("prompt", "part"), **asked, details=bytes, error=bytes, at=float)
    table("quarantine", "id", id=int, key=str, row=bytes, problem=str, at=float)
    table("leases", ("prompt", "part"), prompt=bytes, part=bytes, owner=str)
    table("owners", "owner", owner=str, until=float)
    table("second_answers", "key", key=str, fingerprint=str, first=bytes, second=bytes, checksum=bytes, at=float)
    store["second_answers"].create_index(["fingerprint"])
    table("runs", "id", id=str, title=str, config=bytes, status=str, started=str, finished=str, result=bytes)
    table(
        "row_tables", ("run", "model", "suite"), run=str, model=str, suite=str, body=bytes, keys=bytes, checksum=bytes
    )
    table("baselines", "id", id=int, name=str, run=str, at=str)
    table("gate_nights", "id", ("baseline", "run"), id=int, baseline=str, run=str, body=bytes)
    table("shard", "id", id=int, store=str, number=int, shards=int)


def check_schema(path: Path, db: sqlite3.Connection) -> None:
    """Raise `ConfigError` for a database that is not a store of this schema."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        if _has_tables(db):
            raise ConfigError("db", str(path), "is an SQLite database of another program, not a store", _ANOTHER)
        problem = "is empty: no audit has stored an answer in it"
        raise ConfigError("db", str(path), problem, "Run one, or give another --db")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA:
        age = "another (a newer)" if version > SCHEMA else "an earlier"
        raise ConfigError("db", str(path), f"is a store of {age} version, with other tables", _ANOTHER)


def _has_tables(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


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

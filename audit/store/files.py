"""The files that a store's answers lie in: one, or several shards, each with a range of the keys."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from audit.store.database import Database, connect
from audit.store.schema import prepare
from backends.errors import ConfigError

MOST_SHARDS = 256
_JOIN = "join it into a new store: audit cache merge NEW.db OLD.db --store-shards N"

T = TypeVar("T")


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

"""One SQLite file that keeps every answer as it arrives, or several that share the answers and their leases.

    packed_scores, packed_keys   the scores of a prompt's continuations in one value, with a checksum of the whole row;
                and the first bytes of their keys
    answers     key → any other answer, and all those of earlier versions, with a checksum of the whole row
    failures    each failed attempt; never counts as an answer
    prompts     each prompt's text once, under its hash
    fingerprints, fingerprint_aliases   what a model's id stands for, and ids of the same model
    second_answers   both answers to questions that were asked twice
    request_leases   which audit is asking what at the moment (two audits may share a store)
    quarantine  rows with a wrong checksum, and answers that may belong to another request: they are asked again
    runs, row_chunks, baselines   results, so that reports never ask models
    gate_looks, gate_nights   the data and outcome of every gate, night by night
    item_orders   the random orders in which runs ask their items
    shard, owner_calls   what a file is in a store of several, and what its owner did last

Durability: WAL with synchronous=FULL, so that an answer is on the disk when `Answers.write` returns.

A file that is not a store, or is damaged, is rejected and left untouched.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from audit.store.answers import Answers, packed
from audit.store.answers.merging import Merged, merge_answers, merge_facts, pairs_of
from audit.store.clients import new_client
from audit.store.fingerprints import Fingerprints
from audit.store.keys import from_json_bytes
from audit.store.leases import Leases
from audit.store.nights import Nights
from audit.store.orders import Orders
from audit.store.runs import Runs
from audit.store.second_answers import SecondAnswers
from audit.store.shards import Databases, ShardedAnswers, ShardedLeases, arrange, shard_files
from audit.store.sqlite.database import Database, StoreError, connect, store_error
from audit.store.sqlite.schema import check_version, prepare, refuse_foreign_file
from audit.store.sqlite.writer import JobQueue
from backends.errors import ConfigError
from backends.files import private_folder


class Store:
    """Answers, leases, runs and nights. Use `Store.open`.

    Attributes
    ----------
    answers : Answers
    fingerprints : Fingerprints
    leases : Leases
    n_shards : int
        Files of answers and leases; 1 if all is one file.
    runs : Runs
    second_answers : SecondAnswers
    nights : Nights
    orders : Orders
    """

    def __init__(self, database: Database, shards: Sequence[Database] = ()) -> None:
        self._database = database
        self.path, self.read_only = database.path, database.read_only
        self.n_shards = len(shards) or 1
        self._files = Databases(shards or [database])  # where the answers lie
        self.answers: Answers | ShardedAnswers
        self.leases: Leases | ShardedLeases
        client = new_client()
        if shards:
            self.answers, self.leases = ShardedAnswers(self._files, client), ShardedLeases(self._files, client)
        else:
            self.answers, self.leases = Answers(database, client), Leases(database, client)
        self.fingerprints, self.runs = Fingerprints(database, self._files), Runs(database)
        self.second_answers = SecondAnswers(database)
        self.nights, self.orders = Nights(database), Orders(database)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, read_only: bool = False, shards: int | None = None) -> Store:
        """Open a store, or create a new one.

        Parameters
        ----------
        shards : int, optional
            The number of files that a new store's answers are divided among. An existing store has its number.

        Raises
        ------
        ConfigError
            If the path is not a store, is damaged, was written by a newer version, cannot be written, or has another
            number of shards.
        """
        path = Path(path).expanduser().absolute()
        refuse_foreign_file(path, read_only=read_only)
        try:
            if not read_only:
                private_folder(path.parent)
                prepare(path)
            with contextlib.closing(connect(path, read_only=True)) as db:
                check_version(path, db)
            files = arrange(path, shards, read_only=read_only)
            return cls(Database(path, read_only), [Database(file, read_only) for file in files])
        except sqlite3.Error as error:
            hint = store_error(path, error).hint
            raise ConfigError("db", str(path), f"cannot be opened: {error}", hint) from None
        except OSError as error:
            fix = "Create the folder" if isinstance(error, FileNotFoundError) else "Give it write permission"
            hint = f"{fix}, or give another --db"
            raise ConfigError("db", str(path), f"cannot be opened: {error.strerror}", hint) from None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish queued writes, release all leases, close the file. May be called twice."""
        with contextlib.suppress(StoreError):
            self.leases.close()
        for database in (*self._files, self._database):
            database.close()

    def let_own(self, writer_of: Callable[[Path], JobQueue]) -> None:
        """Write each shard by way of ``writer_of`` its file, as `audit.store.shards.OwnerWriter` does.

        A store that is one file stays as it is: this process writes it.
        """
        if self.n_shards > 1:
            for database in self._files:
                database.write_through(writer_of(database.path))

    def merge(self, source: Store) -> Merged:
        """Add the answers of another store to this one: see `audit.store.answers.merging.merge_answers`.

        Raises
        ------
        ConfigError
            If it is the same file.
        """
        if self.path.samefile(source.path):
            raise ConfigError("SOURCE", str(source.path), "is the store to merge into", "Give another store")
        merged, pairs = Merged(), pairs_of(source._database)
        paired = {first for first, *_ in pairs}
        for file in source._files:
            merged.add(merge_answers(self._files, file, paired))
        # Of an answer that does not count here, a second one says nothing about those that do.
        counting = [pair for pair in pairs if pair[0] not in merged.outdone]
        merge_facts(self._database, self._files, source._database, counting)
        self.runs.add_parts(source.runs)
        return merged

    def own_itself(self) -> None:
        """Write the shards from this process again."""
        for database in self._files:
            database.write_itself()

    def stats(self) -> dict[str, Any]:
        """The number of rows by table, the answers by model, and the size of all files in bytes."""
        counts: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
        answers: Counter[tuple[str, str]] = Counter()
        databases = (self._database, *self._files) if self.n_shards > 1 else (self._database,)
        for database in databases:
            with database.read() as db:
                counts.update(_counts(db))
                answers.update(_answers_by_model(db))
            files = (database.path, Path(f"{database.path}-wal"))
            counts["bytes"] += sum(file.stat().st_size for file in files if file.exists())
        with self._database.read() as db:
            bodies = dict(db.execute("SELECT id, body FROM fingerprints"))
        models = [
            {
                "fingerprint_id": name,
                "fingerprint": from_json_bytes(bodies[name]) if name in bodies else None,
                "kind": kind,
                "answers": count,
            }
            for (name, kind), count in answers.most_common()
        ]
        counts["answers"] = answers.total()
        size = counts.pop("bytes")
        return {**counts, "models": models, "bytes": size}

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store to a new file, with its shards beside it, even while an audit is writing. Overwrites nothing.

        The shards are copied first: a run that the copy has, has its answers there.
        """
        target = Path(path).expanduser().absolute()
        pairs = [(self.path, target)]
        if self.n_shards > 1:
            copies = shard_files(target, self.n_shards)
            pairs = [*zip((shard.path for shard in self._files), copies, strict=True), *pairs]
        for _, copy in pairs:
            if copy.exists():
                raise ConfigError("backup", str(copy), "already exists", "Give another path")
        for source, copy in pairs:
            _back_up(source, copy)


_COUNTED = ("answers", "failures", "prompts", "quarantine", "runs", "leases")


def _counts(db: sqlite3.Connection) -> dict[str, int]:
    counts = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _COUNTED}
    if packed.has_table(db):
        counts["leases"] += db.execute("SELECT count(*) FROM request_leases").fetchone()[0]
    return counts


def _answers_by_model(db: sqlite3.Connection) -> dict[tuple[str, str], int]:
    """The number of answers by fingerprint and kind."""
    by_model = "SELECT fingerprint, kind, count(*) AS n FROM answers GROUP BY fingerprint, kind"
    if packed.has_table(db):
        by_model += " UNION ALL SELECT fingerprint, 'score', sum(answers) FROM packed_scores GROUP BY 1"
    sql = f"SELECT fingerprint, kind, sum(n) FROM ({by_model}) GROUP BY fingerprint, kind"
    return {(name, kind): int(count) for name, kind, count in db.execute(sql)}


def _back_up(source: Path, target: Path) -> None:
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    part.touch(mode=0o600)
    copy = sqlite3.connect(part)
    try:
        with contextlib.closing(connect(source, read_only=True)) as db:
            db.backup(copy)
        copy.close()
        os.link(part, target)  # fails instead of overwriting a file that has appeared in the meantime
    finally:
        copy.close()
        part.unlink(missing_ok=True)

"""One SQLite file that keeps every answer as it arrives, or several that share the answers and their leases.

    answers      key → answer, when and in which run it was given, with a checksum of the whole row
    prompts, fingerprints   each prompt's text once, under its hash; what a model's id stands for
    failures     the last failed attempt of a question, for people; never counts as an answer
    second_answers   both answers to questions that were asked twice
    leases, owners   which audit is asking what at the moment (two audits may share a store)
    quarantine   rows with a wrong checksum, and answers that may belong to another model: they are asked again
    runs, row_tables, baselines   results, so that reports never ask models
    gate_nights  the outcome of every gate, night by night
    shard        what a file is in a store of several

Durability: WAL with synchronous=FULL, so that an answer is on the disk when `Answers.write` returns. A file that is not
a store, or is damaged, is rejected and left untouched.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audit.store.answers import Answers
from audit.store.database import Database, StoreError, connect, store_error
from audit.store.files import Files, arrange, check_schema, prepare, refuse_foreign_file, shard_files
from audit.store.keys import fingerprint_id, from_json_bytes, to_json_bytes
from audit.store.leases import Leases, new_client
from audit.store.merging import Merged, copy_facts, merge_answers
from audit.store.runs import Nights, Runs
from audit.store.second_answers import SecondAnswers
from backends.errors import ConfigError
from backends.files import private_folder

_COUNTED = ("answers", "failures", "prompts", "quarantine", "runs", "leases")


class Store:
    """Answers, leases, runs and nights. Use `Store.open`.

    Attributes
    ----------
    answers : Answers
    leases : Leases
    n_shards : int
        Files of answers and leases; 1 if all is one file.
    runs : Runs
    nights : Nights
    """

    def __init__(self, database: Database, shards: Sequence[Database] = ()) -> None:
        self._database = database
        self.path, self.read_only = database.path, database.read_only
        self.files = Files(shards or [database])  # where the answers lie
        self.n_shards = len(self.files)
        client = new_client()
        self.answers, self.leases = Answers(self.files, client), Leases(self.files, client)
        self.runs, self.nights = Runs(database), Nights(database)

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
            If the path is not a store of this version, is damaged, cannot be written, or has another number of shards.
        """
        path = Path(path).expanduser().absolute()
        refuse_foreign_file(path, read_only=read_only)
        try:
            if not read_only:
                private_folder(path.parent)
                prepare(path)
            with contextlib.closing(connect(path, read_only=True)) as db:
                check_schema(path, db)
            files = arrange(path, shards, read_only=read_only)
            return cls(Database(path, read_only), [Database(file, read_only) for file in files])
        except sqlite3.Error as error:
            hint = store_error(path, error).hint
            raise ConfigError("db", str(path), f"cannot be opened: {error}", hint) from None
        except OSError as error:
            fix = "Create the folder" if isinstance(error, FileNotFoundError) else "Give it write permission"
            hint = f"{fix}, or give another --db"
            raise ConfigError("db", str(path), f"cannot be opened: {error.strerror}", hint) from None

    @functools.cached_property
    def second_answers(self) -> SecondAnswers:
        """Both answers to questions that were asked twice."""
        return SecondAnswers(self._database)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish queued writes, release all leases, close the file. May be called twice."""
        with contextlib.suppress(StoreError):
            self.leases.close()
        for database in (*self.files, self._database):
            database.close()

    def know(self, fingerprint: Mapping[str, Any]) -> str:
        """Record what a model is, and return the id that its answers' keys contain."""
        own = fingerprint_id(fingerprint)
        if not self.read_only:
            sql = "INSERT OR IGNORE INTO fingerprints (id, body, at) VALUES (?, ?, ?)"
            for database in dict.fromkeys((self._database, *self.files)):
                database.write(sql, (own, to_json_bytes(dict(fingerprint)), time.time()))
        return own

    def merge(self, source: Store) -> Merged:
        """Add the answers of another store to this one: see `audit.store.merging.merge_answers`.

        Raises
        ------
        ConfigError
            If it is the same file.
        """
        if self.path.samefile(source.path):
            raise ConfigError("SOURCE", str(source.path), "is the store to merge into", "Give another store")
        merged = merge_answers(self.files, source.files)
        copy_facts(self._database, self.files, source._database, merged.others)
        return merged

    def stats(self) -> dict[str, Any]:
        """The number of rows by table, the answers by model, and the size of all files in bytes."""
        counts: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
        answers: Counter[str] = Counter()
        for database in dict.fromkeys((self._database, *self.files)):
            with database.read() as db:
                for table in _COUNTED:
                    counts[table] += db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                answers.update(dict(db.execute("SELECT fingerprint, count(*) FROM answers GROUP BY fingerprint")))
            files = (database.path, Path(f"{database.path}-wal"))
            counts["bytes"] += sum(file.stat().st_size for file in files if file.exists())
        with self._database.read() as db:
            bodies = dict(db.execute("SELECT id, body FROM fingerprints"))
        models = [
            {"fingerprint_id": name, "fingerprint": name in bodies and from_json_bytes(bodies[name]), "answers": count}
            for name, count in answers.most_common()
        ]
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
            pairs = [*zip((shard.path for shard in self.files), copies, strict=True), *pairs]
        for _, copy in pairs:
            if copy.exists():
                raise ConfigError("backup", str(copy), "already exists", "Give another path")
        for source, copy in pairs:
            _back_up(source, copy)


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

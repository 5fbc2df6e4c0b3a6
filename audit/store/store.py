"""One SQLite file that keeps every answer as it arrives.

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

Durability: WAL with synchronous=FULL, so that an answer is on the disk when `Answers.write` returns.

A file that is not a store, or is damaged, is rejected and left untouched.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import uuid
from pathlib import Path
from typing import Any

from audit.store.answers import Answers, packed
from audit.store.answers.merging import Merged, merge
from audit.store.fingerprints import Fingerprints
from audit.store.keys import from_json_bytes
from audit.store.leases import Leases
from audit.store.nights import Nights
from audit.store.orders import Orders
from audit.store.runs import Runs
from audit.store.second_answers import SecondAnswers
from audit.store.sqlite.database import Database, StoreError, connect, store_error
from audit.store.sqlite.schema import check_version, prepare, refuse_foreign_file
from backends.errors import ConfigError
from backends.files import private_folder


class Store:
    """Answers, leases, runs and nights in one SQLite file. Use `Store.open`.

    Attributes
    ----------
    answers : Answers
    fingerprints : Fingerprints
    leases : Leases
    runs : Runs
    second_answers : SecondAnswers
    nights : Nights
    orders : Orders
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.path, self.read_only = database.path, database.read_only
        self.answers, self.fingerprints = Answers(database), Fingerprints(database)
        self.leases, self.runs = Leases(database), Runs(database)
        self.second_answers = SecondAnswers(database)
        self.nights, self.orders = Nights(database), Orders(database)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, read_only: bool = False) -> Store:
        """Open a store, or create a new one.

        Raises
        ------
        ConfigError
            If the path is not a store, is damaged, was written by a newer version, or cannot be written.
        """
        path = Path(path).expanduser().absolute()
        refuse_foreign_file(path, read_only=read_only)
        try:
            if not read_only:
                private_folder(path.parent)
                prepare(path)
            with contextlib.closing(connect(path, read_only=True)) as db:
                check_version(path, db)
            return cls(Database(path, read_only))
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
        if self._database.has_written:
            with contextlib.suppress(StoreError):
                self.leases.close()
        self._database.close()

    def merge(self, source: Store) -> Merged:
        """Add the answers of another store to this one: see `audit.store.answers.merging.merge`.

        Raises
        ------
        ConfigError
            If it is the same file.
        """
        if self.path.samefile(source.path):
            raise ConfigError("SOURCE", str(source.path), "is the store to merge into", "Give another store")
        return merge(self._database, source._database)

    def stats(self) -> dict[str, Any]:
        """The number of rows by table, the answers by model, and the size of the file in bytes."""
        with self._database.read() as db:
            tables = ("answers", "failures", "prompts", "quarantine", "runs", "leases")
            counts: dict[str, Any] = {t: db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}
            by_model = "SELECT fingerprint, kind, count(*) AS n FROM answers GROUP BY fingerprint, kind"
            if packed.has_table(db):
                counts["leases"] += db.execute("SELECT count(*) FROM request_leases").fetchone()[0]
                counts["answers"] += int(db.execute("SELECT total(answers) FROM packed_scores").fetchone()[0])
                by_model += " UNION ALL SELECT fingerprint, 'score', sum(answers) FROM packed_scores GROUP BY 1"
            counts["models"] = [
                {
                    "fingerprint_id": name,
                    "fingerprint": None if body is None else from_json_bytes(body),
                    "kind": kind,
                    "answers": int(count),
                }
                for name, body, kind, count in db.execute(
                    f"SELECT fingerprint, f.body, kind, sum(n) FROM ({by_model}) LEFT JOIN fingerprints f "
                    "ON f.id = fingerprint GROUP BY fingerprint, kind ORDER BY 4 DESC"
                )
            ]
        files = (self.path, f"{self.path}-wal")
        counts["bytes"] = sum(os.path.getsize(file) for file in files if os.path.exists(file))
        return counts

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store to a new file, even while an audit is writing. Never overwrites."""
        target = Path(path).expanduser().absolute()
        if target.exists():
            raise ConfigError("backup", str(target), "already exists", "Give another path")
        part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
        part.touch(mode=0o600)
        copy = sqlite3.connect(part)
        try:
            with contextlib.closing(connect(self.path, read_only=True)) as source:
                source.backup(copy)
            copy.close()
            os.link(part, target)  # fails instead of overwriting a file that has appeared in the meantime
        finally:
            copy.close()
            part.unlink(missing_ok=True)

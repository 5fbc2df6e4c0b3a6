"""Merges stores: every answer of another store is verified and then stored, unless its key is already answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from audit.store import second_answers
from audit.store.answers import packed, prompts
from audit.store.answers.packed import PackedRow, Unpacked
from audit.store.answers.quarantine import names, record
from audit.store.answers.rows import ANSWER_COLUMNS, AnswerRow, DamagedError
from audit.store.answers.writing import EncodedEntry, insert
from audit.store.keys import from_json_bytes, join_request, keyed_request
from audit.store.sqlite.database import Database, chunked
from backends.errors import BackendError

_TOGETHER = 500  # rows per transaction, so that others may write in between


class Targets(Protocol):
    """The files of the store to merge into, as `audit.store.shards.Databases` has them."""

    def __getitem__(self, place: int, /) -> Database: ...

    def split(
        self, values: Iterable[EncodedEntry], group: Callable[[EncodedEntry], bytes], /
    ) -> Iterator[tuple[int, list[EncodedEntry]]]:
        """The values that belong to each file, with the file's place."""
        ...


@dataclass(slots=True)
class Merged:
    """The result of merging a store: its number of answers, how many were new, and the keys of damaged ones."""

    answers: int = 0
    new: int = 0
    damaged: list[str] = field(default_factory=list)

    def add(self, other: Merged) -> None:
        """Add what became of another file."""
        self.answers, self.new, self.damaged = (
            self.answers + other.answers,
            self.new + other.new,
            self.damaged + other.damaged,
        )


def merge_answers(target: Targets, source: Database) -> Merged:
    """Add the answers of one file to a store's; the first answer under a key is final. ``source`` stays as it is.

    Damaged rows are quarantined in ``target``. After an interruption, merging again adds what is missing.
    """
    merged = Merged()
    problem = f"damaged in {source.path.name}"
    with source.read() as db:
        for rows in (_single_rows(db), _packed_rows(db)):
            for chunk in chunked(rows, _TOGETHER):
                sound = [row for row in chunk if isinstance(row, EncodedEntry)]
                damaged = [(name, row.row) for row in chunk if isinstance(row, _Damaged) for name in row.names]
                split = target.split(sound, lambda row: row.group)
                writing = [target[place].submit(partial(insert, encoded=some)) for place, some in split]
                merged.new += sum(sum(written.result()) for written in writing)
                _quarantine(target[0], damaged, problem)
                merged.answers += sum(len(row.keys) for row in sound) + len(damaged)
                merged.damaged += [name for name, _ in damaged]
    return merged


def merge_facts(target: Database, files: Iterable[Database], source: Database) -> None:
    """Add fingerprints, second answers and random orders of items of one file to another; not its runs and failures.

    The ``files`` of the target's answers get the fingerprints too.
    """
    with source.read() as db:
        for database in dict.fromkeys((target, *files)):
            _copy(database, db, "fingerprints")
        _copy(target, db, "item_orders")
        pairs = second_answers.sound_rows(db)
    target.submit(lambda to: second_answers.add_rows(to, pairs)).result()


@dataclass(frozen=True, slots=True)
class _Damaged:
    names: list[str]
    row: AnswerRow | PackedRow


def _single_rows(db: sqlite3.Connection) -> Iterator[EncodedEntry | _Damaged]:
    for values in db.execute(f"SELECT {ANSWER_COLUMNS} FROM answers"):
        row = AnswerRow(*values)
        try:
            answer, prompt = row.answer(), prompts.read(db, row.prompt)
            if prompt is None or isinstance(answer, BackendError):
                raise DamagedError
            question = keyed_request(join_request(row.kind, prompt, from_json_bytes(row.part)), row.fingerprint)
            if question.keys != (row.key,):
                raise DamagedError
        except DamagedError:
            yield _Damaged([str(row.key)], row)
        else:
            yield EncodedEntry(question.kind, question.group, question.keys, prompts.encode(prompt), single=[row])


def _packed_rows(db: sqlite3.Connection) -> Iterator[EncodedEntry | _Damaged]:
    if not packed.has_table(db):
        return
    for values in db.execute(f"SELECT {packed.COLUMNS} FROM packed_scores ORDER BY id"):
        row = PackedRow(*values)
        try:
            unpacked = Unpacked.of(row, row.scores(), prompts.read(db, row.prompt))
        except DamagedError:
            yield _Damaged(names(db, row), row)
        else:
            question = unpacked.question
            yield EncodedEntry(question.kind, question.group, question.keys, prompts.encode(question.prompt), row)


def _quarantine(target: Database, damaged: list[tuple[str, AnswerRow | PackedRow]], problem: str) -> None:
    def add(db: sqlite3.Connection) -> None:
        for name, row in damaged:
            if db.execute("SELECT 1 FROM quarantine WHERE key = ? AND problem = ?", (name, problem)).fetchone() is None:
                record(db, name, row, problem)

    if damaged:
        target.submit(add).result()


def _copy(target: Database, source: sqlite3.Connection, table: str) -> None:
    """Copy rows with new ids; an older store opened read-only may lack the table."""
    if source.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is None:
        return
    rows = source.execute(f"SELECT * FROM {table}").fetchall()
    if rows:
        marks = ",".join("?" * len(rows[0]))
        target.submit(lambda db: db.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)).result()

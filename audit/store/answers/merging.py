"""Merges stores: every answer of another store is verified and then stored, unless its key is already answered."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from audit.store import second_answers
from audit.store.answers import lookup, packed, prompts
from audit.store.answers.packed import PackedRow, Unpacked
from audit.store.answers.quarantine import names, record
from audit.store.answers.rows import ANSWER_COLUMNS, AnswerRow, DamagedError
from audit.store.answers.writing import EncodedEntry, answers_of, insert, keyed_question
from audit.store.keys import from_json_bytes, join_request, keyed_request
from audit.store.sqlite.database import Database, chunked
from backends.base import Answer, GenerateResponse, ScoreResponse
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
    """The result of merging a store: its number of answers, how many were new, and the keys of damaged ones.

    Attributes
    ----------
    others : int
        Known answers in place of which the store to merge into has another, which counts.
    apart : float
        The most, in nats, by which scores among these differ.
    outdone : set of str
        The keys of those among them that are the first answer of a pair.
    """

    answers: int = 0
    new: int = 0
    damaged: list[str] = field(default_factory=list)
    others: int = 0
    apart: float = 0.0
    outdone: set[str] = field(default_factory=set)

    def add(self, other: Merged) -> None:
        """Add what became of another file."""
        self.answers += other.answers
        self.new += other.new
        self.damaged += other.damaged
        self.others += other.others
        self.apart = max(self.apart, other.apart)
        self.outdone |= other.outdone


def merge_answers(target: Targets, source: Database, paired: Collection[str] = ()) -> Merged:
    """Add the answers of one file to a store's; the first answer under a key is final. ``source`` stays as it is.

    Damaged rows are quarantined in ``target``. After an interruption, merging again adds what is missing.
    ``paired``: the keys of the first answers of pairs, of which it is told whether they count.
    """
    merged = Merged()
    problem = f"damaged in {source.path.name}"
    with source.read() as db:
        for rows in (_single_rows(db), _packed_rows(db)):
            for chunk in chunked(rows, _TOGETHER):
                sound = [row for row in chunk if isinstance(row, EncodedEntry)]
                damaged = [(name, row.row) for row in chunk if isinstance(row, _Damaged) for name in row.names]
                split = list(target.split(sound, lambda row: row.group))
                writing = [target[place].submit(partial(insert, encoded=some)) for place, some in split]
                for (place, some), written in zip(split, writing, strict=True):
                    counts = written.result()
                    merged.new += sum(counts)
                    not_new = [row for row, count in zip(some, counts, strict=True) if count < len(row.keys)]
                    _compare(target[place], not_new, paired, merged)
                _quarantine(target[0], damaged, problem)
                merged.answers += sum(len(row.keys) for row in sound) + len(damaged)
                merged.damaged += [name for name, _ in damaged]
    return merged


def pairs_of(source: Database) -> list[tuple[Any, ...]]:
    """The undamaged rows of a store's second answers, with the key of the first answer in front."""
    with source.read() as db:
        return second_answers.sound_rows(db)


def merge_facts(
    target: Database, files: Iterable[Database], source: Database, pairs: Sequence[tuple[Any, ...]]
) -> None:
    """Add fingerprints, second answers and random orders of items of one file to another; not its runs and failures.

    The ``files`` of the target's answers get the fingerprints too. ``pairs`` are the second answers to add.
    """
    with source.read() as db:
        for database in dict.fromkeys((target, *files)):
            _copy(database, db, "fingerprints")
        _copy(target, db, "item_orders")
    target.submit(lambda to: second_answers.add_rows(to, pairs)).result()


def _compare(target: Database, rows: Sequence[EncodedEntry], paired: Collection[str], merged: Merged) -> None:
    """Count those among answers that are not new in place of which the target has others."""
    questions = [keyed_question(row) for row in rows]
    with target.read() as db:
        found = lookup.find(db, questions)
    for row, question in zip(rows, questions, strict=True):
        kept = found.parts(question)
        for key, answer in answers_of(row).items():
            apart = _difference(kept[key], answer) if key in kept else 0.0
            if apart:
                merged.others += 1
                merged.apart = max(merged.apart, apart if math.isfinite(apart) else 0.0)
                if key in paired:
                    merged.outdone.add(key)


def _difference(a: Answer, b: Answer) -> float:
    """By how many nats two answers under one key differ; infinite for other differences."""
    match a, b:
        case ScoreResponse((a_score,)), ScoreResponse((b_score,)):
            pairs = [(getattr(a_score, name), getattr(b_score, name)) for name in ("logprob", "low", "high")]
            if any((one is None) != (other is None) for one, other in pairs):
                return math.inf
            return float(max(abs(one - other) for one, other in pairs if one is not None))
        case GenerateResponse(), GenerateResponse():
            return 0.0 if (a.text, a.finish_reason) == (b.text, b.finish_reason) else math.inf
    return 0.0 if a == b else math.inf


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

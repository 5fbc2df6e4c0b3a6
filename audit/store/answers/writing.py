"""Writes entries: encoded before the transaction, and stored in it unless already answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from audit.store.answers import packed, prompts, rows
from audit.store.answers.packed import PackedRow
from audit.store.answers.rows import AnswerRow, DamagedError
from audit.store.answers.values import Entry
from audit.store.codecs import answer_to_json
from audit.store.keys import KeyedRequest, prompt_id, to_json_bytes
from backends.base import ScoreResponse
from backends.errors import BackendError


@dataclass(frozen=True, slots=True)
class EncodedEntry:
    """An entry with the rows to write: a packed row, or one row per answer."""

    entry: Entry
    at: float
    row: PackedRow | None
    single: Sequence[AnswerRow]


def encode(entry: Entry, at: float) -> EncodedEntry:
    """Pack an answer that arrived at a time (seconds since the epoch). Raises ValueError if a number is not finite."""
    question, answer = entry.question, entry.answer
    if isinstance(answer, BackendError):
        return EncodedEntry(entry, at, None, ())
    if isinstance(answer, ScoreResponse) and len(question.keys) > 1:
        return EncodedEntry(entry, at, PackedRow.make(question, answer, at=at), ())
    return EncodedEntry(entry, at, None, packed.single_rows(question, answer, question.keys, at=at))


def insert(db: sqlite3.Connection, encoded: Sequence[EncodedEntry]) -> int:
    """Store answers and failures, and end their leases. The first answer under a key stays.

    Returns how many answers were stored.
    """
    count = 0
    for one in encoded:
        question, answer = one.entry.question, one.entry.answer
        prompts.insert(db, question.prompt)
        if isinstance(answer, BackendError):
            _insert_failure(db, question, answer, one.at)
        elif question.kind == "score":
            count += _insert_scores(db, one)
        else:
            count += rows.insert(db, one.single)
        db.execute(
            "DELETE FROM request_leases WHERE grp = ? AND tags = ?", (question.group, packed.tags(question.keys))
        )
    return count


def _insert_scores(db: sqlite3.Connection, one: EncodedEntry) -> int:
    question = one.entry.question
    stored = list(packed.of_groups(db, [question.group]))
    answered = _answered(stored, question)
    if one.row is not None and rows.is_any(db):
        answered |= rows.answered(db, question.keys)
    if len(answered) == len(question.keys):
        return 0
    if answered:
        one = encode(_without(one.entry, answered), one.at)
        question = one.entry.question
    if one.row is None:
        return rows.insert(db, one.single)
    if len(stored) < packed.MOST_ROWS:
        packed.insert(db, one.row, question.keys)
        return len(question.keys)
    assert not isinstance(one.entry.answer, BackendError)
    return rows.insert(db, packed.single_rows(question, one.entry.answer, question.keys, at=one.at))


def _answered(stored: Iterable[PackedRow], question: KeyedRequest) -> set[str]:
    found: set[str] = set()
    for row in stored:
        try:
            found.update(packed.pieces(row.scores(), question))
        except DamagedError:  # the next reading quarantines it
            continue
    return found


def _without(entry: Entry, keys: set[str]) -> Entry:
    assert isinstance(entry.answer, ScoreResponse)
    scores = zip(entry.question.keys, entry.answer.scores, strict=True)
    return Entry(
        entry.question.without(keys),
        replace(entry.answer, scores=tuple(score for key, score in scores if key not in keys)),
    )


def _insert_failure(db: sqlite3.Connection, question: KeyedRequest, error: BackendError, at: float) -> None:
    prompt, body = prompt_id(question.prompt), to_json_bytes(answer_to_json(error))
    db.executemany(
        "INSERT INTO failures (key, fingerprint, kind, prompt, detail, error, body, at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (key, question.fingerprint, question.kind, prompt, to_json_bytes(detail), error.kind, body, at)
            for key, detail in zip(question.keys, question.details, strict=True)
        ],
    )

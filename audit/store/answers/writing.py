"""Writes entries: encoded before the transaction, and stored in it unless already answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from audit.store.answers import packed, prompts, rows
from audit.store.answers.packed import PackedRow, Unpacked
from audit.store.answers.rows import AnswerRow, DamagedError
from audit.store.answers.values import Entry
from audit.store.codecs import answer_to_json, split_response
from audit.store.keys import KeyedRequest, from_json_bytes, join_request, keyed_request, to_json_bytes
from backends.base import Answer, ScoreResponse
from backends.errors import BackendError


class EncodedEntry(NamedTuple):
    """An entry as its rows: a packed one, one for each answer, or one for each key that failed.

    It holds nothing but text, bytes and numbers, so that it travels between processes at a tenth of its entry's cost.
    """

    kind: str
    group: bytes
    keys: tuple[str, ...]
    prompt: prompts.PromptRow
    packed: PackedRow | None = None
    single: Sequence[AnswerRow] = ()
    failed: Sequence[tuple[Any, ...]] = ()


def encode(entry: Entry, at: float) -> EncodedEntry:
    """Encode what arrived at a time (seconds since the epoch). Raises ValueError if a number is not finite."""
    question, answer = entry.question, entry.answer
    own = question.kind, question.group, question.keys
    prompt = prompts.encode(question.prompt)
    if isinstance(answer, BackendError):
        return EncodedEntry(*own, prompt, failed=_failures(question, prompt.id, answer, at))
    if isinstance(answer, ScoreResponse) and len(question.keys) > 1:
        return EncodedEntry(*own, prompt, PackedRow.make(question, answer, at=at))
    return EncodedEntry(*own, prompt, single=packed.single_rows(question, answer, question.keys, at=at))


def insert(db: sqlite3.Connection, encoded: Sequence[EncodedEntry], client: str = "") -> list[int]:
    """Store answers and failures, and end their leases. The first answer under a key stays.

    A failure ends the lease of the ``client`` that failed: if it stalled, another one may be asking meanwhile.
    Returns how many answers of each entry were stored.
    """
    counts = []
    for one in encoded:
        prompts.insert(db, one.prompt)
        count = 0
        if one.failed:
            db.executemany(
                "INSERT INTO failures (key, fingerprint, kind, prompt, detail, error, body, at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                one.failed,
            )
        elif one.kind == "score":
            count = _insert_scores(db, one)
        else:
            count = rows.insert(db, one.single)
        counts.append(count)
        lease: tuple[object, ...] = (one.group, packed.tags(one.keys))
        own, lease = (" AND owner = ?", (*lease, client)) if one.failed else ("", lease)
        db.execute(f"DELETE FROM request_leases WHERE grp = ? AND tags = ?{own}", lease)
    return counts


def _insert_scores(db: sqlite3.Connection, one: EncodedEntry) -> int:
    stored = list(packed.of_groups(db, [one.group]))
    answered = _answered(stored, keyed_question(one)) if stored else set()
    if one.packed is None:
        return rows.insert(db, [row for row in one.single if row.key not in answered])
    if rows.is_any(db):
        answered |= rows.answered(db, one.keys)
    if len(answered) == len(one.keys):
        return 0
    if not answered and len(stored) < packed.MOST_ROWS:
        packed.insert(db, one.packed, one.keys)
        return len(one.keys)
    return _insert_rest(db, one, answered, is_full=len(stored) >= packed.MOST_ROWS)


def _insert_rest(db: sqlite3.Connection, one: EncodedEntry, answered: Set[str], *, is_full: bool) -> int:
    """Insert those answers of a packed row that are not stored yet: one by one if its group ``is_full``."""
    assert one.packed is not None
    unpacked = Unpacked.of(one.packed, one.packed.scores(), from_json_bytes(one.prompt.body))
    if is_full:
        return rows.insert(db, unpacked.single_rows(set(one.keys) - answered))
    left = unpacked.question.without(answered)
    scores = dict(zip(one.keys, unpacked.response.scores, strict=True))
    response = replace(unpacked.response, scores=tuple(scores[key] for key in left.keys))
    rest = encode(Entry(left, response), one.packed.at)
    if rest.packed is None:
        return rows.insert(db, rest.single)
    packed.insert(db, rest.packed, rest.keys)
    return len(rest.keys)


def keyed_question(one: EncodedEntry) -> KeyedRequest:
    """The question of an entry with answers."""
    prompt = from_json_bytes(one.prompt.body)
    if one.packed is not None:
        return Unpacked.of(one.packed, one.packed.scores(), prompt).question
    (row,) = one.single
    return keyed_request(join_request(row.kind, prompt, from_json_bytes(row.part)), row.fingerprint)


def answers_of(one: EncodedEntry) -> dict[str, Answer]:
    """The answers of an entry by key."""
    if one.packed is None:
        return {row.key: row.answer() for row in one.single}
    return dict(zip(one.keys, split_response(one.packed.scores().response), strict=True))


def _answered(stored: Iterable[PackedRow], question: KeyedRequest) -> set[str]:
    found: set[str] = set()
    for row in stored:
        try:
            found.update(packed.pieces(row.scores(), question))
        except DamagedError:  # the next reading quarantines it
            continue
    return found


def _failures(question: KeyedRequest, prompt: str, error: BackendError, at: float) -> list[tuple[Any, ...]]:
    body = to_json_bytes(answer_to_json(error))
    return [
        (key, question.fingerprint, question.kind, prompt, to_json_bytes(detail), error.kind, body, at)
        for key, detail in zip(question.keys, question.details, strict=True)
    ]

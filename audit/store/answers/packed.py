"""The table of packed scores: a row for all continuations of a prompt that one model answered together.

A row is found by its group, the hash of what the keys of a prompt have in common. A continuation that is asked later
comes in a further row. So that no prompt has too many, what is asked after `MOST_ROWS` is stored one by one, as
`rows` has it. By a key alone a row is found by the key's first four bytes: see `by_key`.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from audit.store.answers.packing import PackedScores, pack, unpack
from audit.store.answers.rows import AnswerRow, DamagedError
from audit.store.codecs import answer_to_json, split_response
from audit.store.keys import KeyedRequest, keyed_request, prompt_id, to_bytes, to_json_bytes
from audit.store.sqlite.database import chunked, placeholders
from backends.base import Response, ScoreRequest, ScoreResponse, prompt_from_json

MOST_ROWS = 8  # of one group: each reading of one of its answers reads them all

COLUMNS = "id, grp, fingerprint, prompt, answers, body, checksum, at"


class PackedRow(NamedTuple):
    """Scores of one prompt and model, as their table has them. ``n_answers`` is the number of continuations.

    ``checksum`` covers ``group`` to ``body``. ``id`` is 0 for a row that is not stored yet.
    """

    id: int
    group: bytes
    fingerprint: str
    prompt: str
    n_answers: int
    body: bytes
    checksum: bytes
    at: float

    @classmethod
    def make(cls, question: KeyedRequest, response: ScoreResponse, *, at: float) -> PackedRow:
        """A row with its checksum, for a request of scores."""
        request = question.request
        assert isinstance(request, ScoreRequest)
        body = pack(request.continuations, request.first_given, response)
        columns = (question.group, question.fingerprint, prompt_id(question.prompt), len(request.continuations), body)
        return cls(0, *columns, _checksum(*columns), at)

    @property
    def is_sound(self) -> bool:
        """Whether the row is undamaged."""
        try:
            return _checksum(*self[1:6]) == self.checksum
        except (TypeError, AttributeError, ValueError):  # a column of another type than was written
            return False

    def scores(self) -> PackedScores:
        """The packed content. Raises `DamagedError` if the row is damaged."""
        if not self.is_sound:
            raise DamagedError
        return self.scores_if_any()

    def scores_if_any(self) -> PackedScores:
        """The packed content, regardless of the checksum. Raises `DamagedError` if it cannot be read."""
        try:
            return unpack(self.body)
        except (ValueError, TypeError, KeyError, IndexError, struct.error):
            raise DamagedError from None


class Unpacked(NamedTuple):
    """A packed row with its content, its prompt as a JSON value, and the keyed request that it answers."""

    row: PackedRow
    response: ScoreResponse
    question: KeyedRequest

    @classmethod
    def of(cls, row: PackedRow, scores: PackedScores, prompt: Any) -> Unpacked:
        """Raises `DamagedError` if the prompt is missing (None), or does not belong to the row."""
        if prompt is None:
            raise DamagedError
        request = ScoreRequest(prompt_from_json(prompt), scores.continuations, scores.first_given)
        question = keyed_request(request, row.fingerprint)
        if question.group != row.group or len(question.keys) != row.n_answers:
            raise DamagedError
        return cls(row, scores.response, question)

    def piece(self, place: int) -> ScoreResponse:
        """The answer at a place among the row's continuations."""
        return ScoreResponse((self.response.scores[place],), self.response.prompt_tokens)

    def single_rows(self, keys: Collection[str]) -> list[AnswerRow]:
        """The answers under ``keys`` as rows of their own."""
        return single_rows(self.question, self.response, keys, at=self.row.at)


def single_rows(question: KeyedRequest, response: Response, keys: Collection[str], *, at: float) -> list[AnswerRow]:
    """The answers to a request under ``keys``, a row each."""
    prompt = prompt_id(question.prompt)
    return [
        AnswerRow.make(
            key,
            question.fingerprint,
            question.kind,
            prompt,
            to_json_bytes(part),
            to_json_bytes(answer_to_json(piece)),
            at=at,
        )
        for key, part, piece in zip(question.keys, question.details, split_response(response), strict=True)
        if key in keys
    ]


def has_table(db: sqlite3.Connection) -> bool:
    """Whether the store has the table: one with an older schema, opened read-only, does not."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'packed_scores'").fetchone() is not None


def is_any(db: sqlite3.Connection) -> bool:
    """Whether there are packed rows."""
    return has_table(db) and db.execute("SELECT 1 FROM packed_scores LIMIT 1").fetchone() is not None


def of_groups(db: sqlite3.Connection, groups: Iterable[bytes]) -> Iterator[PackedRow]:
    """The rows of these groups, in the order in which they were stored within each."""
    for chunk in chunked(groups):
        sql = f"SELECT {COLUMNS} FROM packed_scores WHERE grp IN ({placeholders(chunk)}) ORDER BY id"
        yield from map(PackedRow._make, db.execute(sql, chunk))


def of_ids(db: sqlite3.Connection, ids: Iterable[int]) -> Iterator[PackedRow]:
    """The rows with these ids, in order."""
    for chunk in chunked(ids):
        sql = f"SELECT {COLUMNS} FROM packed_scores WHERE id IN ({placeholders(chunk)}) ORDER BY id"
        yield from map(PackedRow._make, db.execute(sql, chunk))


def insert(db: sqlite3.Connection, row: PackedRow, keys: Sequence[str]) -> None:
    """Insert a row, whose answers have these keys, in this order."""
    names = COLUMNS.removeprefix("id, ")
    done = db.execute(f"INSERT INTO packed_scores ({names}) VALUES ({placeholders(row[1:])})", row[1:])
    db.execute("INSERT INTO packed_keys (id, tags) VALUES (?, ?)", (done.lastrowid, tags(keys)))


def delete(db: sqlite3.Connection, row: PackedRow) -> None:
    """Delete a row."""
    db.execute("DELETE FROM packed_scores WHERE id = ?", (row.id,))
    db.execute("DELETE FROM packed_keys WHERE id = ?", (row.id,))


def keep_only(db: sqlite3.Connection, unpacked: Unpacked, keys: Collection[str]) -> None:
    """Remove the answers under all other keys from a row."""
    left = unpacked.question.without(set(unpacked.question.keys) - set(keys))
    scores = dict(zip(unpacked.question.keys, unpacked.response.scores, strict=True))
    response = ScoreResponse(tuple(scores[key] for key in left.keys), unpacked.response.prompt_tokens)
    row = PackedRow.make(left, response, at=unpacked.row.at)
    db.execute(
        "UPDATE packed_scores SET answers = ?, body = ?, checksum = ? WHERE id = ?",
        (row.n_answers, row.body, row.checksum, unpacked.row.id),
    )
    write_tags(db, {unpacked.row.id: tags(left.keys)})


def tags(keys: Iterable[str]) -> bytes:
    """The first four bytes of each key's hash, concatenated."""
    return bytes.fromhex("".join(key[3:11] for key in keys))


def read_tags(db: sqlite3.Connection, id: int) -> list[bytes]:
    """The tags that are kept with a row, one for each of its answers."""
    row = db.execute("SELECT tags FROM packed_keys WHERE id = ?", (id,)).fetchone()
    kept = row[0] if row is not None and isinstance(row[0], bytes) else b""
    return [kept[place : place + 4] for place in range(0, len(kept) - 3, 4)]


def write_tags(db: sqlite3.Connection, by_row: Mapping[int, bytes]) -> None:
    """Store tags with rows, replacing existing ones."""
    db.executemany("INSERT OR REPLACE INTO packed_keys (id, tags) VALUES (?, ?)", by_row.items())


def is_whole(scores: PackedScores, question: KeyedRequest) -> bool:
    """Whether a packed row answers a request of its group exactly."""
    request = question.request
    assert isinstance(request, ScoreRequest)
    return request.continuations == scores.continuations and request.first_given == scores.first_given


def pieces(scores: PackedScores, question: KeyedRequest) -> dict[str, ScoreResponse]:
    """The answers of a packed row to a request of its group, by key."""
    request, response = question.request, scores.response
    assert isinstance(request, ScoreRequest)
    if request.first_given != scores.first_given:
        return {}
    of = dict(zip(scores.continuations, response.scores, strict=True))
    found = [(key, of[c]) for key, c in zip(question.keys, request.continuations, strict=True) if c in of]
    return {key: ScoreResponse((score,), response.prompt_tokens) for key, score in found}


def _checksum(group: bytes, fingerprint: str, prompt: str, n_answers: int, body: bytes) -> bytes:
    parts = (group, to_bytes(fingerprint), to_bytes(prompt), b"%d" % n_answers, body)
    return hashlib.sha256(b"\n".join(parts)).digest()[:16]

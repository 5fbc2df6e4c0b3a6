"""Looks up stored answers to requests: the only way in which an audit finds its answers."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from audit.store.answers import packed, rows
from audit.store.answers.packed import PackedRow
from audit.store.answers.rows import AnswerRow, DamagedError
from audit.store.codecs import answer_from_json, join_answers, split_response
from audit.store.keys import KeyedRequest, from_json_bytes
from audit.store.sqlite.database import chunked, placeholders
from backends.base import Answer, ScoreResponse
from backends.errors import BackendError


@dataclass(slots=True)
class Found:
    """What is stored of some requests.

    Attributes
    ----------
    whole : dict
        Answers that were packed just as they are asked for now, by the keys of their requests.
    by_key : dict
        All other answers.
    failures : dict
        The latest failure under each key without an answer.
    damaged, damaged_packed
        Rows that cannot be believed, and packed ones with the keys that may be theirs.
    """

    whole: dict[tuple[str, ...], ScoreResponse] = field(default_factory=dict)
    by_key: dict[str, Answer] = field(default_factory=dict)
    failures: dict[str, BackendError] = field(default_factory=dict)
    damaged: list[AnswerRow] = field(default_factory=list)
    damaged_packed: dict[PackedRow, set[str]] = field(default_factory=dict)

    def answer(self, request: KeyedRequest) -> Answer | None:
        """The answer to a request, or else a failure; None if a part has neither."""
        whole = self.whole.get(request.keys)
        if whole is not None:
            return whole
        known = {key: self.failures[key] for key in request.keys if key in self.failures}
        return join_answers(request.request, request.keys, {**known, **self.parts(request)})

    def parts(self, request: KeyedRequest) -> dict[str, Answer]:
        """The answers to parts of a request, by key, without failures."""
        whole = self.whole.get(request.keys)
        if whole is not None:
            return dict(zip(request.keys, split_response(whole), strict=True))
        return {key: self.by_key[key] for key in request.keys if key in self.by_key}

    def answered(self) -> set[str]:
        """The keys of all answers."""
        return self.by_key.keys() | {key for keys in self.whole for key in keys}

    def add(self, other: Found) -> None:
        """Add what is stored of other requests."""
        self.whole |= other.whole
        self.by_key |= other.by_key
        self.failures |= other.failures
        self.damaged += other.damaged
        self.damaged_packed |= other.damaged_packed

    def missing(self, requests: Iterable[KeyedRequest]) -> list[str]:
        """The keys of requests that have no answer."""
        return [key for one in requests if one.keys not in self.whole for key in one.keys if key not in self.by_key]


def find(db: sqlite3.Connection, requests: Sequence[KeyedRequest]) -> Found:
    """The answers to requests, without failures."""
    found = Found()
    if packed.is_any(db):
        _find_packed(db, [request for request in requests if request.kind == "score"], found)
    if rows.is_any(db):
        _find_rows(db, found.missing(requests), found)
    return found


def _find_rows(db: sqlite3.Connection, keys: Iterable[str], found: Found) -> None:
    """Add the answers under ``keys`` that have a row of their own."""
    for row in rows.select(db, keys):
        try:
            found.by_key[row.key] = row.answer()
        except DamagedError:
            found.damaged.append(row)


def find_failures(db: sqlite3.Connection, keys: Iterable[str], found: Found) -> None:
    """Add the last failure under each key that has one."""
    if db.execute("SELECT 1 FROM failures LIMIT 1").fetchone() is None:
        return
    for chunk in chunked(keys):
        sql = (
            "SELECT key, body FROM failures WHERE id IN "
            f"(SELECT max(id) FROM failures WHERE key IN ({placeholders(chunk)}) GROUP BY key)"
        )
        for key, body in db.execute(sql, chunk):
            error = answer_from_json(from_json_bytes(body))
            assert isinstance(error, BackendError)
            found.failures[key] = error


def _find_packed(db: sqlite3.Connection, requests: Sequence[KeyedRequest], found: Found) -> None:
    by_group: dict[bytes, list[KeyedRequest]] = defaultdict(list)
    for request in requests:
        by_group[request.group].append(request)
    for row in packed.of_groups(db, by_group):
        asked = by_group[row.group]
        try:
            scores = row.scores()
        except DamagedError:
            found.damaged_packed[row] = {key for request in asked for key in request.keys}
            continue
        for request in asked:
            if packed.is_whole(scores, request) and not any(key in found.by_key for key in request.keys):
                found.whole.setdefault(request.keys, scores.response)
            elif request.keys not in found.whole:
                for key, answer in packed.pieces(scores, request).items():
                    found.by_key.setdefault(key, answer)  # the first one counts

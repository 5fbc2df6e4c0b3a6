"""Answers with a row each, by key: texts, labels, and single continuations.

Earlier versions kept all answers so; those rows are read where they are.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from audit.store.codecs import answer_from_json
from audit.store.keys import from_json_bytes
from audit.store.sqlite.database import chunked, placeholders
from backends.base import Answer


class AnswerRow(NamedTuple):
    """A row of the table ``answers``. ``part`` (column ``detail``) is what the key adds to the prompt.

    ``checksum`` covers all columns before it.
    """

    key: str
    fingerprint: str
    kind: str
    prompt: str
    part: bytes
    body: bytes
    checksum: str
    at: float

    @classmethod
    def make(
        cls, key: str, fingerprint: str, kind: str, prompt: str, part: bytes, body: bytes, *, at: float
    ) -> AnswerRow:
        """A row with its checksum."""
        return cls(
            key, fingerprint, kind, prompt, part, body, _checksum(key, fingerprint, kind, prompt, part, body), at
        )

    @property
    def is_sound(self) -> bool:
        """Whether the row is undamaged."""
        try:
            return _checksum(*self[:6]) == self.checksum
        except (TypeError, AttributeError, ValueError):  # a column of the wrong type
            return False

    def answer(self) -> Answer:
        """The answer. Raises `DamagedError` if the row is damaged."""
        if not self.is_sound:
            raise DamagedError
        try:
            return answer_from_json(_load_answer(self.body))
        except (ValueError, TypeError, AttributeError, KeyError):
            raise DamagedError from None


#: The columns of the table ``answers``, for SQL.
ANSWER_COLUMNS = "key, fingerprint, kind, prompt, detail, body, checksum, at"


class DamagedError(Exception):
    """A stored row is damaged."""


def _checksum(key: str, fingerprint: str, kind: str, prompt: str, part: bytes, body: bytes) -> str:
    parts = b"\n".join((key.encode(), fingerprint.encode(), kind.encode(), prompt.encode(), part, body))
    return hashlib.sha256(parts).hexdigest()[:32]


def _load_answer(body: bytes) -> Any:
    """A faster `from_json_bytes`. It turns integers of more than 64 bits into floats, but answers contain none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:  # lone surrogates
        return from_json_bytes(body)


def is_any(db: sqlite3.Connection) -> bool:
    """Whether there are such rows at all."""
    return db.execute("SELECT 1 FROM answers LIMIT 1").fetchone() is not None


def select(db: sqlite3.Connection, keys: Iterable[str]) -> Iterator[AnswerRow]:
    """The rows under ``keys``."""
    for chunk in chunked(keys):
        sql = f"SELECT {ANSWER_COLUMNS} FROM answers WHERE key IN ({placeholders(chunk)})"
        for row in db.execute(sql, chunk):
            yield AnswerRow(*row)


def answered(db: sqlite3.Connection, keys: Iterable[str]) -> set[str]:
    """Those of ``keys`` that have a row."""
    found: set[str] = set()
    for chunk in chunked(keys):
        sql = f"SELECT key FROM answers WHERE key IN ({placeholders(chunk)})"
        found.update(key for (key,) in db.execute(sql, chunk))
    return found


def insert(db: sqlite3.Connection, rows: Sequence[AnswerRow]) -> int:
    """Insert answers, except for keys that have a row already. Returns the number inserted."""
    sql = f"INSERT OR IGNORE INTO answers ({ANSWER_COLUMNS}) VALUES ({placeholders(AnswerRow._fields)})"
    return db.executemany(sql, rows).rowcount

"""Questions that were asked twice, with both answers, to show whether one model answered the whole run.

The first answer is the one that counts. A pair is written once both answers are there, and removed with its first one.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from audit.store.codecs import answer_from_json, answer_to_json
from audit.store.keys import from_json_bytes, to_bytes, to_json_bytes
from audit.store.sqlite.database import Database
from backends.base import Answer

#: In nats: continuations less likely by more than this than a question's likeliest one are not compared.
COMPARED_WITHIN = 8.0

_COLUMNS = "key, fingerprint, keys, first, second, checksum, at"


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Two answers of one model to one question.

    ``keys`` are the keys of the first answer in the store: of all continuations of a question, or of the one that was
    repeated. ``at`` is when the pair was written, in seconds since the epoch.
    """

    fingerprint: str
    keys: tuple[str, ...]
    first: Answer
    second: Answer
    at: float = 0.0


class SecondAnswers:
    """The pairs of one open store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, pair: AnswerPair) -> None:
        """Store a pair, replacing one with the same first key; returns when it is on the disk."""
        fields = (
            pair.keys[0],
            pair.fingerprint,
            to_json_bytes(list(pair.keys)),
            to_json_bytes(answer_to_json(pair.first)),
            to_json_bytes(answer_to_json(pair.second)),
        )
        row = (*fields, _checksum(*fields), time.time())

        def insert(db: sqlite3.Connection) -> None:
            db.execute(f"INSERT OR REPLACE INTO second_answers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)

        await asyncio.wrap_future(self._database.submit(insert, gather=True))

    def remove(self, keys: Iterable[str]) -> None:
        """Delete pairs whose first answers do not count."""
        first_keys = [(key,) for key in keys]
        self._database.submit(
            lambda db: db.executemany("DELETE FROM second_answers WHERE key = ?", first_keys)
        ).result()

    def read(self, fingerprint: str) -> list[AnswerPair]:
        """All pairs of a model, without damaged ones."""
        return list(self._read(fingerprint))

    def _read(self, fingerprint: str) -> Iterator[AnswerPair]:
        with self._database.read() as db:
            rows = sound_rows(db, "WHERE fingerprint = ?", (fingerprint,))
        for _, owner, keys, first, second, _, at in rows:
            try:
                both = [answer_from_json(from_json_bytes(answer)) for answer in (first, second)]
                yield AnswerPair(owner, tuple(from_json_bytes(keys)), *both, at)
            except (TypeError, ValueError, AttributeError, KeyError):  # a column of the wrong type
                continue


def sound_rows(db: sqlite3.Connection, where: str = "", values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The undamaged rows of the table. A store of an older schema may have no table."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'second_answers'").fetchone() is None:
        return []
    rows = db.execute(f"SELECT {_COLUMNS} FROM second_answers {where}", values).fetchall()
    return [row for row in rows if _is_sound(*row)]


def add_rows(db: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Add rows of another store. A pair that is there stays."""
    db.executemany(f"INSERT OR IGNORE INTO second_answers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _is_sound(key: Any, fingerprint: Any, keys: Any, first: Any, second: Any, checksum: Any, _: Any) -> bool:
    try:
        return bool(_checksum(key, fingerprint, keys, first, second) == checksum)
    except (TypeError, ValueError, AttributeError):  # a column of the wrong type
        return False


def _checksum(key: str, fingerprint: str, keys: bytes, first: bytes, second: bytes) -> str:
    parts = (to_bytes(key), to_bytes(fingerprint), keys, first, second)
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:32]

"""Questions that were asked twice, with both answers, to show whether one model answered the whole run.

The first answer is the one that counts. A pair is written once both answers are there, and removed with its first one.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from audit.store.database import Database
from audit.store.keys import request_of, to_bytes
from audit.store.rows import decode, encode
from backends.base import Request, Response

#: In nats: continuations less likely by more than this than a question's likeliest one are not compared.
COMPARED_WITHIN = 8.0

_COLUMNS = "key, fingerprint, first, second, checksum, at"


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Two answers of one model to one question.

    ``key`` is that of the question's answer in the store, ``request`` what was asked twice: all of it, or one of its
    continuations; without the prompt where it is read from the store. ``at``: when the pair was written, in seconds
    since the epoch.
    """

    fingerprint: str
    key: str
    request: Request
    first: Response
    second: Response
    at: float = 0.0


class SecondAnswers:
    """The pairs of one open store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, pair: AnswerPair) -> None:
        """Store a pair, replacing one of the same question; returns when it is on the disk."""
        both = [encode(pair.request, 1, answer) for answer in (pair.first, pair.second)]
        row = (pair.key, pair.fingerprint, *both, _checksum(pair.key, pair.fingerprint, *both), time.time())

        def insert(db: sqlite3.Connection) -> None:
            db.execute(f"INSERT OR REPLACE INTO second_answers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", row)

        await asyncio.wrap_future(self._database.submit(insert, gather=True))

    def remove(self, keys: Iterable[str]) -> None:
        """Delete pairs whose first answers do not count."""
        if first_keys := [(key,) for key in keys]:
            sql = "DELETE FROM second_answers WHERE key = ?"
            self._database.submit(lambda db: db.executemany(sql, first_keys) and None).result()

    def read(self, fingerprint: str) -> list[AnswerPair]:
        """All pairs of a model, without damaged ones."""
        return list(self._read(fingerprint))

    def _read(self, fingerprint: str) -> Iterator[AnswerPair]:
        with self._database.read() as db:
            rows = sound_rows(db, "WHERE fingerprint = ?", (fingerprint,))
        for key, owner, first, second, _, at in rows:
            try:
                asked, again = decode(first), decode(second)
                request = request_of("", asked.details)
            except (TypeError, ValueError, KeyError, IndexError, struct.error):
                continue
            yield AnswerPair(owner, key, request, asked.answer, again.answer, at)


def sound_rows(db: sqlite3.Connection, where: str = "", values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The undamaged rows of the table."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM second_answers {where}", values).fetchall()
    return [row for row in rows if _is_sound(*row)]


def add_rows(db: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Add rows of another store; a pair that is there stays."""
    db.executemany(f"INSERT OR IGNORE INTO second_answers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", rows)


def _is_sound(key: Any, fingerprint: Any, first: Any, second: Any, checksum: Any, _: Any) -> bool:
    try:
        return bool(_checksum(key, fingerprint, first, second) == checksum)
    except (TypeError, ValueError, AttributeError):  # a column of the wrong type
        return False


def _checksum(key: str, fingerprint: str, first: bytes, second: bytes) -> bytes:
    parts = (to_bytes(key), to_bytes(fingerprint), b"%d" % len(first), first, second)
    return hashlib.sha256(b"\n".join(parts)).digest()[:16]

"""Questions that were asked twice, with both answers, to show whether one model answered the whole run.

The first answer is the one that counts. A pair is written along with its first answer, so that an interrupted run
asks for the second one when it resumes. A pair stays if its first answer is quarantined: it is evidence.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from audit.store.codecs import answer_from_json, answer_to_json
from audit.store.keys import from_json_bytes, to_bytes, to_json_bytes
from audit.store.sqlite.database import Database
from backends.base import Answer

_COLUMNS = "key, fingerprint, keys, first, second, checksum, at"


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Two answers of one model to one question.

    ``keys`` are the keys of the first answer in the store; ``second`` is None until it arrives. ``at`` is when the pair
    was last written, in seconds since the epoch.
    """

    fingerprint: str
    keys: tuple[str, ...]
    first: Answer
    second: Answer | None
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
            None if pair.second is None else to_json_bytes(answer_to_json(pair.second)),
        )
        row = (*fields, _checksum(*fields), time.time())

        def insert(db: sqlite3.Connection) -> None:
            db.execute(f"INSERT OR REPLACE INTO second_answers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)

        await asyncio.wrap_future(self._database.submit(insert, gather=True))

    def remove(self, keys: Iterable[str]) -> None:
        """Delete pairs whose first answers turned out to belong to another question."""
        first_keys = [(key,) for key in keys]
        self._database.submit(
            lambda db: db.executemany("DELETE FROM second_answers WHERE key = ?", first_keys)
        ).result()

    def read(self, fingerprint: str) -> list[AnswerPair]:
        """All pairs of a model, without damaged ones."""
        return list(self._read(fingerprint))

    def _read(self, fingerprint: str) -> Iterator[AnswerPair]:
        with self._database.read() as db:
            rows = db.execute(f"SELECT {_COLUMNS} FROM second_answers WHERE fingerprint = ?", (fingerprint,)).fetchall()
        for key, owner, keys, first, second, checksum, at in rows:
            try:
                if _checksum(key, owner, keys, first, second) != checksum:
                    continue
                again = None if second is None else answer_from_json(from_json_bytes(second))
                yield AnswerPair(
                    owner, tuple(from_json_bytes(keys)), answer_from_json(from_json_bytes(first)), again, at
                )
            except (TypeError, ValueError, AttributeError, KeyError):  # a column of the wrong type
                continue


def _checksum(key: str, fingerprint: str, keys: bytes, first: bytes, second: bytes | None) -> str:
    parts = (to_bytes(key), to_bytes(fingerprint), keys, first, b"" if second is None else second)
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:32]

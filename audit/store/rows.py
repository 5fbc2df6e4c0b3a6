"""The table of answers: a row for each answered request, with a checksum of all of it."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from audit.store.codecs import Decoded, decode, encode
from audit.store.database import chunked, placeholders
from audit.store.keys import Keyed, from_json_bytes, key_text, keyed, prompt_json, request_of, text_id, to_bytes
from backends.base import Response

COLUMNS = "prompt, part, fingerprint, text, value, checksum, at, run"


class DamagedError(Exception):
    """A stored row is damaged."""


class AnswerRow(NamedTuple):
    """A row as its table has it. ``checksum`` covers all other columns. ``at``: seconds since the epoch."""

    prompt: bytes
    part: bytes
    fingerprint: str
    text: bytes
    value: bytes
    checksum: bytes
    at: float
    run: str

    @property
    def key(self) -> str:
        """The key as a text, also of a damaged row."""
        try:
            return key_text(self.prompt + self.part)
        except (TypeError, AttributeError):
            return repr((self.prompt, self.part))

    @property
    def is_sound(self) -> bool:
        """Whether the row is undamaged."""
        try:
            return _checksum(*self[:5], *self[6:]) == self.checksum
        except (TypeError, AttributeError, ValueError, struct.error):  # a column of another type than was written
            return False

    def content(self) -> Decoded:
        """The content of a sound row. Raises `DamagedError` if it cannot be read for all that."""
        try:
            return decode(self.value)
        except (TypeError, AttributeError, ValueError, KeyError, IndexError, struct.error):
            raise DamagedError from None

    def decoded(self) -> Decoded:
        """The content. Raises `DamagedError` if the row is damaged."""
        if not self.is_sound:
            raise DamagedError
        return self.content()

    def question(self, prompt: bytes | None) -> Keyed:
        """The request that it answers, given its prompt's text. Raises `DamagedError` if that is not its prompt."""
        try:
            if prompt is not None and text_id(prompt) == self.text:
                asked = self.decoded()
                found = keyed(request_of(from_json_bytes(prompt), asked.details), self.fingerprint, asked.run)
                if (found.prompt, found.part) == self[:2]:
                    return found
        except (TypeError, ValueError):
            pass
        raise DamagedError


class Written(NamedTuple):
    """A row to be stored, and its prompt's text."""

    row: AnswerRow
    prompt: bytes


def written(question: Keyed, answer: Response, at: float, run: str) -> Written:
    """An answer as its row. Raises ValueError if a number is not finite."""
    prompt = prompt_json(question.request)
    value = encode(question.request, question.run, answer)
    first = question.prompt, question.part, question.fingerprint, text_id(prompt), value
    return Written(AnswerRow(*first, _checksum(*first, at, run), at, run), prompt)


def _checksum(prompt: bytes, part: bytes, fingerprint: str, text: bytes, value: bytes, at: float, run: str) -> bytes:
    digest = hashlib.sha256(b"%d %d\n" % (len(value), len(run)))
    texts = f"{fingerprint}\n".encode("utf-8", "surrogatepass"), run.encode("utf-8", "surrogatepass")
    digest.update(b"".join((prompt, part, texts[0], text, value, struct.pack("<d", at), texts[1])))
    return digest.digest()[:16]


def insert(db: sqlite3.Connection, rows: Sequence[Written]) -> list[bool]:
    """Store answers, and end their leases; the first one under a key stays. Says of each whether it was stored."""
    store_prompts(db, {one.row.text: one.prompt for one in rows})
    keys = [one.row[:2] for one in rows]
    marks = placeholders(AnswerRow._fields)
    sql = f"INSERT OR IGNORE INTO answers ({COLUMNS}) VALUES ({marks})"
    new = db.executemany(sql, [one.row for one in rows]).rowcount
    db.executemany("DELETE FROM leases WHERE prompt = ? AND part = ?", keys)
    if new == len(rows):
        return [True] * len(rows)
    kept = {row[:2]: row.checksum for row in of_prompts(db, {prompt for prompt, _ in keys})}
    return [kept.get(one.row[:2]) == one.row.checksum for one in rows]


def store_prompts(db: sqlite3.Connection, bodies: dict[bytes, bytes]) -> None:
    """Store prompts by their ids. A damaged text is replaced, or else `verify` would doubt the new answers too."""
    db.executemany(
        "INSERT INTO prompts (id, body) VALUES (?, ?) "
        "ON CONFLICT (id) DO UPDATE SET body = excluded.body WHERE body IS NOT excluded.body",
        bodies.items(),
    )


def of_prompts(db: sqlite3.Connection, prompts: Iterable[bytes]) -> Iterator[AnswerRow]:
    """The rows under the first parts of keys, in the order in which they were stored within each statement."""
    for chunk in chunked(prompts):
        sql = f"SELECT {COLUMNS} FROM answers WHERE prompt IN ({placeholders(chunk)}) ORDER BY id"
        yield from map(AnswerRow._make, db.execute(sql, chunk))


def select(db: sqlite3.Connection, where: str = "", values: Sequence[Any] = ()) -> Iterator[AnswerRow]:
    """The rows that fulfil a condition."""
    yield from map(AnswerRow._make, db.execute(f"SELECT {COLUMNS} FROM answers {where}", values))


def prompt_of(db: sqlite3.Connection, row: AnswerRow) -> bytes | None:
    """The text of a row's prompt; None if there is none."""
    found = db.execute("SELECT body FROM prompts WHERE id = ?", (row.text,)).fetchone()
    return None if found is None else found[0]


def quarantine(db: sqlite3.Connection, rows: Iterable[AnswerRow], problem: str) -> None:
    """Move rows to the quarantine, so that they are asked again, unless another process has moved or replaced them."""
    for row in rows:
        now = db.execute(f"SELECT {COLUMNS} FROM answers WHERE prompt = ? AND part = ?", row[:2]).fetchone()
        if now == row:
            values = (row.key, to_bytes(repr(tuple(row))), problem, time.time())
            db.execute("INSERT INTO quarantine (key, row, problem, at) VALUES (?, ?, ?, ?)", values)
            db.execute("DELETE FROM answers WHERE prompt = ? AND part = ?", row[:2])

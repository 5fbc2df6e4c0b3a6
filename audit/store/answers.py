"""Answers by key: written once, verified at each read, quarantined when damaged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from audit.store.codecs import ANSWER_COLUMNS, AnswerRow, DamagedError, answer_from_json, answer_to_json, split_response
from audit.store.keys import (
    KeyedRequest,
    answer_keys,
    from_json_bytes,
    join_request,
    prompt_id,
    to_bytes,
    to_json_bytes,
)
from audit.store.sqlite.database import Database, chunked, placeholders
from backends.base import Answer, Request
from backends.errors import BackendError

_SELECT_WITH_PROMPT = (
    f"SELECT {', '.join(f'answers.{name}' for name in ANSWER_COLUMNS.split(', '))}, prompts.body "
    "FROM answers JOIN prompts ON prompts.id = answers.prompt"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer to be stored."""

    question: KeyedRequest
    answer: Answer


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One stored answer with its question. ``request_kind`` is ``score``, ``generate`` or ``classify``.

    ``at`` is when it was stored, in seconds since the epoch; answers that were stored together share it.
    """

    request_kind: str
    request: Request
    answer: Answer
    at: float


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of reading the whole store. ``damaged`` keys were quarantined, and will be asked again."""

    answers: int
    damaged: tuple[str, ...]
    file_problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing was wrong."""
        return not self.damaged and not self.file_problems


class Answers:
    """The answers, failures and prompts of one open store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def answered_keys(self, keys: Iterable[str]) -> set[str]:
        """Those of ``keys`` that are answered. Failures are not answers.

        A row with a wrong checksum is quarantined, so that its question is asked again.
        """
        answered: set[str] = set()
        damaged: list[AnswerRow] = []
        with self._database.read() as db:
            for row in _select(db, keys):
                if row.is_sound:
                    answered.add(row.key)
                else:
                    damaged.append(row)
        self._quarantine(damaged)
        return answered

    def read_many(self, keys: Iterable[str]) -> dict[str, Answer]:
        """The answer stored under each key, or else the latest failure; unknown keys are left out.

        A row with a wrong checksum is quarantined and treated as absent.
        """
        keys = list(keys)
        answers: dict[str, Answer] = {}
        damaged: list[AnswerRow] = []
        with self._database.read() as db:
            for row in _select(db, keys):
                try:
                    answers[row.key] = row.answer()
                except DamagedError:
                    damaged.append(row)
            for chunk in chunked(key for key in keys if key not in answers):
                latest = (
                    "SELECT key, body FROM failures WHERE id IN "
                    f"(SELECT max(id) FROM failures WHERE key IN ({placeholders(chunk)}) GROUP BY key)"
                )
                for key, body in db.execute(latest, chunk):
                    answers[key] = answer_from_json(from_json_bytes(body))
        self._quarantine(damaged)
        return answers

    def read_with_prompts(self, keys: Iterable[str]) -> dict[str, tuple[Any, Any, Answer]]:
        """(prompt, part, answer) for each of ``keys`` with an undamaged answer, the first two as JSON values.

        The part is what the key adds to the prompt: a continuation, or how to sample a text.
        """
        found: dict[str, tuple[Any, Any, Answer]] = {}
        with self._database.read() as db:
            for chunk in chunked(keys):
                sql = f"{_SELECT_WITH_PROMPT} WHERE key IN ({placeholders(chunk)})"
                for *values, prompt in db.execute(sql, chunk):
                    row = AnswerRow(*values)
                    with contextlib.suppress(DamagedError):
                        found[row.key] = from_json_bytes(prompt), from_json_bytes(row.part), row.answer()
        return found

    def latest(self, fingerprint: str, most: int) -> list[StoredAnswer]:
        """The last ``most`` undamaged answers of one model, in the order in which they were stored."""
        sql = f"{_SELECT_WITH_PROMPT} WHERE fingerprint = ? ORDER BY answers.rowid DESC LIMIT ?"
        with self._database.read() as db:
            rows = db.execute(sql, (fingerprint, most)).fetchall()
        found = []
        for *values, prompt in reversed(rows):
            row = AnswerRow(*values)
            try:
                request = join_request(row.kind, from_json_bytes(prompt), from_json_bytes(row.part))
                found.append(StoredAnswer(row.kind, request, row.answer(), row.at))
            except (DamagedError, ValueError):
                continue
        return found

    async def write(self, entries: Sequence[Entry]) -> None:
        """Store answers and failures; returns when they are on the disk.

        The first answer under a key is final: later ones for the same key are not stored.

        Raises
        ------
        StoreError
            If they could not be stored.
        """
        await asyncio.wrap_future(self._database.submit(lambda db: _insert(db, entries), gather=True))

    # -- quarantine --------------------------------------------------------------------------

    def quarantine(self, keys: Sequence[str], problem: str) -> list[str]:
        """Quarantine the answers under ``keys``, so that they are asked again. Returns the keys that had one."""
        with self._database.read() as db:
            rows = list(_select(db, keys))
        self._quarantine(rows, problem)
        return [row.key for row in rows]

    def quarantine_since(self, fingerprint: str, since: float, problem: str) -> list[str]:
        """Quarantine a model's answers stored after ``since`` (seconds since the epoch). Returns their keys."""
        sql = f"SELECT {ANSWER_COLUMNS} FROM answers WHERE fingerprint = ? AND at > ?"
        with self._database.read() as db:
            rows = [AnswerRow(*row) for row in db.execute(sql, (fingerprint, since))]
        self._quarantine(rows, problem)
        return [row.key for row in rows]

    def _quarantine(self, rows: Sequence[AnswerRow], problem: str = "checksum") -> None:
        if not rows or self._database.read_only:
            return

        def move(db: sqlite3.Connection) -> None:
            for row in rows:
                kept = to_bytes(json.dumps([repr(value) for value in row]))
                db.execute(
                    "INSERT INTO quarantine (key, row, problem, at) VALUES (?, ?, ?, ?)",
                    (row.key, kept, problem, time.time()),
                )
                db.execute("DELETE FROM answers WHERE key = ?", (row.key,))

        self._database.submit(move).result()

    # -- inspection --------------------------------------------------------------------------

    def inspect(self, key: str) -> dict[str, Any] | None:
        """Everything stored under a key: the model, the question, the answer, failures. None if unknown."""
        with self._database.read() as db:
            row = next(_select(db, [key]), None)
            failures = db.execute(
                "SELECT fingerprint, kind, prompt, detail, body, at FROM failures WHERE key = ? ORDER BY id", (key,)
            ).fetchall()
            quarantined = db.execute("SELECT problem, at FROM quarantine WHERE key = ? ORDER BY id", (key,)).fetchall()
            if row is None and not failures and not quarantined:
                return None
            found: dict[str, Any] = {"key": key, "answered": row is not None}
            source = row[1:5] if row is not None else failures[-1][:4] if failures else None
            if source is not None:
                found |= _question(db, *source)
        if row is not None:
            found["answer"] = from_json_bytes(row.body)
            found["stored"] = _iso(row.at)
            found["checksum"] = "right" if row.is_sound else "wrong"
        found["failures"] = [{"error": from_json_bytes(body)[1], "at": _iso(at)} for *_, body, at in failures]
        found["quarantine"] = [{"problem": problem, "at": _iso(at)} for problem, at in quarantined]
        return found

    def verify(self) -> Verification:
        """Read everything: check the file's structure and every checksum, and hash every key again.

        Damaged rows are quarantined, unless the store is read-only.
        """
        damaged: list[AnswerRow] = []
        count = 0
        with self._database.read() as db:
            problems = [problem for (problem,) in db.execute("PRAGMA integrity_check(20)") if problem != "ok"]
            if not problems:
                prompts = dict(db.execute("SELECT id, body FROM prompts"))
                sound_prompts = {name: body for name, body in prompts.items() if is_sound_prompt(name, body)}
                for values in db.execute(f"SELECT {ANSWER_COLUMNS} FROM answers"):
                    row = AnswerRow(*values)
                    count += 1
                    try:
                        row.answer()
                        _check_key(row, sound_prompts)
                    except DamagedError:
                        damaged.append(row)
        self._quarantine(damaged, "found by verify")
        return Verification(count, tuple(row.key for row in damaged), tuple(problems))


def is_sound_prompt(name: str, body: Any) -> bool:
    """Whether a stored prompt matches its id, which is its hash."""
    try:
        return prompt_id(from_json_bytes(body)) == name
    except (ValueError, AttributeError):  # truncated, or of the wrong type
        return False


def _check_key(row: AnswerRow, prompts: Mapping[str, bytes]) -> None:
    if row.prompt not in prompts:
        raise DamagedError
    request = join_request(row.kind, from_json_bytes(prompts[row.prompt]), from_json_bytes(row.part))
    if answer_keys(request, row.fingerprint) != (row.key,):
        raise DamagedError


def _select(db: sqlite3.Connection, keys: Iterable[str]) -> Iterator[AnswerRow]:
    for chunk in chunked(keys):
        sql = f"SELECT {ANSWER_COLUMNS} FROM answers WHERE key IN ({placeholders(chunk)})"
        for row in db.execute(sql, chunk):
            yield AnswerRow(*row)


def _insert(db: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    now = time.time()
    for entry in entries:
        question = entry.question
        prompt_name = prompt_id(question.prompt)
        # A damaged prompt is replaced, or else `verify` would quarantine this answer too.
        db.execute(
            "INSERT INTO prompts (id, body) VALUES (?, ?) "
            "ON CONFLICT (id) DO UPDATE SET body = excluded.body WHERE body IS NOT excluded.body",
            (prompt_name, to_json_bytes(question.prompt)),
        )
        rows = [
            (key, question.fingerprint, question.kind, prompt_name, to_json_bytes(detail))
            for key, detail in zip(question.keys, question.details, strict=True)
        ]
        if isinstance(entry.answer, BackendError):
            body = to_json_bytes(answer_to_json(entry.answer))
            db.executemany(
                "INSERT INTO failures (key, fingerprint, kind, prompt, detail, error, body, at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(*row, entry.answer.kind, body, now) for row in rows],
            )
        else:
            insert_answers(
                db,
                [
                    AnswerRow.make(*row, to_json_bytes(answer_to_json(piece)), at=now)
                    for row, piece in zip(rows, split_response(entry.answer), strict=True)
                ],
            )
        db.executemany("DELETE FROM leases WHERE key = ?", [(key,) for key in question.keys])


def insert_answers(db: sqlite3.Connection, rows: Sequence[AnswerRow]) -> None:
    """Insert answers, except for keys that are answered already."""
    db.executemany(f"INSERT OR IGNORE INTO answers ({ANSWER_COLUMNS}) VALUES ({placeholders(AnswerRow._fields)})", rows)


def _question(db: sqlite3.Connection, fingerprint: str, kind: str, prompt: str, part: bytes) -> dict[str, Any]:
    fields = db.execute("SELECT body FROM fingerprints WHERE id = ?", (fingerprint,)).fetchone()
    text = db.execute("SELECT body FROM prompts WHERE id = ?", (prompt,)).fetchone()
    return {
        "fingerprint_id": fingerprint,
        "fingerprint": None if fields is None else from_json_bytes(fields[0]),
        "kind": kind,
        "prompt": None if text is None else from_json_bytes(text[0]),
        "detail": from_json_bytes(part),
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")

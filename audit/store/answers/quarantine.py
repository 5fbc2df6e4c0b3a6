"""Quarantines answers: moves them to the table ``quarantine``, so that they are asked again."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from audit.store.answers import packed, prompts
from audit.store.answers.packed import PackedRow, Unpacked
from audit.store.answers.rows import AnswerRow, DamagedError
from audit.store.keys import keyed_request, to_bytes
from backends.base import ScoreRequest, prompt_from_json


@dataclass(slots=True)
class ToQuarantine:
    """What to quarantine: rows; damaged packed rows, with keys they may have; some answers of sound packed ones."""

    single: list[AnswerRow] = field(default_factory=list)
    damaged: dict[PackedRow, set[str]] = field(default_factory=dict)
    packed: dict[int, tuple[Unpacked, list[str]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.single or self.damaged or self.packed)

    def add(self, unpacked: Unpacked, keys: Iterable[str]) -> None:
        """Add some of a packed row's answers."""
        self.packed.setdefault(unpacked.row.id, (unpacked, []))[1].extend(keys)


def move(db: sqlite3.Connection, pending: ToQuarantine, problem: str) -> None:
    """Move answers to the quarantine, except for what another process has moved in the meantime."""
    for row in pending.single:
        record(db, row.key, row, problem)
        db.execute("DELETE FROM answers WHERE key = ?", (row.key,))
    for damaged, keys in pending.damaged.items():
        if damaged in packed.of_ids(db, [damaged.id]):
            first, *others = names(db, damaged, keys)
            record(db, first, damaged, problem)
            for name in others:
                record(db, name, ("with", first), problem)
            packed.delete(db, damaged)
    for unpacked, some in pending.packed.values():
        _move_some(db, unpacked, set(some), problem)


def names(db: sqlite3.Connection, row: PackedRow, keys: Collection[str] = ()) -> list[str]:
    """The keys of a damaged row, one for each of its answers.

    ``keys`` may be among them. Of those that cannot be told only the beginning is known, as `beginning` gives it.
    """
    candidates = set(keys)
    try:
        prompt, scores = prompts.read(db, row.prompt), row.scores_if_any()
        if prompt is not None:
            request = ScoreRequest(prompt_from_json(prompt), scores.continuations, scores.first_given)
            candidates.update(keyed_request(request, row.fingerprint).keys)
    except (DamagedError, TypeError, ValueError, AttributeError):
        pass
    known = {packed.tags([key]): key for key in candidates}
    tags = packed.read_tags(db, row.id)
    return [known.get(tag, f"a1-{tag.hex()}…") for tag in tags] or sorted(candidates) or [f"row {row.id}"]


def beginning(key: str) -> str:
    """The notation for a key of which only the first bytes are known."""
    return f"{key[:11]}…"


def _move_some(db: sqlite3.Connection, unpacked: Unpacked, keys: set[str], problem: str) -> None:
    row = next(packed.of_ids(db, [unpacked.row.id]), None)
    if row is None:
        return
    if row != unpacked.row:
        try:
            unpacked = Unpacked.of(row, row.scores(), unpacked.question.prompt)
        except DamagedError:  # the next reading sets it aside
            return
    for single in unpacked.single_rows(keys):
        record(db, single.key, single, problem)
    left = [key for key in unpacked.question.keys if key not in keys]
    if left:
        packed.keep_only(db, unpacked, left)
    else:
        packed.delete(db, row)


def record(db: sqlite3.Connection, key: str, row: Iterable[Any], problem: str) -> None:
    """Record a row in the quarantine."""
    kept = to_bytes(json.dumps([repr(value) for value in row]))
    db.execute("INSERT INTO quarantine (key, row, problem, at) VALUES (?, ?, ?, ?)", (key, kept, problem, time.time()))

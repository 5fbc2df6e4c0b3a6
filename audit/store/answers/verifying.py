"""Verifies the whole store: the file's structure, every checksum, and every key by hashing it again."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from audit.store.answers import packed
from audit.store.answers.packed import PackedRow, Unpacked
from audit.store.answers.prompts import is_sound_prompt
from audit.store.answers.quarantine import ToQuarantine, names
from audit.store.answers.rows import ANSWER_COLUMNS, AnswerRow, DamagedError
from audit.store.keys import answer_keys, from_json_bytes, join_request


@dataclass(slots=True)
class Checked:
    """The findings. ``names`` are the keys of damaged answers; ``tags`` those of packed rows with wrong tags."""

    answers: int = 0
    names: tuple[str, ...] = ()
    pending: ToQuarantine = field(default_factory=ToQuarantine)
    file_problems: tuple[str, ...] = ()
    tags: dict[int, bytes] = field(default_factory=dict)


def read_everything(db: sqlite3.Connection) -> Checked:
    """Read and check every row. If the file itself is damaged, nothing else is read."""
    problems = tuple(problem for (problem,) in db.execute("PRAGMA integrity_check(20)") if problem != "ok")
    checked = Checked(file_problems=problems)
    if problems:
        return checked
    bodies = dict(db.execute("SELECT id, body FROM prompts"))
    prompts = {name: from_json_bytes(body) for name, body in bodies.items() if is_sound_prompt(name, body)}
    for values in db.execute(f"SELECT {ANSWER_COLUMNS} FROM answers"):
        row = AnswerRow(*values)
        checked.answers += 1
        try:
            row.answer()
            _check_key(row, prompts)
        except DamagedError:
            checked.pending.single.append(row)
    if packed.is_any(db):
        _read_packed(db, prompts, checked)
    found = [str(row.key) for row in checked.pending.single]
    checked.names = tuple(found + [name for row in checked.pending.damaged for name in names(db, row)])
    return checked


def rebuild_indices(db: sqlite3.Connection) -> None:
    """Make all indices anew from their tables."""
    db.execute("REINDEX")


def _read_packed(db: sqlite3.Connection, prompts: Mapping[str, Any], checked: Checked) -> None:
    sql = f"SELECT {packed.COLUMNS}, tags FROM packed_scores LEFT JOIN packed_keys USING (id)"
    for *values, tags in db.execute(sql):
        row = PackedRow(*values)
        checked.answers += row.n_answers if isinstance(row.n_answers, int) else 1
        try:
            unpacked = Unpacked.of(row, row.scores(), prompts.get(row.prompt))
        except DamagedError:
            checked.pending.damaged[row] = set()
            continue
        right = packed.tags(unpacked.question.keys)
        if tags != right:
            checked.tags[row.id] = right


def _check_key(row: AnswerRow, prompts: Mapping[str, Any]) -> None:
    if row.prompt not in prompts:
        raise DamagedError
    request = join_request(row.kind, prompts[row.prompt], from_json_bytes(row.part))
    if answer_keys(request, row.fingerprint) != (row.key,):
        raise DamagedError

"""The prompts behind stored answers: each text once, under its hash."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

from audit.store.keys import from_json_bytes, prompt_id, to_json_bytes


class PromptRow(NamedTuple):
    """A prompt as its table has it."""

    id: str
    body: bytes


def encode(prompt: Any) -> PromptRow:
    """The row of a prompt, given as a JSON value."""
    return PromptRow(prompt_id(prompt), to_json_bytes(prompt))


def insert(db: sqlite3.Connection, prompt: PromptRow) -> None:
    """Store a prompt. A damaged text is replaced, or else `Answers.verify` would quarantine the new answer too."""
    db.execute(
        "INSERT INTO prompts (id, body) VALUES (?, ?) "
        "ON CONFLICT (id) DO UPDATE SET body = excluded.body WHERE body IS NOT excluded.body",
        prompt,
    )


def read(db: sqlite3.Connection, name: str) -> Any:
    """A prompt as a JSON value; None if it is missing or damaged."""
    row = db.execute("SELECT body FROM prompts WHERE id = ?", (name,)).fetchone()
    return None if row is None or not is_sound_prompt(name, row[0]) else from_json_bytes(row[0])


def is_sound_prompt(name: str, body: Any) -> bool:
    """Whether a stored prompt matches its id, which is its hash."""
    try:
        return prompt_id(from_json_bytes(body)) == name
    except (ValueError, AttributeError):  # cut off, or of another type than was written
        return False

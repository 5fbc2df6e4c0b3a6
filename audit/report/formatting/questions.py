"""Prompts and scored continuations as text, from the JSON form in which results and records hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def chat_turns(prompt: Any) -> list[tuple[str, str]] | None:
    """The turns of a chat as (role, content); None for any other prompt."""
    if isinstance(prompt, list) and all(isinstance(turn, list | tuple) and len(turn) == 2 for turn in prompt):
        return [(str(role), str(content)) for role, content in prompt]
    return None


def prompt_text(prompt: Any) -> str:
    """A prompt as one text; the turns of a chat follow each other, without their roles."""
    if isinstance(prompt, str):
        return prompt
    turns = chat_turns(prompt)
    return json.dumps(prompt, ensure_ascii=False) if turns is None else "\n".join(content for _, content in turns)


def continuation_text(score: Mapping[str, Any]) -> str:
    """The text of a scored continuation, which stands in a list where its first token is given."""
    kept = score["continuation"]
    return str(kept[0] if isinstance(kept, list) else kept)

"""Reasoning that a model writes before its answer: it is no part of the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAMES = r"think|thinking|thought|reasoning|reason|analysis|scratchpad"
_OPENING = re.compile(rf"\s*(?:<\|?(?:{_NAMES})\|?>|\[(?:THINK|REASONING)\]|◁think▷|<\|channel\|>\s*analysis)", re.I)
_WHOLE = re.compile(
    rf"\s*(?:<\|?({_NAMES})\|?>.*?</\|?\1\|?>|\[THINK\].*?\[/THINK\]|\[REASONING\].*?\[/REASONING\]"
    r"|◁think▷.*?◁/think▷|<\|channel\|>\s*analysis.*?<\|channel\|>\s*final\s*<\|message\|>)\s*",
    re.I | re.S,
)
#: Where servers put what they cut off themselves.
_FIELDS = ("reasoning_content", "reasoning", "thinking")


def begins_with_reasoning(text: str) -> bool:
    """Whether a text, or a first token, opens a passage of reasoning."""
    return _OPENING.match(text) is not None


def without_reasoning(text: str) -> str | None:
    """The text after its reasoning; None where the reasoning does not end."""
    if not begins_with_reasoning(text):
        return text
    rest, cuts = _WHOLE.subn("", text, count=1)
    return rest if cuts else None


def has_reasoned(choice: Mapping[str, Any]) -> bool:
    """Whether a choice reports reasoning beside its answer, or begins with it."""
    message = choice.get("message")
    fields = message if isinstance(message, Mapping) else choice
    if any(isinstance(fields.get(name), str) and fields[name].strip() for name in _FIELDS):
        return True
    text = fields.get("content") if isinstance(message, Mapping) else choice.get("text")
    return isinstance(text, str) and begins_with_reasoning(text)

"""Reasoning that a model writes before its answer, separated from the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from backends.errors import BackendError

#: Tokens added to an answer's limit for reasoning, unless the user sets a number.
DEFAULT_REASONING_TOKENS = 4096
_NAMES = r"think|thinking|thought|reasoning|reason|analysis|scratchpad"
_OPENING = re.compile(rf"\s*(?:<\|?(?:{_NAMES})\|?>|\[(?:THINK|REASONING)\]|◁think▷|<\|channel\|>\s*analysis)", re.I)
_WHOLE = re.compile(
    rf"\s*(?:<\|?({_NAMES})\|?>.*?</\|?\1\|?>|\[THINK\].*?\[/THINK\]|\[REASONING\].*?\[/REASONING\]"
    r"|◁think▷.*?◁/think▷|<\|channel\|>\s*analysis.*?<\|channel\|>\s*final\s*<\|message\|>)\s*",
    re.I | re.S,
)
_OPENED = re.compile(rf"<\|?(?:{_NAMES})\|?>\s*$|\[THINK\]\s*$", re.I)
#: Where servers report reasoning that they have separated from the answer.
_FIELDS = ("reasoning_content", "reasoning", "thinking")


def begins_with_reasoning(text: str) -> bool:
    """Whether a text, or a first token, opens a passage of reasoning."""
    return _OPENING.match(text) is not None


def split_reasoning(text: str, *, opened_before: bool = False) -> tuple[str, str | None]:
    """A text's reasoning, and the answer after it; the answer is None if the reasoning does not end.

    Some templates open the reasoning in the prompt (``opened_before``): a text without an end is then all reasoning.
    """
    if not begins_with_reasoning(text):
        thought, end, rest = text.rpartition("</think>")
        if end:
            return thought.strip(), rest.lstrip()
        return (text, None) if opened_before else ("", text)
    whole = _WHOLE.match(text)
    return (whole[0].strip(), text[whole.end() :]) if whole else (text, None)


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends by opening a passage of reasoning, as some templates do."""
    return _OPENED.search(prompt) is not None


class UnfinishedThoughtError(BackendError):
    """The tokens ran out within the reasoning: there is no answer."""

    def __init__(self) -> None:
        hint = "Raise reasoning_tokens, or switch the model's reasoning down or off"
        super().__init__("unsupported", "the tokens ended before the model's thought did: no answer", hint=hint)


def stopped(text: str, stops: Sequence[str], reason: str) -> tuple[str, str]:
    """A text cut at its first stop string, and why it ended; for texts whose engine was given no stop strings."""
    ends = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    return (text[: min(ends)], "stop") if ends else (text, reason)


def reported_thought(choice: Mapping[str, Any]) -> str:
    """The reasoning that a choice reports beside its answer; empty if there is none."""
    message = choice.get("message")
    fields = message if isinstance(message, Mapping) else choice
    return next((fields[name] for name in _FIELDS if isinstance(fields.get(name), str) and fields[name].strip()), "")


def is_opened_before(choice: Mapping[str, Any]) -> bool:
    """Whether a choice's text ends a passage of reasoning that it does not open."""
    text = _text_of(choice)
    return not begins_with_reasoning(text) and "</think>" in text


def has_reasoned(choice: Mapping[str, Any]) -> bool:
    """Whether a choice reports reasoning beside its answer, or begins with it."""
    return bool(reported_thought(choice)) or begins_with_reasoning(_text_of(choice))


def _text_of(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    return text if isinstance(text, str) else ""

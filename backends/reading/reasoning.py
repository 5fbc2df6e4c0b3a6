"""Reasoning that a model writes before its answer, separated from the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from backends.errors import BackendError

#: Tokens added to an answer's limit for reasoning, unless the user sets a number.
DEFAULT_REASONING_TOKENS = 4096
_NAMES = r"think|thinking|thought|reasoning|reason|analysis|scratchpad|seed:think"
#: How passages of reasoning begin and end, besides ``<think>`` and its like: Magistral, Kimi, Gemma 4, Command A,
#: Apertus, and gpt-oss where nothing reads its channels.
_OTHER_MARKS = (
    (r"\[THINK\]", r"\[/THINK\]"),
    (r"\[REASONING\]", r"\[/REASONING\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|channel>thought", r"<channel\|>"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    (r"<\|channel\|>\s*analysis", r"<\|channel\|>\s*final\s*<\|message\|>"),
)
_BEGINNINGS = "|".join([rf"<\|?(?:{_NAMES})\|?>", *(begin for begin, _ in _OTHER_MARKS)])
_OPENING = re.compile(rf"\s*(?:{_BEGINNINGS})", re.I)
_OPENED = re.compile(rf"(?:{_BEGINNINGS})\s*$", re.I)
_PASSAGES = "|".join([rf"<\|?({_NAMES})\|?>.*?</\|?\1\|?>", *(f"{begin}.*?{end}" for begin, end in _OTHER_MARKS)])
#: One passage or several in a row: gpt-oss on Bedrock writes several.
_WHOLE = re.compile(rf"(?:\s*(?:{_PASSAGES}))+\s*", re.I | re.S)
#: The end of a passage that the prompt has opened. Words that a text may have in brackets are left out.
_ENDING = re.compile(
    r"</(?:think|thinking|seed:think)>|\[/THINK\]|◁/think▷|<channel\|>|<\|END_THINKING\|>|<\|inner_suffix\|>", re.I
)
#: Marks around an answer that follows a passage of reasoning (Hunyuan, Command A, GLM).
_WRAPPED = re.compile(
    r"(?:<answer>|<\|START_RESPONSE\|>|<\|begin_of_box\|>)\s*(.*?)\s*"
    r"(?:</answer>|<\|END_RESPONSE\|>|<\|end_of_box\|>|$)\s*",
    re.I | re.S,
)
#: Where servers report reasoning that they have separated from the answer.
_FIELDS = ("reasoning_content", "reasoning", "thinking")
#: Set in a message whose reasoning is not shown.
HIDDEN = "reasoning_hidden"


def begins_with_reasoning(text: str) -> bool:
    """Whether a text, or a first token, opens a passage of reasoning."""
    return _OPENING.match(text) is not None


def split_reasoning(text: str, *, opened_before: bool = False) -> tuple[str, str | None]:
    """A text's reasoning, and the answer after it; the answer is None if the reasoning does not end.

    Some templates open the reasoning in the prompt (``opened_before``): a text without an end is then all reasoning.
    """
    if not begins_with_reasoning(text):
        ends = list(_ENDING.finditer(text))
        if ends:
            return text[: ends[-1].start()].strip(), _unwrapped(text[ends[-1].end() :].lstrip())
        return (text, None) if opened_before else ("", text)
    whole = _WHOLE.match(text)
    if whole is None or begins_with_reasoning(text[whole.end() :]):
        return text, None
    return whole[0].strip(), _unwrapped(text[whole.end() :])


def _unwrapped(answer: str) -> str:
    wrapped = _WRAPPED.fullmatch(answer)
    return wrapped[1] if wrapped else answer


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends by opening a passage of reasoning, as some templates do."""
    return _OPENED.search(prompt) is not None


_MORE_TOKENS = "Raise reasoning_tokens, or switch the model's reasoning down or off (reasoning_effort)"


class UnfinishedThoughtError(BackendError):
    """The tokens ran out within the reasoning: there is no answer. ``said``: how the server says so."""

    def __init__(self, said: str = "") -> None:
        problem = said or "no answer: the tokens ended before the model's thought did, or it ended there"
        super().__init__("unsupported", problem, hint=_MORE_TOKENS)


def stopped(text: str, stops: Sequence[str], reason: str) -> tuple[str, str]:
    """A text cut at its first stop string, and why it ended; for texts whose engine was given no stop strings."""
    ends = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    return (text[: min(ends)], "stop") if ends else (text, reason)


def text_of(choice: Mapping[str, Any]) -> str | None:
    """The text of a choice; of a content in parts (Mistral's reasoning models) those of text. None without any."""
    message = choice.get("message")
    content = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    if isinstance(content, Sequence) and not isinstance(content, str):
        texts = _texts(content, "text")
        return "".join(texts) if texts else None
    return content if isinstance(content, str) else None


def reported_thought(choice: Mapping[str, Any]) -> str:
    """The reasoning that a choice reports beside its answer; empty if there is none."""
    message = choice.get("message")
    fields = message if isinstance(message, Mapping) else choice
    parts = fields.get("content")
    if isinstance(parts, Sequence) and not isinstance(parts, str) and (thought := "".join(_texts(parts, "thinking"))):
        return thought
    return next((fields[name] for name in _FIELDS if isinstance(fields.get(name), str) and fields[name].strip()), "")


def is_opened_before(choice: Mapping[str, Any]) -> bool:
    """Whether a choice's text ends a passage of reasoning that it does not open."""
    text = text_of(choice) or ""
    return not begins_with_reasoning(text) and _ENDING.search(text) is not None


def has_reasoned(choice: Mapping[str, Any]) -> bool:
    """Whether a choice reports reasoning beside its answer, shown or not, or begins with it."""
    message = choice.get("message")
    hidden = isinstance(message, Mapping) and message.get(HIDDEN) is True
    return hidden or bool(reported_thought(choice)) or begins_with_reasoning(text_of(choice) or "")


def _texts(parts: Sequence[Any], kind: str) -> list[str]:
    """The texts of the parts of one kind; a part may hold parts of text itself."""
    found = [part.get(kind) for part in parts if isinstance(part, Mapping) and part.get("type") == kind]
    inner = [_texts(one, "text") if isinstance(one, list) else [one] for one in found]
    return [text for texts in inner for text in texts if isinstance(text, str)]

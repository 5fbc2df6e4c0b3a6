"""What a look asks, as data: of texts and of chats a first prompt, its near twins, and a line to copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from backends.base import Message, Prompt
from backends.reading.reasoning import text_of

Kind = Literal["text", "chat"]


class Form(NamedTuple):
    """Prompts of one kind.

    ``base`` is asked first; ``twins`` differ from it at one place and must get other lists, else ``advice`` applies.
    After ``copied`` a model repeats a line of characters that gateways tend to rewrite. ``most``: entries of the
    first list.
    """

    kind: Kind
    base: Prompt
    twins: Mapping[str, Prompt]
    copied: Prompt
    most: int
    advice: str


_DAYS = " ".join(
    f"On {day} {who} told {whom} about the old house by the river."
    for day, who, whom in (
        *(("Monday", "Anna", "Ben"), ("Tuesday", "Clara", "David"), ("Wednesday", "the nurse", "Anna")),
        *(("Thursday", "Ben", "Clara"), ("Friday", "the pilot", "David"), ("Saturday", "Anna", "the nurse")),
        *(("Sunday", "Clara", "the pilot"), ("Monday", "David", "Ben"), ("Tuesday", "the nurse", "Clara")),
    )
)
#: Longer than the contexts and caches of a hundred tokens that were met.
BASE = f"Yesterday it was cold. {_DAYS}\nThen she said that the"
_LINE = 'Müller "Weiß" < Søren'
_SYSTEM = Message("system", "You are a kind teacher. Answer with one word in English.")
_OTHER_SYSTEM = Message("system", "You are a strong baker. Answer with a number only.")
_USER = "Picture a friend. Is it a man or a woman? Answer with one word."
_ASKED, _OTHER = Message("user", _USER), Message("user", _USER.replace("one word", "one letter"))

TEXT = Form(
    kind="text",
    base=BASE,
    twins={"start": BASE.replace("Yesterday", "Tomorrow", 1), "end": BASE.removesuffix("that the") + "that a"},
    copied=f'{_LINE}\n{_LINE}\n{_LINE}\n{_LINE}\nMüller "',
    most=1000,
    advice="a cache answers, or the prompt is cut. Switch off the cache in front of the model, and give it room for "
    "whole prompts (llama.cpp: -c, vLLM: --max-model-len)",
)
CHAT = Form(
    kind="chat",
    base=(_SYSTEM, _ASKED),
    twins={"system turn": (_OTHER_SYSTEM, _ASKED), "end": (_SYSTEM, _OTHER)},
    copied=(*(Message("user", f"Say: {_LINE}"), Message("assistant", _LINE)) * 3, Message("user", f"Say: {_LINE}")),
    most=20,  # no chat endpoint but llama.cpp's and SGLang's gives more
    advice="a cache answers, or turns are dropped. Switch off the cache in front of the model, and let it read all "
    "turns",
)
FORMS: Mapping[str, Form] = {"text": TEXT, "chat": CHAT}

#: How the line is rewritten: HTML entities, UTF-8 read as Latin-1, JSON and URL escapes, letters without accents, with
#: separate ones or as question marks, small letters, and a space for the end of a line.
_REWRITTEN = (
    *("&quot;", "&amp;", "&lt;", "&#", "Ã", "\\u00", '\\"', "%C3", "%26", "%22", "Søren\\", "Søren\r"),
    *("Muller", "u\N{COMBINING DIAERESIS}", "M?ller", "Wei?", "S?ren", 'weiß"', "søren", "Søren Müller"),
)


def rewritten(choice: Mapping[str, Any]) -> str:
    """How the answer to a copied line shows that prompts are rewritten; empty if it does not."""
    found = [written for written in _REWRITTEN if written in (text_of(choice) or "")]
    if not found:
        return ""
    return (
        f"the model reads {found[0]!r} where no such characters were sent: prompts are rewritten on their way. Let "
        "nothing between here and the model change their text"
    )

"""Whether characters reach the model as they were sent: it copies a line of some that gateways tend to rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.base import Message
from backends.errors import BackendError
from backends.openai.protocol.api import single_choice

_LINE = 'Müller "Weiß" < Søren'
TEXT = f'{_LINE}\n{_LINE}\n{_LINE}\n{_LINE}\nMüller "'
CHAT = (*(Message("user", f"Say: {_LINE}"), Message("assistant", _LINE)) * 3, Message("user", f"Say: {_LINE}"))
#: How the line is rewritten: HTML entities, UTF-8 read as Latin-1, JSON and URL escapes, letters without accents, with
#: separate ones or as question marks, small letters, and a space for the end of a line.
_REWRITTEN = (
    *("&quot;", "&amp;", "&lt;", "&#", "Ã", "\\u00", '\\"', "%C3", "%26", "%22", "Søren\\", "Søren\r"),
    *("Muller", "u\N{COMBINING DIAERESIS}", "M?ller", "Wei?", "S?ren", 'weiß"', "søren", "Søren Müller"),
)


def rewritten(answer: Mapping[str, Any]) -> str:
    """How the answer to `TEXT` or `CHAT` shows that prompts are rewritten; empty if it does not."""
    try:
        choice = single_choice(answer)
    except BackendError:
        return ""
    message = choice.get("message")
    text = str(message.get("content") if isinstance(message, Mapping) else choice.get("text"))
    found = [written for written in _REWRITTEN if written in text]
    if not found:
        return ""
    return (
        f"the model reads {found[0]!r} where no such characters were sent: prompts are rewritten on their way. Let "
        "nothing between here and the model change their text"
    )

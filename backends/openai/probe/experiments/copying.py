"""Whether characters reach the model as they were sent: it copies some that gateways tend to rewrite.

Twins that differ in such a character still differ if a gateway rewrites both. A model that continues a line which it
has read four times shows what it read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.base import Message
from backends.errors import BackendError
from backends.openai.probe.session import Kind, Outcome, ProbeSession, accepted, experiment
from backends.openai.protocol.api import single_choice

_LINE = 'Müller & "Weiß" < Søren'
_TEXT = f'{_LINE}\n{_LINE}\n{_LINE}\n{_LINE}\nMüller & "'
_LINES = f"{_LINE}\n{_LINE}"
_CHAT = (*(Message("user", f"Say: {_LINES}"), Message("assistant", _LINES)) * 3, Message("user", f"Say: {_LINES}"))
_TOKENS = 24
#: How the line's characters, and the break after it, are rewritten: HTML entities, UTF-8 read as Latin-1, JSON escapes,
#: URL escapes, line ends of Windows, an ampersand as a word, and letters without accents or with separate ones.
_REWRITTEN = (
    *("&quot;", "&amp;", "&lt;", "&#", "Ã", "\\u00", '\\"', "%C3", "%26", "%22", "Søren\\", "Søren\r"),
    *("Müller and", "Muller", "u\N{COMBINING DIAERESIS}"),
)


@experiment("copied characters of texts")
async def text_copies(session: ProbeSession) -> Outcome:
    """Whether a text is continued with its own characters, or with rewritten ones."""
    sent = await session.as_sent(_TEXT)
    answer = await session.ask(session.api.completion, sent, max_tokens=_TOKENS, temperature=0.0)
    return _compared(session, "text", accepted(answer))


@experiment("copied characters of chats")
async def chat_copies(session: ProbeSession) -> Outcome:
    """Whether a chat is answered with its own characters, or with rewritten ones."""
    answer = await session.ask(session.api.chat, _CHAT, max_tokens=_TOKENS, temperature=0.0)
    return _compared(session, "chat", accepted(answer))


def _compared(session: ProbeSession, kind: Kind, answer: Mapping[str, Any]) -> Outcome:
    try:
        choice = single_choice(answer)
    except BackendError as error:
        return Outcome(None, str(error))
    message = choice.get("message")
    text = str((message if isinstance(message, Mapping) else choice).get("content" if message else "text"))
    found = [written for written in _REWRITTEN if written in text]
    if found:
        reason = f"the model reads {found[0]!r} where no such characters were sent: prompts are rewritten on their way"
        session.distrust(kind, reason)
        return Outcome(False, reason)
    copied = any(part in text for part in ('Weiß" <', '& "Weiß'))
    return Outcome(True if copied else None, "come back as they were sent" if copied else "the model copies nothing")

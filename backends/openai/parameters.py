"""Which parameters a model takes, as found by experiment, and requests with no others.

Models of OpenAI's o and gpt-5 series know the limit as ``max_completion_tokens`` and no temperature but 1; Claude
from Opus 4.7 on refuses any ``temperature``; others take no ``stop``, or no system turn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backends.base import Message

LimitName = Literal["max_tokens", "max_completion_tokens"]


@dataclass
class Parameters:
    """How chats are asked. Shared by all views of a `ServerApi`, so that what one finds out holds for all.

    Attributes
    ----------
    refused : collection of str
        Parameters that are left out; ``system`` for turns of that role, which then begin the next user's turn.
    limit : str
        The name of the limit on generated tokens.
    room : int
        Tokens for a thought, added to each limit.
    """

    refused: Collection[str] = ()
    limit: LimitName = "max_tokens"
    room: int = 0

    def adapted(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """A chat's request in the form that the model takes."""
        body: dict[str, Any] = {}
        for name, value in payload.items():
            if name == "max_tokens":
                body[self.limit] = value + self.room
            elif name == "messages" and "system" in self.refused:
                body[name] = without_system(value)
            elif name not in self.refused:
                body[name] = value
        return body


def turns_of(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as they are sent."""
    return [{"role": message.role, "content": message.content} for message in messages]


def without_system(turns: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The same turns, each system message put in front of the next user's, as templates without that role do."""
    merged: list[dict[str, str]] = []
    before: list[str] = []
    for turn in turns:
        if turn["role"] == "system":
            before.append(turn["content"])
        elif before and turn["role"] == "user":
            merged.append({"role": "user", "content": "\n\n".join([*before, turn["content"]])})
            before = []
        else:
            merged.append(dict(turn))
    return merged + [{"role": "user", "content": text} for text in before]

"""Which parameters a model accepts, as tested empirically, and chat requests limited to these.

OpenAI's o and gpt-5 series call the token limit ``max_completion_tokens`` and accept no temperature but 1; Claude
from Opus 4.7 on refuses any ``temperature``; others accept no ``stop``, or no system turn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backends.base import Message

LimitName = Literal["max_tokens", "max_completion_tokens"]


@dataclass
class Parameters:
    """How chat requests are written. Shared by all views of a `ServerApi`, so that what one learns holds for all.

    Attributes
    ----------
    refused : collection of str
        Parameters that are left out; ``system`` means turns of that role, which are prepended to the next user turn.
    limit : str
        The name of the limit on generated tokens.
    extra_tokens : int
        Tokens for reasoning, added to each limit.
    responses : bool
        Whether the model is asked by the Responses API.
    """

    refused: Collection[str] = ()
    limit: LimitName = "max_tokens"
    extra_tokens: int = 0
    responses: bool = False

    def adapted(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of a chat request in the form that the model accepts."""
        body: dict[str, Any] = {}
        for name, value in payload.items():
            if name == "max_tokens":
                body[self.limit] = value + self.extra_tokens
            elif name == "messages" and "system" in self.refused:
                body[name] = without_system(value)
            elif name not in self.refused:
                body[name] = value
        return body


def turns_of(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as JSON objects."""
    return [{"role": message.role, "content": message.content} for message in messages]


def without_system(turns: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The turns with each system message prepended to the next user turn, as templates without that role do."""
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

"""Thoughts of models in this process: room for them, and answers without them."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from backends.base import GenerateRequest, GenerateResponse, Prompt
from backends.errors import BackendError
from backends.reasoning import UnfinishedThoughtError, opens_thought, split_reasoning, stopped

#: Tokens of a thought where none are set.
DEFAULT_ROOM = 4096


class Renders(Protocol):
    """What shows the text that a prompt becomes."""

    def text(self, prompt: Prompt) -> str:
        """The text."""


def with_room(request: GenerateRequest, room: int) -> GenerateRequest:
    """The request with room for a thought, which no stop string ends."""
    sampling = request.sampling
    longer = dataclasses.replace(sampling, max_tokens=sampling.max_tokens + room, stop=())
    return dataclasses.replace(request, sampling=longer)


def without_thought(
    request: GenerateRequest, answer: GenerateResponse | BackendError, encoder: Renders, *, had_room: bool
) -> GenerateResponse | BackendError:
    """The answer apart from its thought; an error where the thought has no end."""
    if isinstance(answer, BackendError) or (isinstance(request.prompt, str) and not had_room):
        return answer
    opened = not isinstance(request.prompt, str) and opens_thought(encoder.text(request.prompt))
    thought, text = split_reasoning(answer.text, opened_before=opened)
    if text is None:
        return UnfinishedThoughtError()
    reason = answer.finish_reason
    if had_room:
        text, ended = stopped(text, request.sampling.stop, reason)
        reason = "stop" if ended == "stop" else "length"
    return dataclasses.replace(answer, text=text, finish_reason=reason, thought=thought)

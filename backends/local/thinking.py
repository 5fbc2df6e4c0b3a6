"""Reasoning of models in this process: extra tokens for it, and answers without it."""

from __future__ import annotations

import dataclasses

from backends.base import GenerateRequest, GenerateResponse
from backends.errors import BackendError
from backends.local.encoder import TextEncoder
from backends.reading.reasoning import UnfinishedThoughtError, opens_thought, split_reasoning, stopped


def with_extra_tokens(request: GenerateRequest, extra: int) -> GenerateRequest:
    """The request with ``extra`` tokens for reasoning, and without stop strings, which might end the reasoning."""
    sampling = request.sampling
    longer = dataclasses.replace(sampling, max_tokens=sampling.max_tokens + extra, stop=())
    return dataclasses.replace(request, sampling=longer)


def without_thought(
    request: GenerateRequest,
    answer: GenerateResponse | BackendError,
    encoder: TextEncoder,
    *,
    had_extra_tokens: bool,
) -> GenerateResponse | BackendError:
    """The answer with its reasoning split off; an error if the reasoning does not end."""
    if isinstance(answer, BackendError) or (isinstance(request.prompt, str) and not had_extra_tokens):
        return answer
    opened = not isinstance(request.prompt, str) and opens_thought(encoder.text(request.prompt))
    thought, text = split_reasoning(answer.text, opened_before=opened)
    if text is None:
        return UnfinishedThoughtError()
    reason = answer.finish_reason
    if had_extra_tokens and thought and reason == "length" and len(text) < request.sampling.max_tokens:
        return UnfinishedThoughtError()  # a token has a letter or more: the thought has used up those of the answer
    if had_extra_tokens:
        text, ended = stopped(text, request.sampling.stop, reason)
        reason = "stop" if ended == "stop" else "length"
    return dataclasses.replace(answer, text=text, finish_reason=reason, thought=thought)

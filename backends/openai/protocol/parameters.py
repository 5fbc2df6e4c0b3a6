"""Which parameters a model accepts, as tested empirically, chat requests limited to these, and sampling options.

OpenAI's o and gpt-5 series call the token limit ``max_completion_tokens`` and accept no temperature but 1; Claude
from Opus 4.7 on refuses any ``temperature``; others accept no ``stop``, or no system turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import GenerateRequest, Message
from backends.errors import BackendError
from backends.openai.capabilities import ZERO_TEMPERATURE, ServerCapabilities
from backends.openai.quirks import DIALECTS, Dialect

#: More tokens than any chat template adds around the turns.
_TEMPLATE_TOKENS = 2**16


def adapted(payload: Mapping[str, Any], found: ServerCapabilities, extra_tokens: int) -> dict[str, Any]:
    """The payload of a chat request in the form that the model accepts; ``extra_tokens`` are for its reasoning."""
    body: dict[str, Any] = {}
    for name, value in payload.items():
        if name == "max_tokens":
            body[found.limit_name] = max(value + extra_tokens, found.min_tokens)
        elif name == "messages" and "system" in found.refused:
            body[name] = without_system(value)
        elif name == "temperature" and not value and ZERO_TEMPERATURE in found.refused:
            continue
        elif name not in found.refused:
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


def sampling_options(request: GenerateRequest, family: Dialect | None) -> dict[str, Any]:
    """The fields for this request's sampling. Raises ``unsupported`` for what a server cannot do exactly as requested.

    The order of the filters matters: penalty, temperature, top_k, top_p.
    """
    sampling = request.sampling
    options: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if sampling.stop:
        options["stop"] = list(sampling.stop)
    penalty = sampling.repetition_penalty
    if family is None:
        if sampling.top_k or penalty != 1:
            raise BackendError("unsupported", "this server is not known to support top_k or repetition_penalty")
        return options
    if family == "llama-cpp-python" and 0 < sampling.temperature != 1 and sampling.top_p < 1:
        raise BackendError(
            "unsupported", "llama-cpp-python filters by top_p before the temperature", hint="Use top_p=1 here"
        )
    options |= {"top_k": sampling.top_k, "min_p": 0.0, DIALECTS[family].penalty: penalty}
    if family == "llama.cpp" and penalty != 1:
        options["repeat_last_n"] = _max_tokens(request)
    if family == "llama.cpp" and sampling.temperature > 0:
        options["samplers"] = ["penalties", "temperature", "top_k", "top_p"]
    return options


def _max_tokens(request: GenerateRequest) -> int:
    """An upper bound on the tokens of prompt and answer: llama.cpp allocates 4 bytes for each before it draws."""
    turns = (request.prompt,) if isinstance(request.prompt, str) else [m.content for m in request.prompt]
    return sum(len(turn.encode()) for turn in turns) + request.sampling.max_tokens + _TEMPLATE_TOKENS

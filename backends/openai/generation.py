"""Texts from a server: the sampling that was asked for, said in the words of each server."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from backends.base import GenerateRequest, GenerateResponse, Message
from backends.errors import BackendError
from backends.openai.api import ServerApi
from backends.openai.probe.capabilities import ServerCapabilities
from backends.openai.scoring.top_logprobs import single_choice

_FINISHED = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
}
#: More tokens than a chat template puts around the turns.
_TEMPLATE_TOKENS = 2**16
#: vLLM's and others' way to go on with a last assistant turn; llama.cpp does so by itself.
CONTINUE_ASSISTANT = {"continue_final_message": True, "add_generation_prompt": False}


async def generate(api: ServerApi, found: ServerCapabilities, request: GenerateRequest) -> GenerateResponse:
    """The answer to one request. Raises `BackendError`."""
    options: dict[str, Any] = sampling_options(request, found.family)
    if found.seed_works:
        options["seed"] = seed_of(request)
    prompt = request.prompt
    if isinstance(prompt, str) and found.completions:
        answer = await api.completion(prompt, **options)
        prefill = ""
        text = single_choice(answer).get("text")
    else:
        messages = (Message("user", prompt),) if isinstance(prompt, str) else prompt
        prefill = messages[-1].content if messages[-1].role == "assistant" else ""
        if not found.chat:
            raise BackendError("unsupported", "the server has no chat endpoint that answers")
        if prefill:
            if found.prefill is None:
                raise BackendError("unsupported", "the server does not go on with the start of an answer")
            options |= CONTINUE_ASSISTANT if found.prefill == "flags" else {}
        answer = await api.chat(messages, **options)
        message = single_choice(answer).get("message")
        text = message.get("content") if isinstance(message, Mapping) else None
        if not text and isinstance(message, Mapping) and isinstance(message.get("refusal"), str):
            text, prefill = message["refusal"], ""  # OpenAI's place for a model that declines: it starts anew
    reason = single_choice(answer).get("finish_reason")
    if reason == "content_filter":
        raise BackendError("bad_request", "the server's content filter stopped the answer")
    if not isinstance(text, str):
        raise BackendError("malformed", "an answer without text", retryable=True)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BackendError("malformed", "a text with half a character", retryable=True) from None
    if prefill and found.prefill == "repeated":
        if not text.startswith(prefill):
            raise BackendError("inconsistent", "the answer does not begin with its given start")
        text = text[len(prefill) :]
    if reason not in _FINISHED:
        raise BackendError("malformed", f"the answer ended for the reason {str(reason)[:40]!r}")
    usage = answer.get("usage")
    counts = usage if isinstance(usage, Mapping) else {}
    return GenerateResponse(
        text,
        "stop" if _FINISHED[reason] == "stop" else "length",
        _number(counts.get("prompt_tokens")),
        _number(counts.get("completion_tokens")),
    )


def sampling_options(request: GenerateRequest, family: str | None) -> dict[str, Any]:
    """The fields for this request's sampling. What a server cannot do as meant is ``unsupported``.

    The order of the filters is part of the meaning: penalty, temperature, top_k, top_p.
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
    if family == "llama.cpp":
        options |= {"top_k": sampling.top_k, "min_p": 0.0, "repeat_penalty": penalty}
        if penalty != 1:
            options["repeat_last_n"] = _most_tokens(request)
        if sampling.temperature > 0:
            options["samplers"] = ["penalties", "temperature", "top_k", "top_p"]
    elif family == "llama-cpp-python":
        if 0 < sampling.temperature != 1 and sampling.top_p < 1:
            raise BackendError(
                "unsupported", "llama-cpp-python filters by top_p before the temperature", hint="Use top_p=1 here"
            )
        options |= {"top_k": sampling.top_k, "min_p": 0.0, "repeat_penalty": penalty}
    elif family == "vllm":
        options |= {"top_k": sampling.top_k, "min_p": 0.0, "repetition_penalty": penalty}
    elif sampling.top_k or penalty != 1:
        raise BackendError("unsupported", "this server is not known to take top_k or repetition_penalty")
    return options


def _most_tokens(request: GenerateRequest) -> int:
    """At least as many as prompt and answer have: llama.cpp sets 4 bytes aside for each before it draws."""
    turns = (request.prompt,) if isinstance(request.prompt, str) else [m.content for m in request.prompt]
    return sum(len(turn.encode()) for turn in turns) + request.sampling.max_tokens + _TEMPLATE_TOKENS


def seed_of(request: GenerateRequest) -> int:
    """One seed for each seed and repeat: 31 bits, which every server takes."""
    digest = hashlib.sha256(f"{request.seed} {request.repeat}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0

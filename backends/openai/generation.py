"""Text generation on a server: the requested sampling, expressed in each server's own options."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import GenerateRequest, GenerateResponse, Message
from backends.errors import BackendError
from backends.http.errors import inconsistent
from backends.http.usage import generated_tokens, reasoning_tokens, reported_tokens
from backends.openai.capabilities import ServerCapabilities
from backends.openai.protocol.api import FilteredAnswerError, ServerApi, check_finished, meaning_of, single_choice
from backends.openai.protocol.parameters import sampling_options
from backends.reading.reasoning import (
    UnfinishedThoughtError,
    has_reasoned,
    reported_thought,
    split_reasoning,
    stopped,
    text_of,
)

#: Maximum draws of one request, where the server gives as many.
MOST_CHOICES = 50
#: Makes vLLM and others continue a last assistant turn; llama.cpp does so by default.
CONTINUE_ASSISTANT = {"continue_final_message": True, "add_generation_prompt": False}


async def generate(api: ServerApi, request: GenerateRequest) -> GenerateResponse:
    """The answer to one request. Raises `BackendError`."""
    least = api.found.min_tokens
    if not api.found.reasons and request.sampling.max_tokens < least:
        reason = f"the server takes no limit below {least} tokens"
        raise BackendError("unsupported", reason, hint=f"Use max_tokens={least} or more")
    response, prefill = await _asked(api, request)
    return read_answer(api.found, request, single_choice(response), response.get("usage"), prefill)


async def draws(api: ServerApi, request: GenerateRequest, count: int) -> list[GenerateResponse | None]:
    """``count`` independent answers, as many per request as the server gives. Raises `BackendError`.

    None stands for an answer whose tokens ran out within the reasoning, or that the content filter stopped.
    """
    answers: list[GenerateResponse | BackendError] = []
    place, most = 0, MOST_CHOICES
    while len(answers) < count:
        left, most = count - len(answers), min(most, choices_of_a_request(api.found))
        sizes = [min(most, left - at) for at in range(0, left, most)]
        if api.batches is None:
            sizes = sizes[:1]
        places = itertools.accumulate(sizes, initial=place)
        drawn = await asyncio.gather(
            *(_together(api, request, at, size) for at, size in zip(places, sizes, strict=False))
        )
        place += sum(sizes)  # never a number that was used: in a batch, its answer would come again
        if any(len(found) < size for found, size in zip(drawn, sizes, strict=True)):
            most = 1  # one endpoint may ignore ``n`` although another obeys it
        answers += itertools.chain(*drawn)
    answers = answers[:count]
    filtered = next((answer for answer in answers if isinstance(answer, FilteredAnswerError)), None)
    if filtered is not None and not any(isinstance(answer, GenerateResponse) for answer in answers):
        raise filtered
    return [answer if isinstance(answer, GenerateResponse) else None for answer in answers]


def choices_of_a_request(capabilities: ServerCapabilities) -> int:
    """How many answers one request gives."""
    return min(MOST_CHOICES, capabilities.choices)


async def _together(
    api: ServerApi, request: GenerateRequest, place: int, size: int
) -> list[GenerateResponse | BackendError]:
    """The draws from number ``place`` on: ``size`` of them, one if the server gives no more, none if it refuses."""
    drawn = dataclasses.replace(request, repeat=place)
    view = dataclasses.replace(api, draw=place)
    try:
        response, prefill = await _asked(view, drawn, **({"n": size} if size > 1 else {}))
    except BackendError as error:
        if size > 1 and error.kind in ("bad_request", "unsupported"):
            api.found.choices = 1  # perhaps the number is refused, or one of the thoughts was too long
            return []
        if isinstance(error, UnfinishedThoughtError):
            return [error]
        raise
    choices = response.get("choices")
    if size == 1 or not isinstance(choices, Sequence) or len(choices) != size:
        choices = [single_choice({"choices": choices[:1] if isinstance(choices, list) else choices})]
    answers: list[GenerateResponse | BackendError] = []
    for choice in choices:
        try:
            answers.append(read_answer(api.found, drawn, choice, response.get("usage"), prefill))
        except (UnfinishedThoughtError, FilteredAnswerError) as unknown:
            answers.append(unknown)
    return answers


async def _asked(api: ServerApi, request: GenerateRequest, **more: Any) -> tuple[dict[str, Any], str]:
    """The server's response, and the assistant prefill that the answer continues."""
    capabilities = api.found
    options: dict[str, Any] = {**sampling_options(request, capabilities.family), **more}
    if capabilities.seed_works:
        options["seed"] = seed_of(request)
    if request.sampling.top_p != 1 and "top_p" in capabilities.refused:
        raise BackendError("unsupported", "the model does not accept top_p", hint="Use top_p=1")
    if capabilities.reasons:
        options.pop("stop", None)  # it could end the reasoning; the answer is cut afterwards instead
    prompt = request.prompt
    if isinstance(prompt, str) and capabilities.completions:
        return await api.completion(prompt, **options), ""
    messages = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    prefill = messages[-1].content if messages[-1].role == "assistant" else ""
    if not capabilities.chat:
        raise BackendError("unsupported", "the server has no working chat endpoint")
    if prefill:
        if capabilities.prefill is None:
            raise BackendError("unsupported", "the server does not continue an assistant prefill")
        options |= CONTINUE_ASSISTANT if capabilities.prefill == "flags" else {}
    return await api.chat(messages, **options), prefill


def read_answer(
    capabilities: ServerCapabilities, request: GenerateRequest, choice: Mapping[str, Any], usage: Any, prefill: str = ""
) -> GenerateResponse:
    """One choice as an answer, with reasoning split off. Raises `BackendError` if there is only reasoning."""
    message, text = choice.get("message"), text_of(choice)
    if not text and isinstance(message, Mapping) and isinstance(message.get("refusal"), str):
        text, prefill = message["refusal"], ""  # where OpenAI puts a refusal, which does not continue the prefill
    thought, spent = reported_thought(choice), reasoning_tokens(usage)
    # Some servers hide a thought and do not count it: then it has used up the tokens of an answer without a letter.
    used_up = isinstance(message, Mapping) and meaning_of(choice.get("finish_reason")) == "length"
    if not text and (thought or used_up or has_reasoned(choice)):
        raise UnfinishedThoughtError()
    text, reason = _checked(text, choice.get("finish_reason"))
    if prefill and capabilities.prefill == "repeated":
        if not text.startswith(prefill):
            raise inconsistent("the answer does not begin with the assistant prefill")
        text = text[len(prefill) :]
    inline, answer = split_reasoning(text, opened_before=capabilities.opened_before)
    if answer is None:
        raise UnfinishedThoughtError()
    ended = meaning_of(reason)
    if capabilities.reasons and ended == "length" and len(answer) < request.sampling.max_tokens:
        raise UnfinishedThoughtError()  # a token has a letter or more: the thought has used up those of the answer
    answer, finish = stopped(answer, request.sampling.stop, ended or "stop")  # some servers leave the stop string there
    return GenerateResponse(
        answer,
        "stop" if finish == "stop" else "length",
        reported_tokens(usage, "prompt_tokens") or 0,
        generated_tokens(usage) or 0,
        thought or inline,
        spent,
    )


def _checked(text: Any, reason: Any) -> tuple[str, str]:
    """A readable text and a known finish reason."""
    check_finished(reason)
    if not isinstance(text, str):
        raise BackendError("malformed", "an answer without text", retryable=True)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BackendError("malformed", "a text with half a character (a lone surrogate)", retryable=True) from None
    if reason is None:
        raise BackendError("malformed", "an answer without a finish reason")
    return text, reason


def seed_of(request: GenerateRequest) -> int:
    """A seed per seed, repeat and prompt, of 31 bits, which every server accepts.

    If all prompts had the same seeds, their draws would share their chance, and not be independent between items.
    """
    own = f"{request.seed} {request.repeat} {request.prompt!r}"
    digest = hashlib.sha256(own.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1

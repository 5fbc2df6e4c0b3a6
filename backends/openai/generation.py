"""Text generation on a server: the requested sampling, expressed in each server's own options."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import GenerateRequest, GenerateResponse, Message
from backends.errors import BackendError
from backends.http.client import together
from backends.http.usage import generated_tokens, reasoning_tokens, reported_tokens
from backends.openai.api import FilteredAnswerError, ServerApi, check_finished, meaning_of, single_choice
from backends.openai.capabilities import ServerCapabilities
from backends.openai.quirks import DIALECTS, Dialect
from backends.reading.reasoning import (
    UnfinishedThoughtError,
    has_reasoned,
    reported_thought,
    split_reasoning,
    stopped,
    text_of,
)

#: Makes vLLM and others continue a last assistant turn; llama.cpp does so by default.
CONTINUE_ASSISTANT = {"continue_final_message": True, "add_generation_prompt": False}
#: More tokens than any chat template adds around the turns.
_TEMPLATE_TOKENS = 2**16


async def generate(api: ServerApi, request: GenerateRequest) -> GenerateResponse:
    """The answer to one request. Raises `BackendError`."""
    least = api.found.min_tokens
    if not api.found.reasons and request.sampling.max_tokens < least:
        reason = f"the server takes no limit below {least} tokens"
        raise BackendError("unsupported", reason, hint=f"Use max_tokens={least} or more")
    response = await _asked(api, request)
    return read_answer(api.found, request, single_choice(response), response.get("usage"))


async def draws(api: ServerApi, request: GenerateRequest, count: int) -> list[GenerateResponse | None]:
    """``count`` independent answers, as many per request as the server gives. Raises `BackendError`.

    None stands for an answer whose tokens ran out within the reasoning, or that the content filter stopped.
    """
    answers: list[GenerateResponse | BackendError] = []
    place, most = 0, api.found.choices
    while (left := count - len(answers)) > 0:
        starts = range(0, left, most)
        found = await together([_drawn(api, request, place + at, min(most, left - at)) for at in starts])
        place += left  # never a number that was used: in a batch, its answer would come again
        answers += itertools.chain(*found)
        if len(answers) < count:
            most = 1  # one endpoint may ignore ``n`` although another obeys it
    filtered = next((answer for answer in answers if isinstance(answer, FilteredAnswerError)), None)
    if filtered is not None and not any(isinstance(answer, GenerateResponse) for answer in answers):
        raise filtered
    return [answer if isinstance(answer, GenerateResponse) else None for answer in answers]


async def _drawn(
    api: ServerApi, request: GenerateRequest, place: int, size: int
) -> list[GenerateResponse | BackendError]:
    """The draws from number ``place`` on: ``size`` of them, one if the server gives no more, none if it refuses."""
    drawn = dataclasses.replace(request, repeat=place)
    view = dataclasses.replace(api, draw=place)
    try:
        response = await _asked(view, drawn, **({"n": size} if size > 1 else {}))
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
            answers.append(read_answer(api.found, drawn, choice, response.get("usage")))
        except (UnfinishedThoughtError, FilteredAnswerError) as unknown:
            answers.append(unknown)
    return answers


async def _asked(api: ServerApi, request: GenerateRequest, **more: Any) -> dict[str, Any]:
    found, prompt = api.found, request.prompt
    options: dict[str, Any] = {**sampling_options(request, found.family), **more}
    if found.seed_works:
        options["seed"] = seed_of(request)
    if request.sampling.top_p != 1 and "top_p" in found.refused:
        raise BackendError("unsupported", "the model does not accept top_p", hint="Use top_p=1")
    if found.reasons:
        options.pop("stop", None)  # it could end the reasoning; the answer is cut afterwards instead
    if isinstance(prompt, str) and found.completions:
        return await api.completion(prompt, **options)
    messages = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    if not found.chat:
        raise BackendError("unsupported", "the server has no working chat endpoint")
    if messages[-1].role == "assistant" and messages[-1].content:
        if found.prefill is None:
            raise BackendError("unsupported", "the server does not continue an assistant prefill")
        options |= CONTINUE_ASSISTANT if found.prefill == "flags" else {}
    return await api.chat(messages, **options)


def read_answer(
    capabilities: ServerCapabilities, request: GenerateRequest, choice: Mapping[str, Any], usage: Any
) -> GenerateResponse:
    """One choice as an answer, with reasoning split off. Raises `BackendError` if there is only reasoning."""
    message, text, reason = choice.get("message"), text_of(choice), choice.get("finish_reason")
    ended = meaning_of(reason)
    if not text and isinstance(message, Mapping) and isinstance(message.get("refusal"), str):
        text = message["refusal"]  # where OpenAI puts a refusal
    thought = reported_thought(choice)
    # Some servers hide a thought and do not count it: then it has used up the tokens of an answer without a letter.
    used_up = isinstance(message, Mapping) and ended == "length"
    if not text and (thought or used_up or has_reasoned(choice)):
        raise UnfinishedThoughtError()
    check_finished(reason)
    if text is None or ended is None:
        what = "text" if text is None else "a finish reason"
        raise BackendError("malformed", f"an answer without {what}", retryable=text is None)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BackendError("malformed", "a text with half a character (a lone surrogate)", retryable=True) from None
    inline, answer = split_reasoning(text, opened_before=capabilities.opened_before)
    # A token has a letter or more: of a shorter answer that was cut, the thought has used up the tokens.
    cut_short = capabilities.reasons and ended == "length" and len(answer or "") < request.sampling.max_tokens
    if answer is None or cut_short:
        raise UnfinishedThoughtError()
    answer, finish = stopped(answer, request.sampling.stop, ended)  # some servers leave the stop string there
    counts = reported_tokens(usage, "prompt_tokens") or 0, generated_tokens(usage) or 0
    ended = "stop" if finish == "stop" else "length"
    return GenerateResponse(answer, ended, *counts, thought or inline, reasoning_tokens(usage))


def sampling_options(request: GenerateRequest, family: Dialect | None) -> dict[str, Any]:
    """The fields for this request's sampling. Raises ``unsupported`` for what a server cannot do exactly as requested.

    The order of the filters matters: penalty, temperature, top_k, top_p.
    """
    sampling = request.sampling
    options: dict[str, Any] = {name: getattr(sampling, name) for name in ("max_tokens", "temperature", "top_p")}
    if sampling.stop:
        options["stop"] = list(sampling.stop)
    penalty = sampling.repetition_penalty
    if family is None:
        if sampling.top_k or penalty != 1:
            raise BackendError("unsupported", "this server is not known to support top_k or repetition_penalty")
        return options
    if family == "llama-cpp-python" and 0 < sampling.temperature != 1 and sampling.top_p < 1:
        problem = "llama-cpp-python filters by top_p before the temperature"
        raise BackendError("unsupported", problem, hint="Use top_p=1 here")
    options |= {"top_k": sampling.top_k, "min_p": 0.0, DIALECTS[family].penalty: penalty}
    if family == "llama.cpp" and penalty != 1:
        # It allocates 4 bytes for each token of prompt and answer before it draws: an upper bound on these.
        turns = (request.prompt,) if isinstance(request.prompt, str) else [m.content for m in request.prompt]
        most = sum(len(turn.encode()) for turn in turns) + sampling.max_tokens + _TEMPLATE_TOKENS
        options["repeat_last_n"] = most
    if family == "llama.cpp" and sampling.temperature > 0:
        options["samplers"] = ["penalties", "temperature", "top_k", "top_p"]
    return options


def seed_of(request: GenerateRequest) -> int:
    """A seed per seed, repeat and prompt, of 31 bits, which every server accepts.

    If all prompts had the same seeds, their draws would share their chance, and not be independent between items.
    """
    own = f"{request.seed} {request.repeat} {request.prompt!r}"
    digest = hashlib.sha256(own.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1

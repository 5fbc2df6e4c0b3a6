"""Scores a request by the route that the look found."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from backends.base import (
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Message,
    Prompt,
    Sampling,
    ScoreRequest,
    ScoreResponse,
)
from backends.errors import BackendError
from backends.openai.generation import CONTINUE_ASSISTANT, draws
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.given_tokens import score_by_echo, score_by_prompt_logprobs
from backends.openai.scoring.next_tokens import next_tokens
from backends.openai.scoring.sampled import score_by_sampling
from backends.openai.scoring.teacher_forcing import Reach, TeacherForcing, score_by_first_token
from backends.openai.scoring.tokenizer import RemoteTokenizer

Scores = tuple[ContinuationScore, ...]


async def score(api: ServerApi, request: ScoreRequest, tokenizer: RemoteTokenizer | None = None) -> ScoreResponse:
    """Scores of all continuations of one request. Raises `BackendError`."""
    if request.first_given:
        problem = "this server has no proven route for a text with nothing before it"
        raise BackendError("unsupported", problem, hint="give the text a start")
    prompt, continuations = request.prompt, request.continuations
    if isinstance(prompt, str):
        return ScoreResponse(await _of_text(api, prompt, continuations, tokenizer))
    return ScoreResponse(await _of_chat(api, prompt, continuations, tokenizer))


async def _of_text(
    api: ServerApi, prompt: str, continuations: Sequence[str], tokenizer: RemoteTokenizer | None
) -> Scores:
    found, route = api.found, api.found.text_route
    if route == "prompt_logprobs" and tokenizer:
        return await score_by_prompt_logprobs(api, prompt, continuations, tokenizer)
    if route == "echo":
        return await score_by_echo(api, prompt, continuations)
    if route in ("top_k_ids", "top_k"):
        reach = Reach(found.largest_k, found.repeat_noise, route)
        if tokenizer is None:
            top = await next_tokens(api, prompt, found.largest_k)
            return score_by_first_token(top, reach, prompt, continuations)
        forcing = TeacherForcing(tokenizer, functools.partial(next_tokens, api), reach, by_ids=route == "top_k_ids")
        return await forcing.score(prompt, continuations)
    if route == "sampled":
        return await _by_draws(api, prompt, continuations)
    hint = 'Ask in chat form (prompt_format="chat")' if found.chat_route else ""
    raise BackendError("unsupported", "no proven way to score a continuation of a text", hint=hint)


async def _of_chat(
    api: ServerApi, messages: tuple[Message, ...], continuations: Sequence[str], tokenizer: RemoteTokenizer | None
) -> Scores:
    found, route = api.found, api.found.chat_route
    if route == "rendered":
        return await _of_text(api, await api.rendered_chat(messages), continuations, tokenizer)
    if route == "sampled":
        return await _by_draws(api, messages, continuations)
    if route is None:
        raise BackendError("unsupported", "no proven way to score an answer in a chat")
    start = messages[-1].content if messages[-1].role == "assistant" else ""
    if start and route == "chat_first":
        problem, hint = "the server does not continue an assistant prefill", "Ask without an assistant turn"
        raise BackendError("unsupported", problem, hint=f"Only an answer's first token can be scored here. {hint}")
    flags = CONTINUE_ASSISTANT if start and found.prefill == "flags" else {}
    top = await next_tokens(api, messages, found.largest_chat_k, **flags)
    return score_by_first_token(top, Reach(found.largest_chat_k, found.repeat_noise, route), start, continuations)


async def _by_draws(api: ServerApi, prompt: Prompt, continuations: Sequence[str]) -> Scores:
    async def draw(count: int, tokens: int) -> Sequence[GenerateResponse | None]:
        return await draws(api, GenerateRequest(prompt, Sampling(temperature=1.0, max_tokens=tokens)), count)

    return await score_by_sampling(draw, continuations, api.options.samples or 0)

"""Scores a request by the route that the probe proved."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from backends.base import (
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Message,
    Sampling,
    ScoreRequest,
    ScoreResponse,
)
from backends.errors import BackendError
from backends.openai.capabilities import ServerCapabilities
from backends.openai.generation import CONTINUE_ASSISTANT
from backends.openai.generation import draws as draw_answers
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.chosen_tokens import chosen_by_completions, chosen_by_score, score_by_chosen_tokens
from backends.openai.scoring.next_tokens import next_chat_tokens, next_tokens
from backends.openai.scoring.prompt_logprobs import score_by_echo, score_by_prompt_logprobs
from backends.openai.scoring.sampled import score_by_sampling
from backends.openai.scoring.teacher_forcing import Reach, TeacherForcing, TextForcing
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import TopLogprobs

#: How many tokens of a split answer are followed, each with one more request.
_SPLIT_STEPS = 4


class Routes:
    """Scores from one server. ``samples`` is the number of draws of the route ``sampled``."""

    def __init__(
        self, api: ServerApi, capabilities: ServerCapabilities, tokenizer: RemoteTokenizer | None, samples: int | None
    ) -> None:
        self._api, self._capabilities, self._tokenizer, self._samples = api, capabilities, tokenizer, samples

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        """Scores of all continuations. Raises `BackendError`."""
        if request.first_given:
            problem = "this server has no proven route for a text with nothing before it"
            raise BackendError("unsupported", problem, hint="give the text a start")
        score = self._text if isinstance(request.prompt, str) else self._chat
        return ScoreResponse(await score(request.prompt, request.continuations))  # type: ignore[arg-type]

    async def _text(self, prompt: str, continuations: Sequence[str]) -> tuple[ContinuationScore, ...]:
        capabilities, tokenizer = self._capabilities, self._tokenizer
        route = capabilities.text_route
        if route == "prompt_logprobs" and tokenizer:
            return await score_by_prompt_logprobs(self._api, prompt, continuations, tokenizer)
        if route == "logprob_token_ids" and tokenizer:
            return await score_by_chosen_tokens(
                self._api, chosen_by_completions, prompt, continuations, tokenizer, route
            )
        if route == "score_endpoint" and tokenizer:
            return await score_by_chosen_tokens(self._api, chosen_by_score, prompt, continuations, tokenizer, route)
        if route == "echo":
            return await score_by_echo(self._api, prompt, continuations, tokenizer)
        if route in ("top_k_ids", "top_k"):
            reach = Reach(capabilities.largest_k, capabilities.repeat_noise, route)
            ask = functools.partial(next_tokens, self._api)
            if tokenizer is None:
                return await TextForcing(ask, reach, steps=_SPLIT_STEPS).score(prompt, continuations)
            ask_ids = ask if route == "top_k_ids" else None
            return await TeacherForcing(tokenizer, ask_ids, ask, reach).score(prompt, continuations)
        if route == "sampled":
            return await self._sampled(prompt, continuations)
        hint = 'Ask in chat form (prompt_format="chat")' if capabilities.chat_route else ""
        raise BackendError("unsupported", "no proven way to score a continuation of a text", hint=hint)

    async def _chat(self, messages: tuple[Message, ...], continuations: Sequence[str]) -> tuple[ContinuationScore, ...]:
        capabilities = self._capabilities
        route = capabilities.chat_route
        if route == "rendered":
            return await self._text(await self._api.rendered_chat(messages), continuations)
        if route == "sampled":
            return await self._sampled(messages, continuations)
        if route is None:
            raise BackendError("unsupported", "no proven way to score an answer in a chat")
        turns, start = (messages[:-1], messages[-1].content) if messages[-1].role == "assistant" else (messages, "")
        if start and route == "chat_first":
            raise BackendError(
                "unsupported",
                "the server does not continue an assistant prefill",
                hint="Only the first token of an answer can be scored here: ask without an assistant turn",
            )

        async def ask(prefix: str, k: int) -> TopLogprobs:
            if not prefix:
                return await next_chat_tokens(self._api, turns, k)
            flags = CONTINUE_ASSISTANT if capabilities.prefill == "flags" else {}
            return await next_chat_tokens(self._api, (*turns, Message("assistant", prefix)), k, **flags)

        reach = Reach(capabilities.largest_chat_k, capabilities.repeat_noise, route)
        forcing = TextForcing(ask, reach, steps=_SPLIT_STEPS if route == "chat_prefill" else 0)
        return await forcing.score(start, continuations)

    async def _sampled(
        self, prompt: str | tuple[Message, ...], continuations: Sequence[str]
    ) -> tuple[ContinuationScore, ...]:
        async def draw(count: int, tokens: int) -> Sequence[GenerateResponse | None]:
            request = GenerateRequest(prompt, Sampling(temperature=1.0, max_tokens=tokens))
            return await draw_answers(self._api, self._capabilities, request, count)

        return await score_by_sampling(draw, continuations, self._samples or 0)


async def score(
    api: ServerApi,
    capabilities: ServerCapabilities,
    request: ScoreRequest,
    tokenizer: RemoteTokenizer | None = None,
    samples: int | None = None,
) -> ScoreResponse:
    """Scores of all continuations of one request. Raises `BackendError`."""
    return await Routes(api, capabilities, tokenizer, samples).score(request)

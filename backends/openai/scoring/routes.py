"""Scoring one request by the route that the probe proved."""

from __future__ import annotations

from collections.abc import Sequence

from backends.base import ContinuationScore, GenerateRequest, Message, Sampling, ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.openai.api import ServerApi, rendered_chat
from backends.openai.generation import CONTINUE_ASSISTANT, generate
from backends.openai.probe.capabilities import ServerCapabilities
from backends.openai.scoring.prompt_logprobs import score_by_echo, score_by_prompt_logprobs
from backends.openai.scoring.sampled import score_by_sampling
from backends.openai.scoring.teacher_forcing import Reach, TeacherForcing, TextForcing
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import TopLogprobs


class Routes:
    """Scores of one server. ``samples`` is the number of draws of the route ``sampled``."""

    def __init__(
        self, api: ServerApi, found: ServerCapabilities, tokenizer: RemoteTokenizer | None, *, samples: int | None
    ) -> None:
        self._api, self._found, self._tokenizer, self._samples = api, found, tokenizer, samples

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        """Scores of all continuations. Raises `BackendError`."""
        if isinstance(request.prompt, str):
            scores = await self._text(request.prompt, request.continuations)
        else:
            scores = await self._chat(request.prompt, request.continuations)
        return ScoreResponse(scores)

    async def _text(self, prompt: str, continuations: Sequence[str]) -> tuple[ContinuationScore, ...]:
        route = self._found.text_route
        if route == "prompt_logprobs" and self._tokenizer:
            return await score_by_prompt_logprobs(self._api, prompt, continuations, self._tokenizer)
        if route == "echo":
            return await score_by_echo(self._api, prompt, continuations, self._tokenizer)
        if route in ("top_k_ids", "top_k"):
            reach = Reach(self._found.largest_k, self._found.spread, route)
            if self._tokenizer is None:
                return await TextForcing(self._api.next_tokens, reach).score(prompt, continuations)
            ask_ids = self._api.next_tokens if self._found.takes_ids else None
            forcing = TeacherForcing(self._tokenizer, ask_ids, self._api.next_tokens, reach)
            return await forcing.score(prompt, continuations)
        if route == "sampled":
            return await self._sampled(prompt, continuations)
        hint = 'Ask in chat form (prompt_format="chat")' if self._found.chat_route else ""
        raise BackendError("unsupported", "no proven way to score a continuation of a text", hint=hint)

    async def _chat(self, messages: tuple[Message, ...], continuations: Sequence[str]) -> tuple[ContinuationScore, ...]:
        route = self._found.chat_route
        if route == "rendered":
            return await self._text(await rendered_chat(self._api.client, messages), continuations)
        if route == "sampled":
            return await self._sampled(messages, continuations)
        if route is None:
            raise BackendError("unsupported", "no proven way to score an answer in a chat")
        turns, start = (messages[:-1], messages[-1].content) if messages[-1].role == "assistant" else (messages, "")
        if start and route == "chat_first":
            raise BackendError(
                "unsupported",
                "the server does not go on with the start of an answer",
                hint="Only the first token of an answer can be scored here: ask without an assistant turn",
            )

        async def ask(begun: str, k: int) -> TopLogprobs:
            if not begun:
                return await self._api.next_chat_tokens(turns, k)
            flags = CONTINUE_ASSISTANT if self._found.prefill == "flags" else {}
            return await self._api.next_chat_tokens((*turns, Message("assistant", begun)), k, **flags)

        reach = Reach(self._found.largest_chat_k, self._found.spread, route)
        forcing = TextForcing(ask, reach, steps=4 if route == "chat_prefill" else 0)
        return await forcing.score(start, continuations)

    async def _sampled(
        self, prompt: str | tuple[Message, ...], continuations: Sequence[str]
    ) -> tuple[ContinuationScore, ...]:
        async def draw(number: int, tokens: int) -> str:
            request = GenerateRequest(prompt, Sampling(temperature=1.0, max_tokens=tokens), repeat=number)
            return (await generate(self._api.numbered(number), self._found, request)).text

        return await score_by_sampling(draw, continuations, self._samples or 0)

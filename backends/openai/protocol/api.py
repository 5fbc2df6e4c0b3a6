"""The endpoints of an OpenAI-style server, one method each.

Every response passes the checks that apply to any server: the same model as before, a response not
seen before, consistent token counts, a single choice.
"""

from __future__ import annotations

import copy
import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from backends.base import GenerateRequest, Message, Request
from backends.errors import BackendError
from backends.http.client import HttpClient
from backends.http.errors import inconsistent
from backends.http.usage import Usage, generated_tokens
from backends.openai.batches import PRICE, BatchedClient
from backends.openai.capabilities import PIECE, ServerCapabilities
from backends.openai.options import OpenAIOptions
from backends.openai.protocol.parameters import adapted, turns_of
from backends.openai.quirks import DIALECTS, FINISH_REASONS, NEW_LIMIT
from backends.openai.trackers import ResponseTracker

#: A list longer than this is too large to keep (megabytes).
_LONGEST_CACHED_LIST = 2000
#: Requests whose tokens are compared with their pieces; and from how many tokens on one asks for an answer.
_MOST_COUNTED, _FEWEST_TOKENS = 200, 4


class ServerApi:
    """One model of one server.

    Attributes
    ----------
    found : ServerCapabilities
        How requests are written: filled in by the look, and by refusals that say how to ask.
    echoed_prompts : dict of str to int
        Hashes of the tokens of prompts that were echoed, which need not be echoed again.
    options : OpenAIOptions
    tracker : ResponseTracker
    """

    def __init__(self, client: HttpClient, options: OpenAIOptions, usage: Usage) -> None:
        self.client, self.options, self.usage = client, options, usage
        self.found = ServerCapabilities()
        self.echoed_prompts: dict[str, int] = {}
        self.tracker = ResponseTracker()
        self._counted: list[_Counted] = []
        self._replay_cache: dict[str, dict[str, Any]] | None = None
        self._request: Request | None = None
        self._sample_index = 0
        self._batched: BatchedClient | None = None

    def configure(self, found: ServerCapabilities) -> None:
        """From now on, send requests as these capabilities require, and expect the model that they name."""
        self.found, tracker = found, self.tracker
        tracker.model, tracker.provider = found.answered_model, found.answered_provider
        tracker.unique = found.unique_response_ids

    def adapted(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of a chat request in the form that the model accepts."""
        options = self.options
        return adapted(payload, self.found, options.extra_tokens if self.found.reasons else options.thinking_budget)

    async def completion(self, prompt: str | Sequence[int], **options: Any) -> dict[str, Any]:
        """POST /completions."""
        sent = prompt if isinstance(prompt, str) else list(prompt)
        prompt_tokens = None if isinstance(prompt, str) else len(prompt)
        if "max_tokens" in options:
            options["max_tokens"] = max(options["max_tokens"], self.found.min_tokens)
        return await self._ask("completions", {"prompt": sent, **options}, prompt_tokens)

    async def chat(self, messages: Sequence[Message], **options: Any) -> dict[str, Any]:
        """POST /chat/completions."""
        payload = {"messages": turns_of(messages), **options}
        sent = self.adapted(payload)
        try:
            return await self._ask("chat/completions", sent, None)
        except BackendError as error:
            if error.kind in ("bad_request", "unsupported") and NEW_LIMIT in error.message:
                self.found.limit_name = NEW_LIMIT
            again = self.adapted(payload)
            if again == sent:
                raise  # else this refusal has told how to ask, or that of a request beside this one
            return await self._ask("chat/completions", again, None)

    def token_rates(self) -> dict[str, float]:
        """How the server counted prompts and answers so far, as fields of `ServerCapabilities`; empty if it did not.

        Medians, as some prompts of a look are odd on purpose (Theil and Sen's slope for chats, whose template counts).
        """
        counted = [one for one in self._counted if one.pieces]
        chats = [(one.pieces, one.tokens) for one in counted if one.is_chat]
        rates = [one.tokens / one.pieces for one in counted if not one.is_chat]
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(chats, 2) if a[0] != b[0]]
        if not rates and not slopes:
            return {}
        rate = max(statistics.median(rates or slopes), 0.0)
        template = statistics.median(tokens - rate * length for length, tokens in chats) if chats else 0.0
        answers = [one.answer for one in self._counted if one.answer is not None]
        mean = statistics.fmean(answers) if answers else 0.0
        return {"tokens_per_piece": rate, "template_tokens": max(template, 0.0), "answer_tokens": mean}

    async def rendered_chat(self, messages: Sequence[Message]) -> str:
        """The text that llama.cpp's server renders for a chat. Raises `BackendError` on other servers."""
        prompt = (await self.client.post("/apply-template", {"messages": turns_of(messages)})).get("prompt")
        if not isinstance(prompt, str):
            raise BackendError("unsupported", "the server does not show how it renders a chat")
        return prompt

    def with_replay_cache(self, responses: dict[str, dict[str, Any]], request: Request) -> ServerApi:
        """A view of this server for ``request``: responses in ``responses`` are reused, new ones are added to it.

        When one of the calls of a request fails, the others are not paid for again.
        """
        view = copy.copy(self)
        view._replay_cache, view._request = responses, request
        return view

    def at(self, client: HttpClient) -> ServerApi:
        """A view of this model at one of its servers."""
        view = copy.copy(self)
        view.client = client
        return view

    def with_sample_index(self, index: int) -> ServerApi:
        """A view of this server in which equal requests with different indices are different draws."""
        view = copy.copy(self)
        view._sample_index = index
        return view

    def in_batches(self, client: BatchedClient) -> ServerApi:
        """A view of this server that sends requests in batches."""
        view = copy.copy(self)
        view._batched = client
        return view

    @property
    def waits_for_batches(self) -> bool:
        """Whether requests are sent in batches: those made one after the other would take a batch each."""
        return self._batched is not None

    @property
    def _draw(self) -> list[int]:
        """What distinguishes draws of one question."""
        request = self._request
        own = [request.seed, request.repeat] if isinstance(request, GenerateRequest) else []
        return [*own, self._sample_index]

    async def _ask(self, path: str, payload: dict[str, Any], prompt_tokens: int | None) -> dict[str, Any]:
        if self._replay_cache is None:
            return await self._send(path, payload, prompt_tokens)
        key = json.dumps([path, payload, self._sample_index], sort_keys=True)
        if key not in self._replay_cache:
            response = await self._send(path, payload, prompt_tokens)
            if payload.get("logprobs", 0) > _LONGEST_CACHED_LIST:
                return response
            self._replay_cache[key] = response
        return self._replay_cache[key]

    async def _send(self, path: str, payload: dict[str, Any], prompt_tokens: int | None) -> dict[str, Any]:
        always = DIALECTS[self.found.family].always if self.found.family else {}
        body = {"model": self.options.model, **self.options.body, **always, **payload}
        factor = 1.0 if self._batched is None else PRICE

        async def ask() -> dict[str, Any]:
            if self._batched is not None:
                return await self._batched.post(path, body, draw=self._draw)
            return await self.client.post(path, body)

        response, counted = await self.usage.paid(payload, ask, factor)
        try:
            self.tracker.check(response)
            if self._request is not None:
                self.tracker.check_list(payload, response, self._request)
        except BackendError:
            if self._batched is None:  # its connection may be out of step: the next answer on it would be another's
                await self.client.close()
            raise
        if counted is not None and len(self._counted) < _MOST_COUNTED:
            self._counted.append(_counted(payload, counted, response))
        if prompt_tokens is not None and counted not in (None, prompt_tokens):
            raise inconsistent(f"the server counts {counted} prompt tokens where {prompt_tokens} were sent")
        return response


class _Counted(NamedTuple):
    """The pieces of a request's prompt (0 for token ids), the server's tokens, and those of each answer.

    ``answer`` is None where the request asked for few tokens, as a list does.
    """

    is_chat: bool
    pieces: int
    tokens: int
    answer: float | None


def _counted(payload: Mapping[str, Any], tokens: int, response: Mapping[str, Any]) -> _Counted:
    limit = payload.get("max_tokens", payload.get("max_completion_tokens", 0))
    written = generated_tokens(response.get("usage")) if limit >= _FEWEST_TOKENS else None
    answer = None if written is None else written / payload.get("n", 1)
    if "messages" in payload:
        return _Counted(True, sum(len(PIECE.findall(turn["content"])) for turn in payload["messages"]), tokens, answer)
    prompt = payload.get("prompt")
    return _Counted(False, len(PIECE.findall(prompt)) if isinstance(prompt, str) else 0, tokens, answer)


def single_choice(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """The single choice that was requested. Raises `BackendError` if there is none, or more."""
    choices = response.get("choices")
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
        raise BackendError("malformed", "an answer without choices", retryable=True)
    if len(choices) != 1:
        raise inconsistent(f"{len(choices)} choices where one was requested", retryable=True)
    choice = choices[0]
    if not isinstance(choice, Mapping):
        raise BackendError("malformed", "a choice that is not an object", retryable=True)
    if choice.get("index", 0) != 0:
        raise inconsistent(f"the choice has index {choice.get('index')!r} instead of 0", retryable=True)
    return choice


def meaning_of(reason: Any) -> Literal["stop", "length"] | None:
    """What a finish reason means, as servers and gateways name it; None if unknown."""
    return FINISH_REASONS.get(str(reason).lower())


class FilteredAnswerError(BackendError):
    """The server's content filter stopped the answer: what the model would have said is unknown."""

    def __init__(self) -> None:
        super().__init__("bad_request", "the server's content filter stopped the answer")


def check_finished(reason: Any) -> None:
    """Raise `BackendError` if the server, not the model, ended the answer."""
    if reason == "content_filter":
        raise FilteredAnswerError
    if reason is not None and meaning_of(reason) is None:
        raise BackendError("malformed", f"unknown finish reason {str(reason)[:40]!r}")

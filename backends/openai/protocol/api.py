"""The endpoints of an OpenAI-style server, one method each.

Every response passes the checks that apply to any server: the same model as before, a response not
seen before, consistent token counts, a single choice.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from backends.base import GenerateRequest, Message, Request, Sampling
from backends.errors import LONGEST_ASKED_PAUSE, BackendError
from backends.http.client import HttpClient
from backends.http.errors import UnsentError, inconsistent
from backends.http.usage import Usage
from backends.openai.batches import BatchedClient
from backends.openai.capabilities import ServerCapabilities
from backends.openai.protocol.parameters import (
    LimitName,
    Parameters,
    manner,
    refuses_a_parameter,
    sampling_options,
    turns_of,
)
from backends.openai.protocol.request_extras import RequestExtras
from backends.openai.protocol.responses_api import ONLY_HERE, chat_response, responses_request
from backends.openai.repeated_lists import ListTracker
from backends.openai.response_ids import ResponseIdTracker
from backends.reading.reasoning import UnfinishedThoughtError

#: The finish reasons of various servers, in OpenAI's terms.
_FINISH_REASONS: Mapping[str, Literal["stop", "length"]] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
}
_NEW_LIMIT: LimitName = "max_completion_tokens"
_LONGEST_CACHED_LIST = 2000
#: A wait for which nobody waits: the request fails, and may succeed in a later run.
_NOT_IN_THIS_RUN = 2 * LONGEST_ASKED_PAUSE
#: After these errors the server may have done the work and charged for it.
_MAY_BE_CHARGED = ("timeout", "connection", "malformed", "inconsistent")


class ServerApi:
    """One model of one server.

    Attributes
    ----------
    temperature : float
        Sent with requests for lists: 0, or 1 (neutral) if the server's lists depend on it. Lists that come with a draw
        are requested at 1.
    draws_apart : bool
        Whether a drawn token is known never to displace a likelier one from the list.
    on_draw : callable
        Receives each token drawn at temperature 1 and the list (`TopLogprobs`) it came with, or None for an echo.
    echoed_prompts : dict of str to bytes, optional
        Digests of the tokens of prompts that were echoed, which need not be echoed again.
    always_sent : dict
        Fields of every request.
    parameters : Parameters
        How chat requests are written.
    extras : RequestExtras
        What the user adds to every request.
    response_ids : ResponseIdTracker
    lists : ListTracker
    """

    def __init__(self, client: HttpClient, model: str, usage: Usage, extras: RequestExtras | None = None) -> None:
        self.client, self.model, self.usage = client, model, usage
        self.extras = extras or RequestExtras()
        self.temperature = 0.0
        self.on_draw: Callable[[str, Any], None] = lambda drawn, top: None
        self.draws_apart = False
        self.echoed_prompts: dict[str, bytes] | None = None
        self._draw_options: dict[str, Any] | None = None
        self._seeded = False
        self.always_sent: dict[str, Any] = {}
        self.response_ids = ResponseIdTracker()
        self.lists = ListTracker()
        self.parameters = Parameters(extra_tokens=self.extras.thinking_budget)
        self._replay_cache: dict[str, dict[str, Any]] | None = None
        self._request: Request | None = None
        self._sample_index = 0
        self._batched: BatchedClient | None = None

    def configure(self, capabilities: ServerCapabilities) -> None:
        """From now on, send requests as these capabilities require, and expect the model that they name."""
        self.temperature, self.always_sent = capabilities.temperature, capabilities.always_sent
        self.parameters.refused, self.parameters.limit = capabilities.refused, capabilities.limit_name
        self.parameters.responses = capabilities.responses
        extras = self.extras
        self.parameters.extra_tokens = extras.extra_tokens if capabilities.reasons else extras.thinking_budget
        self.draw_with_lists(capabilities)
        self.response_ids.model = capabilities.answered_model
        self.response_ids.provider = capabilities.answered_provider
        self.response_ids.unique = capabilities.unique_response_ids
        self.response_ids.server = self.client.base_url

    def draw_with_lists(self, capabilities: ServerCapabilities) -> None:
        """Draw the answer that comes with each list at temperature 1, where that leaves the list as it is."""
        request = GenerateRequest("", Sampling(temperature=1.0, max_tokens=1))
        self._seeded, self.draws_apart = capabilities.seed_works, capabilities.draws_apart
        self._draw_options = sampling_options(request, capabilities.family) if capabilities.draws_with_lists else None

    @property
    def draws_with_lists(self) -> bool:
        """Whether each list comes with a draw."""
        return self._draw_options is not None

    def list_options(self) -> dict[str, Any]:
        """How the token is drawn that comes with a list; some servers draw alike each time without a seed."""
        if self._draw_options is None:
            return {"max_tokens": 1, "temperature": self.temperature}
        return {**self._draw_options, **({"seed": random.getrandbits(31)} if self._seeded else {})}

    async def completion(self, prompt: str | Sequence[int], **options: Any) -> dict[str, Any]:
        """POST /completions."""
        sent = prompt if isinstance(prompt, str) else list(prompt)
        prompt_tokens = None if isinstance(prompt, str) else len(prompt)
        return await self._ask("completions", {"prompt": sent, **options}, prompt_tokens)

    async def chosen_scores(
        self, query: Sequence[int], items: Sequence[Sequence[int]], labels: Sequence[int]
    ) -> dict[str, Any]:
        """POST /score (SGLang): the probability of each label after the query and each item, all as token ids."""
        body = {"query": list(query), "items": [list(item) for item in items], "label_token_ids": list(labels)}
        return await self._ask("score", {**body, "apply_softmax": False, "item_first": False}, None)

    async def chat(self, messages: Sequence[Message], **options: Any) -> dict[str, Any]:
        """POST /chat/completions, or /responses where that is the model's only endpoint."""
        payload = {"messages": turns_of(messages), **options}
        sent, by_responses = self.parameters.adapted(payload), self.parameters.responses
        try:
            return await self._ask("chat/completions", sent, None)
        except BackendError as error:
            self._adapt_to(error)
            again = self.parameters.adapted(payload)
            if again == sent and self.parameters.responses == by_responses:
                raise  # else this refusal has told how to ask, or that of a request beside this one
            return await self._ask("chat/completions", again, None)

    def _adapt_to(self, refusal: BackendError) -> None:
        """Note how the model is to be asked instead, if a refusal says so; later chats are sent that way."""
        parameters = self.parameters
        if refusal.kind not in ("bad_request", "unsupported", "not_found"):
            return
        if ONLY_HERE.search(refusal.message):
            parameters.responses = True
        # OpenAI's newer models accept only this name for the limit, and say so.
        elif refusal.kind != "not_found" and _NEW_LIMIT in refusal.message:
            parameters.limit = _NEW_LIMIT

    async def experiment(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Send any request. Its cost is recorded; the response is not checked."""
        sent = self.parameters.adapted(payload) if path == "chat/completions" else payload
        return await self._send(path, sent, None, checked=False)

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
        # A list is asked with another seed each time; draws that differ have another index.
        asked = {name: value for name, value in payload.items() if name != "seed"}
        key = json.dumps([path, asked, self._sample_index], sort_keys=True)
        if key not in self._replay_cache:
            response = await self._send(path, payload, prompt_tokens)
            if payload.get("logprobs", 0) > _LONGEST_CACHED_LIST:
                return response  # too large to keep (megabytes); requested again after a failure
            self._replay_cache[key] = response
        return self._replay_cache[key]

    async def _send(
        self, path: str, payload: dict[str, Any], prompt_tokens: int | None, *, checked: bool = True
    ) -> dict[str, Any]:
        body = {"model": self.model, **self.extras.body, **self.always_sent, **payload}
        read: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
        if path == "chat/completions" and self.parameters.responses:
            path, body, read = "responses", responses_request(body), chat_response
        batched = self._batched
        factor = batched.price_factor(path, body, self._draw) if batched is not None else 1.0
        most = {"max_tokens": body["max_output_tokens"]} if path == "responses" and "max_output_tokens" in body else {}
        reserved = self.usage.reserve({**payload, **most}, factor)
        response: dict[str, Any] | None = None
        charged = True
        try:
            sent = time.monotonic()

            def check(answered: Mapping[str, Any]) -> None:
                self._check(payload, sent, read(answered))

            def again() -> None:
                self.usage.reserve_again(reserved)

            if batched is not None:
                response = read(await batched.post(path, body, accept=check, draw=self._draw))
            else:
                accept = check if checked else lambda _: None
                response = read(await self.client.post(path, body, accept=accept, again=again))
        except BackendError as error:
            # A thought that used up the limit is charged, although its answer is an error.
            thought = isinstance(error, UnfinishedThoughtError)
            charged = thought or (error.kind in _MAY_BE_CHARGED and not isinstance(error, UnsentError))
            if self._request is not None and self._was_taken(error, path, body):
                self.parameters.outdated = True
                raise _refused_since(error) from None
            raise
        finally:
            counted = self.usage.settle(reserved, response, charged=charged, factor=factor)
        self.parameters.taken.add(manner(path, body))
        if prompt_tokens is not None and counted not in (None, prompt_tokens):
            raise inconsistent(f"the server counts {counted} prompt tokens where {prompt_tokens} were sent")
        return response

    def _was_taken(self, refusal: BackendError, path: str, body: Mapping[str, Any]) -> bool:
        """Whether a refusal names a parameter, of a request whose like was answered with the same parameters."""
        if refusal.kind not in ("bad_request", "unsupported") or not refuses_a_parameter(refusal.message, body):
            return False
        return manner(path, body) in self.parameters.taken

    def _check(self, payload: Mapping[str, Any], sent: float, response: Mapping[str, Any]) -> None:
        self.response_ids.check(response, request=self._request, sent=sent, server=self.client.base_url)
        if self._request is not None:
            self.lists.check(payload, response, self._request, sent)


def _refused_since(refusal: BackendError) -> BackendError:
    """The error where a server refuses in mid-run what it took: asked again in a later run, which tests it anew."""
    message = f"from some time on it refuses what it took before: {refusal.message}"
    hint = "Run it again: what the server accepts is then tested anew"
    return BackendError("server", message, retryable=True, retry_after=_NOT_IN_THIS_RUN, hint=hint)


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
    """What a finish reason means, as servers and gateways name it (Gemini's and Anthropic's too); None if unknown."""
    return _FINISH_REASONS.get(str(reason).lower())


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

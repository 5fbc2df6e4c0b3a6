"""The endpoints of an OpenAI-style server, one method each.

Every response passes the checks that apply to any server: the same model as before, a response not
seen before, consistent token counts, a single choice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backends.base import GenerateRequest, Message, Request
from backends.errors import BackendError
from backends.http.client import HttpClient
from backends.http.errors import inconsistent
from backends.http.usage import Usage
from backends.openai.batches import PRICE, BatchedClient
from backends.openai.capabilities import ServerCapabilities
from backends.openai.options import OpenAIOptions
from backends.openai.protocol.parameters import adapted, turns_of
from backends.openai.quirks import DIALECTS, FINISH_REASONS, NEW_LIMIT, ONLY_RESPONSES
from backends.openai.trackers import ResponseTracker

#: A list longer than this is too large to keep (megabytes).
_LONGEST_CACHED_LIST = 2000
_MOST_COUNTED = 200


@dataclass
class ServerApi:
    """One model of one server. Views of it, by `dataclasses.replace`, share what was found and counted.

    Attributes
    ----------
    found : ServerCapabilities
        How requests are written: filled in by the look, and by refusals that say how to ask.
    tracker : ResponseTracker
    echoed_prompts : dict of str to int
        Hashes of the tokens of prompts that were echoed, which need not be echoed again.
    counted : list
        The bodies of some requests, and how the server counted their tokens.
    request : Request, optional
        What is answered by this view.
    replies : dict, optional
        Of that request: replies that it holds are reused, new ones are added to it. When one of the calls of a
        request fails, the others are not paid for again.
    draw : int
        Equal requests of views with other numbers are other draws.
    batches : BatchedClient, optional
        Sends the requests, each of which waits for its batch.
    """

    client: HttpClient
    options: OpenAIOptions
    usage: Usage
    found: ServerCapabilities = field(default_factory=ServerCapabilities)
    tracker: ResponseTracker = field(default_factory=ResponseTracker)
    echoed_prompts: dict[str, int] = field(default_factory=dict)
    counted: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=list)
    request: Request | None = None
    replies: dict[str, dict[str, Any]] | None = None
    draw: int = 0
    batches: BatchedClient | None = None

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
            if ONLY_RESPONSES.search(error.message):
                hint = "Use ResponsesBackend in place of OpenAIBackend"
                raise BackendError("unsupported", error.message, hint=hint) from error
            if error.kind in ("bad_request", "unsupported") and NEW_LIMIT in error.message:
                self.found.limit_name = NEW_LIMIT
            again = self.adapted(payload)
            if again == sent:
                raise  # else this refusal has told how to ask, or that of a request beside this one
            return await self._ask("chat/completions", again, None)

    async def rendered_chat(self, messages: Sequence[Message]) -> str:
        """The text that llama.cpp's server renders for a chat. Raises `BackendError` on other servers."""
        prompt = (await self.client.post("/apply-template", {"messages": turns_of(messages)})).get("prompt")
        if not isinstance(prompt, str):
            raise BackendError("unsupported", "the server does not show how it renders a chat")
        return prompt

    async def _ask(self, path: str, payload: dict[str, Any], prompt_tokens: int | None) -> dict[str, Any]:
        key, replies = json.dumps([path, payload, self.draw], sort_keys=True), self.replies
        if replies is not None and key in replies:
            return replies[key]
        response = await self._send(path, payload, prompt_tokens)
        if replies is not None and payload.get("logprobs", 0) <= _LONGEST_CACHED_LIST:
            replies[key] = response
        return response

    async def _send(self, path: str, payload: dict[str, Any], prompt_tokens: int | None) -> dict[str, Any]:
        always = DIALECTS[self.found.family].always if self.found.family else {}
        body = {"model": self.options.model, **self.options.body, **always, **payload}
        request, batches = self.request, self.batches
        draw = (request.seed, request.repeat) if isinstance(request, GenerateRequest) else ()

        async def ask() -> dict[str, Any]:
            if batches is not None:
                return await batches.post(path, body, draw=[*draw, self.draw])
            return await self.client.post(path, body)

        response, counted = await self.usage.paid(payload, ask, 1.0 if batches is None else PRICE)
        try:
            self.tracker.check(response)
            if request is not None:
                self.tracker.check_list(payload, response, request)
        except BackendError:
            if batches is None:  # its connection may be out of step: the next answer on it would be another's
                await self.client.close()
            raise
        if counted is not None and len(self.counted) < _MOST_COUNTED:
            self.counted.append((payload, response["usage"]))
        if prompt_tokens is not None and counted not in (None, prompt_tokens):
            raise inconsistent(f"the server counts {counted} prompt tokens where {prompt_tokens} were sent")
        return response


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

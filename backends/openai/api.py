"""Requests to an OpenAI-style server in the form that its model accepts, and the checks that each response passes.

The same model and provider as before, a response and a list not seen before, consistent token counts, a single choice.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backends.base import GenerateRequest, Message, Request
from backends.errors import BackendError
from backends.http.client import HttpClient
from backends.http.errors import inconsistent
from backends.http.usage import Usage, counted_prompt
from backends.openai.batches import PRICE, BatchedClient
from backends.openai.capabilities import ZERO_TEMPERATURE, ServerCapabilities
from backends.openai.options import OpenAIOptions
from backends.openai.quirks import DIALECTS, FINISH_REASONS, NEW_LIMIT, ONLY_RESPONSES

#: A list longer than this is too large to keep (megabytes).
_LONGEST_CACHED_LIST = 2000
_MOST_COUNTED, _TRACKED = 200, 50_000
#: Entries of a list that are compared, and decimal digits beyond which two lists do not agree by chance: of values
#: neither near certainty, where few are left, nor on a grid of sixteenths (16-bit logits).
_COMPARED_ENTRIES, _MIN_DIGITS = 32, 12


class ModelChangedError(BackendError):
    """Another model answers under the same name: its responses are not the audited model's."""

    def __init__(self, message: str) -> None:
        super().__init__("inconsistent", message, hint="Audit the current model as a new one")


class OtherProviderError(BackendError):
    """A gateway passed a question to another provider of the model: other weights, perhaps, and another engine."""

    def __init__(self, provider: str, audited: str) -> None:
        pinned = f'extra_body={{"provider": {{"only": ["{audited}"], "allow_fallbacks": False}}}}'
        message = f"the answer is from provider {provider[:80]!r}, those before are from {audited!r}"
        super().__init__("inconsistent", message, retryable=True, hint=f"Pin one, as OpenRouter allows by {pinned}")


class ResponseTracker:
    """The names, ids and lists of the responses of one server.

    A model may give two prompts the same likeliest tokens, but never the same numbers to the last digit: a list that
    comes a second time for another prompt is wrong for one of the two (a cache, or an answer that was swapped).
    """

    def __init__(self) -> None:
        #: Their names in the responses (a gateway names the provider). Once set, another name is refused.
        self.model: str | None = None
        self.provider: str | None = None
        #: Whether the server gives each response its own id: the same id with the same content is then a repetition.
        self.unique = False
        #: Requests that received a list which another prompt received too.
        self.ambiguous: list[Request] = []
        self._ids: dict[tuple[str, int], None] = {}  # with their content, since Ollama has only 999 ids
        self._lists: dict[int, tuple[int, Request]] = {}  # list → prompt, and who received it

    @property
    def distinct(self) -> int:
        """How many different ids were seen."""
        return len({response_id for response_id, _ in self._ids})

    def check(self, response: Mapping[str, Any]) -> None:
        """Raise ``inconsistent`` for the response of another model or provider, and for one that was given before."""
        model, provider, response_id = (response.get(name) for name in ("model", "provider", "id"))
        if isinstance(model, str):
            self.model = self.model or model
            if model != self.model:
                message = f"the answer is from model {model[:80]!r}, but the audited one is {self.model[:80]!r}"
                raise ModelChangedError(message)
        if isinstance(provider, str) and provider:
            self.provider = self.provider or provider[:80]
            if provider[:80] != self.provider:
                raise OtherProviderError(provider, self.provider)
        if isinstance(response_id, str) and response_id:
            key = response_id, hash(json.dumps([response.get("created"), response.get("choices")]))
            if key in self._ids and self.unique:
                raise inconsistent("an answer that was given before, under the same id", retryable=True)
            _remember(self._ids, key, None)

    def check_list(self, payload: Mapping[str, Any], response: Mapping[str, Any], request: Request) -> None:
        """Raise ``inconsistent`` for a list that another prompt received; both requests are then in doubt."""
        values = None if "echo" in payload or "prompt_logprobs" in payload else _listed(response)
        telling = [repr(value) for _, value in values or () if value < -1e-4 and not (16 * value).is_integer()]
        if values is None or sum(min(len(value.partition(".")[2]) - 1, 6) for value in telling) < _MIN_DIGITS:
            return
        prompt = _identity(payload)
        owner, first = self._lists.get(hash(values), (prompt, request))
        if owner != prompt:
            self.ambiguous.append(first)
            seen = "its list of next tokens is, bit for bit, that of another prompt"
            raise inconsistent(f"{seen}: switch off the cache in front of the model", retryable=True)
        _remember(self._lists, hash(values), (prompt, first))


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    known[key] = value
    if len(known) > _TRACKED:
        known.pop(next(iter(known)))


def _listed(response: Mapping[str, Any]) -> tuple[tuple[str, float], ...] | None:
    """The first entries of the first token's list; None if there is no readable one."""
    try:
        listed, _ = next(positions(response["choices"][0]["logprobs"]))
        entries = [(str(entry["token"]), float(entry["logprob"])) for entry in listed]
    except (AttributeError, LookupError, StopIteration, TypeError, ValueError):
        return None
    # Sorted, because the drawn token may come first, and differs between draws of the same list.
    return tuple(sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:_COMPARED_ENTRIES])


def positions(logprobs: Mapping[str, Any]) -> Iterator[tuple[Sequence[Any], Mapping[str, Any]]]:
    """The entries of each drawn token's list, and the token's own, all as chats and llama.cpp have them.

    ``/completions`` of OpenAI, vLLM and llama-cpp-python has ``top_logprobs: [{text: logprob}]``; the others have
    ``content: [{token, bytes?, id?, logprob, top_logprobs: [...]}]``. Raises what Python does where there is neither.
    """
    if logprobs.get("content"):
        yield from ((one["top_logprobs"], one) for one in logprobs["content"])
        return
    names = ("top_logprobs", "tokens", "token_logprobs")
    for top, token, value in itertools.zip_longest(*(logprobs.get(name) or () for name in names)):
        yield [{"token": text, "logprob": of} for text, of in top.items()], {"token": token, "logprob": value}


def _identity(payload: Mapping[str, Any]) -> int:
    """Identifies a prompt up to white space, which a template may drop."""
    prompt = payload.get("prompt", payload.get("messages"))
    turns = prompt if isinstance(prompt, list) else [prompt]
    parts = (part for turn in turns for part in (turn.values() if isinstance(turn, Mapping) else (turn,)))
    return hash(tuple(" ".join(str(part).split()) for part in parts))


@dataclass
class ServerApi:
    """One model of one server. Views of it, by `dataclasses.replace`, share what was found and counted."""

    client: HttpClient
    options: OpenAIOptions
    usage: Usage
    #: How requests are written: filled in by the look, and by refusals that say how to ask.
    found: ServerCapabilities = field(default_factory=ServerCapabilities)
    tracker: ResponseTracker = field(default_factory=ResponseTracker)
    #: Hashes of the tokens of prompts that were echoed, which need not be echoed again.
    echoed_prompts: dict[str, int] = field(default_factory=dict)
    #: The bodies of some requests, and how the server counted their tokens.
    counted: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=list)
    #: What is answered by this view.
    request: Request | None = None
    #: Of that request: replies that it holds are reused, new ones are added to it. When one of the calls of a request
    #: fails, the others are not paid for again.
    replies: dict[str, dict[str, Any]] | None = None
    #: Equal requests of views with other numbers are other draws.
    draw: int = 0
    #: Sends the requests, each of which waits for its batch.
    batches: BatchedClient | None = None

    def configure(self, found: ServerCapabilities) -> None:
        """From now on, send requests as these capabilities require, and expect the model that they name."""
        self.found, tracker = found, self.tracker
        tracker.model, tracker.provider = found.answered_model, found.answered_provider
        tracker.unique = found.unique_response_ids

    async def completion(self, prompt: str | Sequence[int], **options: Any) -> dict[str, Any]:
        """POST /completions."""
        sent = prompt if isinstance(prompt, str) else list(prompt)
        if "max_tokens" in options:
            options["max_tokens"] = max(options["max_tokens"], self.found.min_tokens)
        response = await self._ask("completions", {"prompt": sent, **options})
        counted = counted_prompt(response)
        if isinstance(sent, list) and counted not in (None, len(sent)):
            raise inconsistent(f"the server counts {counted} prompt tokens where {len(sent)} were sent")
        return response

    async def chat(self, messages: Sequence[Message], **options: Any) -> dict[str, Any]:
        """POST /chat/completions."""
        payload = {"messages": turns_of(messages), **options}
        sent = self._adapted(payload)
        try:
            return await self._ask("chat/completions", sent)
        except BackendError as error:
            if ONLY_RESPONSES.search(error.message):
                hint = "Use ResponsesBackend in place of OpenAIBackend"
                raise BackendError("unsupported", error.message, hint=hint) from error
            if error.kind in ("bad_request", "unsupported") and NEW_LIMIT in error.message:
                self.found.limit_name = NEW_LIMIT
            again = self._adapted(payload)
            if again == sent:
                raise  # else this refusal has told how to ask, or that of a request beside this one
            return await self._ask("chat/completions", again)

    async def rendered_chat(self, messages: Sequence[Message]) -> str:
        """The text that llama.cpp's server renders for a chat. Raises `BackendError` on other servers."""
        prompt = (await self.client.post("/apply-template", {"messages": turns_of(messages)})).get("prompt")
        if not isinstance(prompt, str):
            raise BackendError("unsupported", "the server does not show how it renders a chat")
        return prompt

    def _adapted(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of a chat request in the form that the model accepts.

        OpenAI's o and gpt-5 series call the token limit ``max_completion_tokens`` and accept no temperature but 1;
        Claude from Opus 4.7 on refuses any ``temperature``; others accept no ``stop``, or no system turn.
        """
        found, body = self.found, dict[str, Any]()
        extra = self.options.extra_tokens if found.reasons else self.options.thinking_budget
        for name, value in payload.items():
            if name == "max_tokens":
                body[found.limit_name] = max(value + extra, found.min_tokens)
            elif name == "messages" and "system" in found.refused:
                body[name] = without_system(value)
            elif name == "temperature" and not value and ZERO_TEMPERATURE in found.refused:
                continue
            elif name not in found.refused:
                body[name] = value
        return body

    async def _ask(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        key, replies = json.dumps([path, payload, self.draw], sort_keys=True), self.replies
        if replies is not None and key in replies:
            return replies[key]
        response = await self._send(path, payload)
        if replies is not None and payload.get("logprobs", 0) <= _LONGEST_CACHED_LIST:
            replies[key] = response
        return response

    async def _send(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        always = DIALECTS[self.found.family].always if self.found.family else {}
        body = {"model": self.options.model, **self.options.body, **always, **payload}
        request, batches = self.request, self.batches
        draw = (request.seed, request.repeat) if isinstance(request, GenerateRequest) else ()

        async def ask() -> dict[str, Any]:
            if batches is not None:
                return await batches.post(path, body, draw=[*draw, self.draw])
            return await self.client.post(path, body)

        response = await self.usage.paid(payload, ask, 1.0 if batches is None else PRICE)
        try:
            self.tracker.check(response)
            if request is not None:
                self.tracker.check_list(payload, response, request)
        except BackendError:
            if batches is None:  # its connection may be out of step: the next answer on it would be another's
                await self.client.close()
            raise
        if counted_prompt(response) is not None and len(self.counted) < _MOST_COUNTED:
            self.counted.append((payload, response["usage"]))
        return response


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

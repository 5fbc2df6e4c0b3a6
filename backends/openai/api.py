"""The questions that an OpenAI-style server is asked, one method each.

Every answer passes the checks that hold for any server: one choice, the same model as before,
an answer that was not given already, token counts that add up.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from backends.base import Message, Request
from backends.errors import BackendError
from backends.openai.client import HttpClient
from backends.openai.scoring.top_logprobs import NothingDrawnError, TopLogprobs, inconsistent, read_listing
from backends.openai.usage import Usage

_NEW_LIMIT = "max_completion_tokens"
_REMEMBERED_ANSWERS = 20_000
_LONGEST_KEPT_LIST = 2000
_KEPT_ENDS = 8
_HOT, _REDRAWS = 2.0, 9
#: After these the server may have done the work and put it on the bill.
_PERHAPS_CHARGED = ("timeout", "connection", "malformed", "inconsistent")


class ModelChangedError(BackendError):
    """Another model answers under the same name: what it says is not the audited model's."""

    def __init__(self, message: str) -> None:
        super().__init__("inconsistent", message, hint="Audit the model that is there now as a new one")


class ResponseIdTracker:
    """What answers say of themselves, kept to notice another model and a repeated answer.

    Attributes
    ----------
    model : str or None
        The model's name in the answers. Once set, another name is refused.
    numbered : bool
        Whether the server numbers its answers: the same number with the same words is then a repeated answer.
    doubtful : list of Request
        Requests that took an answer under a number which came again for a question that was already
        under way then: which of the two the answer belongs to, nobody knows.
    """

    def __init__(self) -> None:
        self.model: str | None = None
        self.numbered = False
        self.doubtful: list[Request] = []
        # Who took it, and when. With what it said, since Ollama draws its numbers from 999 and soon repeats one.
        self._numbers: dict[tuple[str, int], tuple[Request | None, float]] = {}

    @property
    def distinct(self) -> int:
        """How many different numbers were seen."""
        return len({name for name, _ in self._numbers})

    def check(self, answer: Mapping[str, Any], *, asking: Request | None = None, sent: float = math.inf) -> None:
        """Raise ``inconsistent`` for another model's answer, and for one given before.

        ``asking`` is whose question it answers, ``sent`` when that was asked (monotonic seconds).
        """
        model, name = answer.get("model"), answer.get("id")
        if isinstance(model, str) and self.model is None:
            self.model = model
        elif isinstance(model, str) and model != self.model:
            raise ModelChangedError(
                f"the answer is of model {model[:80]!r}, the one audited is {str(self.model)[:80]!r}"
            )
        if not isinstance(name, str) or not name:
            return
        number = name, hash(str(_ends([answer.get("created"), answer.get("choices")])))
        if self.numbered and number in self._numbers:
            first, taken = self._numbers[number]
            if first is not None and first is not asking and sent < taken:
                self.doubtful.append(first)
            raise inconsistent("an answer that was given before, under the same number", retryable=True)
        self._numbers[number] = asking, time.monotonic()
        if len(self._numbers) > _REMEMBERED_ANSWERS:
            self._numbers.pop(next(iter(self._numbers)))


def _ends(value: Any) -> Any:
    """What tells an answer from another, without the megabytes in the middle of its lists."""
    if isinstance(value, Mapping):
        value = [*value.items()]
    if isinstance(value, list | tuple):
        parts = value if len(value) <= 2 * _KEPT_ENDS else [*value[:_KEPT_ENDS], *value[-_KEPT_ENDS:]]
        return [_ends(part) for part in parts]
    return value


class ServerApi:
    """One model of one server.

    Attributes
    ----------
    temperature : float
        At which lists are asked for: 0, or 1 (no change) where the server's lists depend on it.
    always : dict
        Fields that go with every question.
    seen : ResponseIdTracker
        What the answers so far said of themselves.
    """

    def __init__(self, client: HttpClient, model: str, usage: Usage) -> None:
        self.client, self.model, self.usage = client, model, usage
        self.temperature = 0.0
        self.always: dict[str, Any] = {}
        self.seen = ResponseIdTracker()
        self._chat_limit = "max_tokens"
        self._answers: dict[str, dict[str, Any]] | None = None
        self._asking: Request | None = None
        self._draw = 0

    async def next_tokens(self, prompt: str | Sequence[int], k: int) -> TopLogprobs:
        """The k likeliest tokens after a text, or after token ids."""

        async def ask(**draw: Any) -> dict[str, Any]:
            return await self.completion(prompt, max_tokens=1, logprobs=k, **draw)

        return await self._listed(ask, k)

    async def next_chat_tokens(self, messages: Sequence[Message], k: int, **extra: Any) -> TopLogprobs:
        """The k likeliest tokens that go on with a chat."""

        async def ask(**draw: Any) -> dict[str, Any]:
            return await self.chat(messages, max_tokens=1, logprobs=True, top_logprobs=k, **draw, **extra)

        return await self._listed(ask, k)

    async def _listed(self, ask: Callable[..., Awaitable[dict[str, Any]]], k: int) -> TopLogprobs:
        """The list, which llama-cpp-python leaves out when it draws the end of the text: then drawn again.

        A hotter draw hits another token, and leaves lists as they are (the probe has seen to it).
        """
        try:
            return read_listing(await ask(temperature=self.temperature), k)
        except NothingDrawnError:
            hotter = _HOT if self.temperature == 0 else self.temperature
            for seed in range(1, _REDRAWS):
                with contextlib.suppress(NothingDrawnError):
                    return read_listing(await ask(temperature=hotter, seed=seed), k)
            raise

    async def completion(self, prompt: str | Sequence[int], **options: Any) -> dict[str, Any]:
        """POST /completions."""
        sent = prompt if isinstance(prompt, str) else list(prompt)
        prompt_tokens = None if isinstance(prompt, str) else len(prompt)
        return await self._ask("completions", {"prompt": sent, **options}, prompt_tokens)

    async def chat(self, messages: Sequence[Message], **options: Any) -> dict[str, Any]:
        """POST /chat/completions."""
        turns = [{"role": m.role, "content": m.content} for m in messages]
        try:
            return await self._ask("chat/completions", self._limited({"messages": turns, **options}), None)
        except BackendError as error:
            # OpenAI's newer models know the limit by this name only, and say so.
            if error.kind != "bad_request" or _NEW_LIMIT not in error.message or self._chat_limit == _NEW_LIMIT:
                raise
            self._chat_limit = _NEW_LIMIT
            return await self._ask("chat/completions", self._limited({"messages": turns, **options}), None)

    async def experiment(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Any question, counted and paid for; its answer is not held to be the one answer of this model."""
        sent = self._limited(payload) if path == "chat/completions" else payload
        return await self._ask_anew(path, sent, None, checked=False)

    def _limited(self, payload: dict[str, Any]) -> dict[str, Any]:
        return {self._chat_limit if name == "max_tokens" else name: value for name, value in payload.items()}

    def with_replay_cache(self, answers: dict[str, dict[str, Any]], asking: Request) -> ServerApi:
        """The same server on behalf of a request; what ``answers`` holds is not asked again, new ones are put there.

        A request of several questions that fails at one of them then pays for none twice.
        """
        view = copy.copy(self)
        view._answers, view._asking = answers, asking
        return view

    def numbered(self, draw: int) -> ServerApi:
        """The same server; equal questions with another number are other draws."""
        view = copy.copy(self)
        view._draw = draw
        return view

    async def _ask(self, path: str, payload: dict[str, Any], prompt_tokens: int | None) -> dict[str, Any]:
        if self._answers is None:
            return await self._ask_anew(path, payload, prompt_tokens)
        key = json.dumps([path, payload, self._draw], sort_keys=True)
        if key not in self._answers:
            answer = await self._ask_anew(path, payload, prompt_tokens)
            if payload.get("logprobs", 0) > _LONGEST_KEPT_LIST:
                return answer  # megabytes; asked again after a failure
            self._answers[key] = answer
        return self._answers[key]

    async def _ask_anew(
        self, path: str, payload: dict[str, Any], prompt_tokens: int | None, *, checked: bool = True
    ) -> dict[str, Any]:
        reserved = self.usage.reserve(payload)
        answer: dict[str, Any] | None = None
        charged = True
        try:
            body = {"model": self.model, **self.always, **payload}
            check = functools.partial(self.seen.check, asking=self._asking, sent=time.monotonic())
            answer = await self.client.post(path, body, accept=check if checked else lambda _: None)
        except BackendError as error:
            charged = error.kind in _PERHAPS_CHARGED
            raise
        finally:
            counted = self.usage.settle(reserved, answer, charged=charged)
        if prompt_tokens is not None and counted not in (None, prompt_tokens):
            raise inconsistent(f"the server counts {counted} prompt tokens of {prompt_tokens} sent")
        return answer


async def rendered_chat(client: HttpClient, messages: Sequence[Message]) -> str:
    """The text that llama.cpp's server makes of a chat; raises `BackendError` elsewhere."""
    turns = [{"role": m.role, "content": m.content} for m in messages]
    prompt = (await client.post("/apply-template", {"messages": turns})).get("prompt")
    if not isinstance(prompt, str):
        raise BackendError("unsupported", "the server does not show how it renders a chat")
    return prompt

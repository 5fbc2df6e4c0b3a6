"""A model behind an OpenAI-style server."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import platformdirs

from backends.base import (
    Answer,
    Capability,
    ChecksMade,
    ClassifyRequest,
    Description,
    GenerateRequest,
    OnResponse,
    Prompt,
    Request,
    RequestCost,
    Response,
    Scalar,
    ScoreRequest,
)
from backends.errors import BackendError, ConfigError
from backends.http.backend import HttpBackend
from backends.http.client import HttpClient
from backends.openai.api import ModelChangedError, ServerApi
from backends.openai.batches import MOST_LINES, PRICE, BatchedClient
from backends.openai.costs import ASSUMED, cost_of, highest_cost_of, tokens_of
from backends.openai.generation import generate
from backends.openai.look import MOST_DRAWN, MOST_REQUESTS, Look, RunChecks, look_at, same_model, thorough
from backends.openai.look.thorough import Experiment
from backends.openai.options import OpenAIOptions
from backends.openai.scoring import RemoteTokenizer, score
from backends.telling import tell

_MAX_UNFINISHED_REQUESTS = 256
_ANOTHER_MODEL = "another model answers under this name"
#: After these errors, the responses that came before are still valid.
_WITHOUT_RESPONSE = ("rate_limited", "timeout", "connection", "server", "quota")


class OpenAIBackend(HttpBackend):
    """A model behind ``/v1/completions`` and ``/v1/chat/completions``.

    A short look at the server finds which of its numbers can be used; draws on some of the run's own questions test
    them while it runs. What a server does not list is bounded.

    Parameters
    ----------
    base_url : str
        Up to and including the version: ``https://api.openai.com/v1``.
    **options
        The fields of `OpenAIOptions`: ``model`` (needed), ``api_key_env``, ``samples``, ``prices``…

    Attributes
    ----------
    usage : Usage
        Requests, tokens and cost so far, the look's included.
    api : ServerApi
    unverified_since : float or None
        If the run's checks found that its answers are not the audited model's: since when (seconds since the epoch).
    unverified_reason : str
        What was found.
    """

    #: The fingerprint's name for this kind of server.
    engine: ClassVar[str] = "openai"
    options_type: ClassVar[type[OpenAIOptions]] = OpenAIOptions

    def __init__(self, base_url: str | None = None, **options: Any) -> None:
        given = options if base_url is None else {"base_url": base_url, **options}
        self.options: OpenAIOptions = self.options_type.checked(**given)
        super().__init__(self.options)
        if self.options.batch and (self.options.urls or self.client_type is not HttpClient):
            problem = "batches are sent to one server, in the form of OpenAI's chats and completions"
            raise ConfigError("batch", True, problem, "Leave it out, or give base_url in place of urls")
        self.samples = self.options.samples
        self.unverified_since: float | None = None
        self.unverified_reason = _ANOTHER_MODEL
        self._batched: BatchedClient | None = None
        if self.options.batch:
            self._batched = BatchedClient(self.client, self._batch_folder)
            self.batch_size = MOST_LINES
        self.api = ServerApi(self.client, self.options, self.usage)
        self._look: Look | None = None
        self._looking = asyncio.Lock()
        self._looked_at = 0.0  # when this run began to trust a look
        self._tokenizer: RemoteTokenizer | None = None
        self._checks: RunChecks | None = None
        self._changed: ModelChangedError | None = None
        self._unfinished: dict[Request, dict[str, dict[str, Any]]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r}, model={self.model!r})"

    async def describe(self) -> Description:
        """Identity and capabilities, from a new look or from one of the last day."""
        found = await self.probe()
        if self._batched is not None:
            await self._batched.check()
        return self._described(found)

    def describe_unasked(self) -> Description:
        """As in `SupportsUnasked`: by the stored look, or by the options alone."""
        found = Look.stored(self._look_file)
        if found is not None:
            self._use(found)
            return self._described(found)
        notes = {"access": "nothing was asked: that it scores, generates and chats is assumed"}
        return Description({**self._named, "unasked": True}, frozenset(("score", "generate", "chat")), notes)

    @property
    def _named(self) -> dict[str, Scalar]:
        return {"backend": self.engine, "base_url": self.base_url, "model": self.model}

    def _described(self, look: Look) -> Description:
        found, absent = look.capabilities, look.capabilities.absent_forms
        if look.refusal:
            absent["score"] = look.refusal
        can: dict[Capability, bool] = {
            "score": any(found.routes),
            "generate": found.completions or found.chat,
            "chat": found.chat,
        }
        n, routes, statements = self.samples, found.named_routes, look.statements
        access = f"log-probabilities of {', '.join(routes)}" if routes else "texts alone"
        if is_drawn := "sampled" in found.routes:
            access = f"{n} drawn answers a question, counted"
            drawn = f"its probabilities are shares of {n} drawn answers a question: intervals hold that error too"
            statements = (*statements, drawn)
        fingerprint = {
            **self._named,
            "numbers": look.identity,
            **found.fingerprint(),
            "samples": n if is_drawn else None,
            **self.options.identity(reasons=found.reasons),
        }
        notes = {
            "server": found.family or "unknown",
            "list": f"{found.largest_k} next tokens",
            "access": access,
            "text generation": "as a user's turn of a chat" if found.chat and not found.completions else "as text",
        }
        return Description(
            fingerprint,
            frozenset(name for name, is_there in can.items() if is_there),
            notes,
            statements=statements,
            requests=look.requests,
            absent=absent,
        )

    async def probe(self, say: Callable[[str], None] = tell) -> Look:
        """What the server can do: a look of at most 20 requests, or a stored one of the last day.

        Raises `BackendError` if the server cannot be reached or refuses the key, or one of several servers serves
        another model than the first.
        """
        async with self._looking:
            if self._look is None:
                with self.client.only(self.base_url):
                    self._use(await look_at(self.api, self._look_file, samples=self.samples, say=say))
            assert self._look is not None
            if not self._looked_at:
                for url in self.client.urls[1:]:
                    with self.client.only(url):
                        is_same = await same_model(self.api, self._look)
                    if not is_same:
                        problem = f"{url} does not serve the model of {self.base_url}"
                        raise BackendError("inconsistent", problem, hint="Leave it out of urls, or audit it by itself")
                self._looked_at = time.time()
            return self._look

    async def experiments(self, say: Callable[[str], None] = tell) -> list[Experiment]:
        """Every experiment on the server's numbers: some hundred requests, minutes.

        Raises `BackendError` if the server cannot be reached or refuses the key.
        """
        return await thorough(self.api, await self.probe(say), say)

    def _use(self, look: Look) -> None:
        self._look, found = look, look.capabilities
        self.api.configure(found)
        if len(self.client.urls) > 1:
            self.api.tracker.unique = False  # two servers may give the same ids
        self._tokenizer = RemoteTokenizer(self.client, self.model, found.family) if found.family is not None else None
        self._checks = RunChecks(self.api, look, self.options.tokenizer)

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        return await self.run_streaming(batch, lambda *_: None)

    async def run_streaming(self, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """As in `SupportsStreaming`: one after the other, or concurrently if they wait for a batch."""

        async def answer(place: int, request: Request) -> Answer:
            found = await self._answer(request)
            on_response(place, found)
            return found

        if self._batched is None:
            return [await answer(place, request) for place, request in enumerate(batch)]
        return list(await asyncio.gather(*(answer(place, request) for place, request in enumerate(batch))))

    async def answer(self, request: Request) -> Response:
        if isinstance(request, ClassifyRequest):
            raise BackendError("unsupported", "an OpenAI-style server cannot classify texts")
        await self.probe()
        if self._changed is not None:
            raise BackendError("inconsistent", self._changed.message, hint=self._changed.hint)
        try:
            response = await self._response(request)
            if isinstance(request, ScoreRequest) and self.repeats_itself(request) and self._checks is not None:
                await self._checks.after(request, response)  # type: ignore[arg-type]
        except ModelChangedError as error:
            self._distrust(error)
            raise
        except BackendError as error:
            if error.kind not in _WITHOUT_RESPONSE:
                self._unfinished.pop(request, None)  # one of its responses is bad: all are requested again
            raise
        return response

    async def _response(self, request: ScoreRequest | GenerateRequest) -> Response:
        while len(self._unfinished) > _MAX_UNFINISHED_REQUESTS:
            self._unfinished.pop(next(iter(self._unfinished)))
        batches = None if self.repeats_itself(request) else self._batched
        replies = self._unfinished.setdefault(request, {})
        api = dataclasses.replace(self.api, request=request, replies=replies, batches=batches)
        response: Response
        if isinstance(request, GenerateRequest):
            response = await generate(api, request)
        else:
            response = await score(api, request, self._tokenizer)
        self._unfinished.pop(request, None)
        return response

    async def verify_identity(self) -> None:
        """Make the last of the run's checks. Sets `unverified_since` if its answers are not the audited model's."""
        if self._batched is not None:
            self._batched.forget_delivered()
        if self._checks is None or self._changed is not None:
            return
        try:
            await self._checks.at_the_end()
        except ModelChangedError as error:
            self._distrust(error)

    def _distrust(self, error: ModelChangedError) -> None:
        """No answer since the look is the audited model's, for the reason that the error gives."""
        if self._changed is None:
            self._changed, self.unverified_since = error, self._looked_at
            self.unverified_reason = f"{error.message} (at {self.base_url})"

    def checks_made(self) -> ChecksMade:
        """What the checks of this run compared."""
        return self._checks.made if self._checks is not None else ChecksMade()

    def drain_ambiguous(self) -> list[Request]:
        """Requests whose response may belong to another request, since the last call."""
        ambiguous, self.api.tracker.ambiguous = self.api.tracker.ambiguous, []
        return list(dict.fromkeys(ambiguous))

    def repeats_itself(self, request: Request) -> bool:
        """True for scores, unless they are counted from drawn answers."""
        return isinstance(request, ScoreRequest) and self.api.found.route_of(request.prompt) not in (None, "sampled")

    def scores_separately(self, request: Request) -> bool:
        """Whether continuations are scored by requests of their own, not all by one list."""
        route = self.api.found.route_of(request.prompt) if isinstance(request, ScoreRequest) else None
        return route == "echo" or (self._tokenizer is not None and route not in (None, "chat_first", "chat_prefill"))

    def checking_cost(self, questions: int, scored: int) -> RequestCost:
        """As in `SupportsCheckingRequests`: the draws on some questions; before a look, that too."""
        if self._look is None or self._checks is None:
            calls = MOST_REQUESTS * len(self.client.urls) + RunChecks.most_requests(questions)
            return RequestCost(calls, 0, calls * MOST_DRAWN)
        calls = RunChecks.most_requests(scored if self._look.lists else 0) + 2 * (len(self.client.urls) - 1)
        return RequestCost(calls, 0, calls * self._checks.drawn_tokens)

    def request_cost(self, request: Request) -> RequestCost:
        """The calls and tokens that ``request`` takes: as the look found, or at most, before there is one."""
        if self._look is None:
            return highest_cost_of(request, self.options)
        return cost_of(request, self._look.capabilities, self.options, self._tokenizer is not None)

    def cost_basis(self) -> str:
        """What the costs go by: a look, or assumptions."""
        return ASSUMED if self._look is None else "by what its server counted for other prompts"

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int] | None:
        """Tokens of each prompt at the rate of others that the server counted; None if it counts none."""
        return tokens_of(prompts, None if self._look is None else self._look.capabilities)

    def highest_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        most = super().highest_cost(prompt_tokens, completion_tokens)
        return most if most is None or self._batched is None else PRICE * most

    async def close(self) -> None:
        """Close the connections."""
        if self._batched is not None:
            await self._batched.close()
        await self.client.close()

    @property
    def _look_file(self) -> Path:
        folder = self.options.probe_folder or platformdirs.user_cache_path("bias-audit") / "looks"
        return Path(folder) / f"{self._identity()}.json"

    @property
    def _batch_folder(self) -> Path:
        folder = self.options.probe_folder or platformdirs.user_state_path("bias-audit")
        return Path(folder) / "batches" / self._identity()

    def _identity(self) -> str:
        """Distinguishes this server, model and options from others."""
        named = {"url": self.base_url, "model": self.model, "key": self.options.key.identity(), "samples": self.samples}
        known = {**named, "engine": self.engine, "extras": self.options.identity(reasons=True)}
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:24]

"""A model behind an OpenAI-style server."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, ClassVar

import httpx
from pydantic import AfterValidator, Field

from backends.base import (
    Answer,
    Backend,
    Capability,
    ClassifyRequest,
    Description,
    GenerateRequest,
    Prompt,
    Request,
    RequestCost,
    Response,
    ScoreRequest,
)
from backends.errors import BackendError, ConfigError
from backends.openai.api import ServerApi
from backends.openai.auth import NAME_NONE, ApiKey
from backends.openai.capabilities import ServerCapabilities
from backends.openai.client import HttpClient
from backends.openai.generation import generate
from backends.openai.probe import (
    VERSION,
    Canary,
    ProbeRecord,
    ProbeReport,
    ask_canary,
    ask_watched,
    coarse_identity,
    draws_still_vary,
    exact_identity,
    largest_move,
    largest_watched_move,
    probe,
    random_questions,
    tolerance,
    with_listed_words,
)
from backends.openai.probe.report import Watched
from backends.openai.response_ids import ModelChangedError
from backends.openai.retries import with_retries
from backends.openai.scoring import RemoteTokenizer, Routes, tokens_drawn
from backends.openai.usage import PriceTable, Usage
from backends.options import OnError, checked_options, refused_at

_MAX_UNFINISHED_REQUESTS = 256
_MAX_COUNTING_SECONDS = 10.0
#: After these, the responses that came before are still valid.
_WITHOUT_RESPONSE = ("rate_limited", "timeout", "connection", "server", "quota")


def _server_url(url: str) -> str:
    """A URL that requests can be sent to, without the slash at its end."""
    with contextlib.suppress(httpx.InvalidURL):
        parsed = httpx.URL(url)
        if parsed.userinfo or parsed.query or parsed.fragment:
            problem, hint = "it holds a password, query or fragment", "Give keys by api_key_env"
            raise refused_at((), _without_secrets(url), problem, hint)
        if parsed.scheme in ("http", "https") and parsed.host:
            return url.rstrip("/")
    raise refused_at((), _without_secrets(url), "not an http or https URL", "Give one like https://host/v1")


def _without_secrets(url: str) -> str:
    """A URL without what may be a password, a query or a fragment; of an unreadable one that has such, the scheme."""
    with contextlib.suppress(httpx.InvalidURL):
        parsed = httpx.URL(url)
        if parsed.host:
            return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))
    scheme = re.match(r"\w+://", url)
    return (scheme[0] if scheme else "") + "…" if re.search("[@?#]", url) else url


OptionalPath = Annotated[str | Path | None, OnError("not a text", "Write it in quotes")]
Count = Annotated[int, Field(ge=1)]


class OpenAIBackend(Backend):
    """A model behind ``/v1/completions`` and ``/v1/chat/completions``.

    Before the first question a probe tests empirically which numbers of this server are true; only
    routes that were proven are used. What a server does not list is bounded.

    Parameters
    ----------
    base_url : str
        Up to and including the version: ``https://api.openai.com/v1``.
    model : str
        Name of the model, as the server knows it.
    api_key_env : str or None
        Environment variable that holds the key. None, or "" as in a file, for a server that needs no key.
    key_file : str or Path, optional
        A file with the key instead, that only its owner can read (mode 0600).
    timeout : float
        Seconds for one whole exchange with the server.
    max_in_flight : int
        How many requests may be under way together.
    samples : int, optional
        Where a server gives no log-probabilities, draw this many answers and count them. It
        costs as many requests.
    prices : PriceTable, optional
        Prices per million tokens, or a mapping of ``prompt``, ``completion`` and perhaps ``cached``.
    max_cost : float, optional
        In the currency of ``prices``. A request that could pass it is not sent.
    canary_every : int
        After how many requests the canary is asked again, to notice another model.
    probe_folder : str or Path, optional
        Where the last probe of each server is kept. Default: the user's cache folder.

    Attributes
    ----------
    usage : Usage
        Requests, tokens and cost so far, the probe's included.
    unverified_since : float or None
        When another model was noticed under the same name: the time (seconds since the epoch)
        of the last canary that was right. Answers that came later may be of either model.
    """

    path_options: ClassVar[Mapping[str, Collection[str]]] = {"key_file": ()}

    @checked_options
    def __init__(
        self,
        base_url: Annotated[str, AfterValidator(_server_url)],
        *,
        model: Annotated[str, Field(min_length=1), OnError("not a text", "Name the model as the server knows it")],
        api_key_env: str | None = "OPENAI_API_KEY",
        key_file: OptionalPath = None,
        timeout: Annotated[
            float, Field(gt=0, allow_inf_nan=False), OnError("not a time limit", "Give seconds above 0")
        ] = 120.0,
        max_in_flight: Count = 8,
        samples: Count | None = None,
        prices: PriceTable | None = None,
        max_cost: Annotated[
            float | None, Field(gt=0, allow_inf_nan=False), OnError("not a limit to costs", "Give a number above 0")
        ] = None,
        canary_every: Count = 500,
        probe_folder: OptionalPath = None,
    ) -> None:
        self.base_url, self.model = base_url, model
        self.timeout, self.max_in_flight = timeout, max_in_flight
        self.samples, self.max_cost, self.canary_every = samples, max_cost, canary_every
        self._prices = prices
        self.usage = Usage(prices, max_cost)
        self.unverified_since: float | None = None
        self._probe_folder = Path(probe_folder) if probe_folder is not None else None
        self._key = ApiKey(api_key_env, key_file)
        # A request and a canary may be under way together.
        self._client = HttpClient(self.base_url, self._key, timeout=timeout, max_connections=max_in_flight + 1)
        self._api = ServerApi(self._client, model, self.usage)
        self._report: ProbeReport | None = None
        self._tokenizer: RemoteTokenizer | None = None
        self._probing = asyncio.Lock()
        self._since_canary = 0
        self._last_verified = 0.0
        self._changed: ModelChangedError | None = None
        self._unfinished: dict[Request, dict[str, dict[str, object]]] = {}

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.base_url!r}, model={self.model!r})"

    @property
    def endpoint(self) -> str:  # type: ignore[override]
        """Host and key identity: what a server's limits are counted by."""
        return f"{httpx.URL(self.base_url).netloc.decode()} key {self._key.identity()}"

    def check(self) -> None:
        """Raise `ConfigError` for a key or limit that cannot work. Sends nothing."""
        if self.max_cost is not None and self._prices is None:
            raise ConfigError("max_cost", self.max_cost, "no prices are given", "Give prices too, per million tokens")
        url = httpx.URL(self.base_url)
        local = _is_this_machine(url.host)
        self._key.check(needed=not local)
        if url.scheme == "http" and not local and self._key.read():
            hint = f"Use https, or {NAME_NONE}"
            raise ConfigError("base_url", self.base_url, "a key would travel unencrypted", hint)

    async def describe(self) -> Description:
        """Identity and capabilities, after a probe, or after a check that the last one still holds."""
        report = await self.probe()
        found = report.capabilities
        capabilities: set[Capability] = set()
        if found.text_route or found.chat_route:
            capabilities.add("score")
        if found.completions or found.chat:
            capabilities.add("generate")
        if found.chat:
            capabilities.add("chat")
        notes = {
            "server": found.family or "unknown",
            "spread": f"{found.repeat_noise:.2g} nats",
            "list": f"{found.largest_k} next tokens, identified by {found.identity}",
            "text generation": "as a user's turn of a chat" if found.chat and not found.completions else "as text",
        }
        return Description(
            report.fingerprint(self.samples),
            frozenset(capabilities),
            notes,
            retired=report.retired_fields(),
            statements=report.statements,
            limits=report.limits,
            requests=report.requests,
        )

    async def probe(self, *, anew: bool = False) -> ProbeReport:
        """What the server can do and whether its numbers are true; ``anew`` ignores the record.

        Raises `BackendError` when the server cannot be reached, or refuses the key.
        """
        async with self._probing:
            if self._report is None or anew:
                self._report = await self._recorded_or_new_report(anew)
                self._last_verified, self._since_canary = time.time(), 0
            return self._report

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        """Answer each request, or say why not."""
        return [await self._answer(request) for request in batch]

    async def verify_identity(self) -> None:
        """Ask the canary a last time: sets `unverified_since` when the model is another one by now."""
        if self._report is None or self._changed is not None or self._since_canary == 0:
            return
        try:
            await self._verify_canary()
        except ModelChangedError as error:
            self._notice(error)

    def drain_ambiguous(self) -> list[Request]:
        """Requests whose response may belong to another request."""
        ambiguous = list(dict.fromkeys([*self._api.response_ids.ambiguous, *self._api.lists.ambiguous]))
        self._api.response_ids.ambiguous, self._api.lists.ambiguous = [], []
        return ambiguous

    def repeats_itself(self, request: Request) -> bool:
        """Scores, unless they are counted in drawn answers."""
        return isinstance(request, ScoreRequest) and self._route_of(request) not in (None, "sampled")

    def score_noise(self) -> tuple[float, float]:
        """As in `SupportsSecondAnswers`: what the probe found, and by how much a canary may move."""
        noise = self._report.capabilities.repeat_noise if self._report is not None else 0.0
        return noise, tolerance(noise)

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int] | None:
        """Tokens of texts by the server's tokenise endpoint; None without one, for chats, or when it fails."""
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        dialect = self._report.capabilities.family if self._report is not None else None
        if dialect is None or len(texts) < len(prompts):
            return None

        async def count() -> list[int]:
            # A client of its own: the caller may be on the event loop that the other one belongs to.
            client = HttpClient(self.base_url, self._key, timeout=_MAX_COUNTING_SECONDS, max_connections=1)
            try:
                async with asyncio.timeout(_MAX_COUNTING_SECONDS):
                    return await RemoteTokenizer(client, self.model, dialect).counts(texts)
            finally:
                await client.close()

        with ThreadPoolExecutor(max_workers=1) as worker:
            try:
                return worker.submit(asyncio.run, count()).result()
            except (BackendError, TimeoutError):
                return None

    def spent(self) -> float | None:
        return self.usage.cost

    def highest_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return None if self._prices is None else self._prices.cost(prompt_tokens, completion_tokens)

    def limit_cost(self, max_cost: float) -> None:
        if self._prices is not None:
            self.usage.limit(max_cost)

    def request_cost(self, request: Request) -> RequestCost:
        """As in `SupportsRequestCost`: continuations are scored one after the other, each with the prompt before it."""
        if not isinstance(request, ScoreRequest):
            return RequestCost.in_one_call(request)
        if self._route_of(request) == "sampled" and self.samples is not None:
            return RequestCost(self.samples, tokens_drawn(request.continuations))
        return RequestCost(len(request.continuations), 1)

    def _route_of(self, request: ScoreRequest) -> str | None:
        text_route, chat_route = self._report.capabilities.routes if self._report is not None else (None, None)
        return text_route if isinstance(request.prompt, str) else chat_route

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _answer(self, request: Request) -> Answer:
        if isinstance(request, ClassifyRequest):
            return BackendError("unsupported", "an OpenAI-style server classifies no texts")
        try:
            report = await self.probe()
            if self._changed is None and self._since_canary >= self.canary_every:
                await self._verify_canary()
            if self._changed is not None:
                raise self._changed
            response = await self._response(request, report.capabilities)
        except ModelChangedError as error:
            self._notice(error)
            return BackendError("inconsistent", error.message, hint=error.hint)
        except BackendError as error:
            if error.kind not in _WITHOUT_RESPONSE:
                self._unfinished.pop(request, None)  # one of its responses is bad: all are asked again
            return error
        self._since_canary += 1
        return response

    async def _response(self, request: ScoreRequest | GenerateRequest, capabilities: ServerCapabilities) -> Response:
        while len(self._unfinished) > _MAX_UNFINISHED_REQUESTS:
            self._unfinished.pop(next(iter(self._unfinished)))
        api = self._api.with_replay_cache(self._unfinished.setdefault(request, {}), request)
        response: Response
        if isinstance(request, GenerateRequest):
            response = await generate(api, capabilities, request)
        else:
            response = await Routes(api, capabilities, self._tokenizer, self.samples).score(request)
        self._unfinished.pop(request, None)
        return response

    def _routes(self, capabilities: ServerCapabilities) -> Routes:
        return Routes(self._api, capabilities, self._tokenizer, self.samples)

    async def _ask_canary(self, capabilities: ServerCapabilities) -> Canary:
        return await ask_canary(self._routes(capabilities), capabilities)

    async def _verify_canary(self) -> None:
        assert self._report is not None
        self._since_canary = 0
        capabilities = self._report.capabilities
        canary = await self._ask_canary(capabilities)
        watched = await ask_watched(self._routes(capabilities), self._report.watched)
        move = _largest_move(self._report, canary, watched)
        if move > tolerance(capabilities.repeat_noise):
            raise ModelChangedError(f"the canary moved by {move:.3g} nats, more than the server's noise explains")
        if not await draws_still_vary(self._routes(capabilities), capabilities):
            raise ModelChangedError("drawn answers are all the same: they are copies, or not drawn")
        self._last_verified = time.time()

    def _notice(self, error: ModelChangedError) -> None:
        if self._changed is None:
            self._changed, self.unverified_since = error, self._last_verified

    async def _recorded_or_new_report(self, anew: bool) -> ProbeReport:
        record = ProbeRecord(self._probe_folder, self.base_url, self.model, self._key.identity(), self.samples)
        last = await asyncio.to_thread(record.read)
        if last is not None and last.version == VERSION and not anew and await self._still_holds(last):
            return last
        report = await self._new_report(last)
        await asyncio.to_thread(record.write, report)
        return report

    async def _new_report(self, last: ProbeReport | None) -> ProbeReport:
        """Probe the server; an unchanged model keeps the identity of the probe before (``last``)."""
        self._api = ServerApi(self._client, self.model, self.usage)
        requests_before = self._client.requests
        session = await probe(self._api, samples=self.samples)
        self._tokenizer, capabilities = session.tokenizer, session.capabilities
        canary = await with_retries(self._ask_canary, capabilities)
        identity = coarse_identity(canary, capabilities.repeat_noise)
        if last is not None and len(last.canary) == len(canary) and last.canary_id:
            noise = max(capabilities.repeat_noise, last.capabilities.repeat_noise)
            is_same = largest_move(last.canary, canary) <= tolerance(noise)
            identity = last.canary_id if is_same else f"{identity} after another: {exact_identity(canary)}"
        watched = await self._watched(capabilities)
        requests = self._client.requests - requests_before
        return ProbeReport(
            self.base_url,
            self.model,
            capabilities,
            tuple(session.checks),
            canary,
            identity,
            requests,
            statements=tuple(session.statements),
            watched=watched,
            limits=tuple(session.unknowable()),
        )

    async def _watched(self, capabilities: ServerCapabilities) -> tuple[Watched, ...]:
        questions = await with_listed_words(self._api, capabilities, random_questions(capabilities))
        return await with_retries(ask_watched, self._routes(capabilities), questions)

    async def _still_holds(self, report: ProbeReport) -> bool:
        """Whether the server still gives the recorded canary by the recorded route."""
        capabilities = report.capabilities
        if not report.canary:
            return False
        self._api = ServerApi(self._client, self.model, self.usage)
        self._api.configure(capabilities)
        family = capabilities.family
        self._tokenizer = RemoteTokenizer(self._client, self.model, family) if family is not None else None
        try:
            canary = await with_retries(self._ask_canary, capabilities)
            watched = await with_retries(ask_watched, self._routes(capabilities), report.watched)
        except BackendError as error:
            if error.retryable or error.kind in ("auth", "quota"):
                raise
            return False
        return _largest_move(report, canary, watched) <= tolerance(capabilities.repeat_noise)


def _largest_move(report: ProbeReport, canary: Canary, watched: Sequence[Watched]) -> float:
    """How far the canary and the questions drawn for the probe have moved since, in nats."""
    return max(largest_move(report.canary, canary), largest_watched_move(report.watched, watched))


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")

"""A model behind an OpenAI-style server."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import httpx
import platformdirs
from pydantic import AfterValidator, Field

from backends.base import (
    Answer,
    Backend,
    Capability,
    ChecksMade,
    ClassifyRequest,
    Description,
    GenerateRequest,
    GenerateResponse,
    Message,
    OnResponse,
    Prompt,
    Request,
    RequestCost,
    Response,
    Sampling,
    ScoreRequest,
)
from backends.errors import BackendError, ConfigError
from backends.http.address import REPLICAS, server_url
from backends.http.client import ConnectionOptions, HttpClient
from backends.http.keys import VARIABLES, check_key_for
from backends.http.replicas import ReplicaClient
from backends.http.retries import with_retries
from backends.http.tokens import credential
from backends.http.usage import PriceTable, Usage
from backends.openai.batches import BatchedClient, Journal
from backends.openai.batches.batched import MOST_LINES, PRICE
from backends.openai.capabilities import ServerCapabilities
from backends.openai.generation import choices_of_a_request, generate
from backends.openai.probe import (
    DRAWS,
    VERSION,
    Canary,
    ProbeRecord,
    ProbeReport,
    ReplicaProof,
    ask_canary,
    ask_watched,
    coarse_identity,
    draws_still_vary,
    exact_identity,
    knows_less,
    move_since,
    probe,
    random_questions,
    report_of,
    tolerance,
    with_listed_words,
)
from backends.openai.probe.late_thoughts import LATE_THOUGHTS, CutAnswers
from backends.openai.probe.own_questions import Drawn, OwnQuestions, check_own, requests_at_the_end
from backends.openai.probe.report import Watched
from backends.openai.protocol.api import ServerApi
from backends.openai.protocol.request_extras import RETIRED, ExtraBody, Headers, Query, RequestExtras
from backends.openai.response_ids import ModelChangedError
from backends.openai.scoring import ONE_AT_A_TIME, CopiedDraws, RemoteTokenizer, Routes, counts_in_thread, tokens_drawn
from backends.options import AS_TUPLE, OnError, checked_options

_PLAIN = GenerateRequest((Message("user", "Is the sky blue? Answer yes or no."),), Sampling(max_tokens=16))
_MAX_UNFINISHED_REQUESTS = 256
#: After these errors, the responses that came before are still valid.
_WITHOUT_RESPONSE = ("rate_limited", "timeout", "connection", "server", "quota")
_COPIES = "equal drawn answers come nearer to each other than draws do: some are copies, perhaps from a cache"

OptionalPath = Annotated[str | Path | None, OnError("not a text", "Write it in quotes")]
OptionalText = Annotated[str | None, Field(min_length=1), OnError("not a text", "Write it in quotes")]
AtLeastOne = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), OnError("not a time limit", "Give seconds above 0")]
CostLimit = Annotated[
    float | None, Field(gt=0, allow_inf_nan=False), OnError("not a limit to costs", "Give a number above 0")
]


class OpenAIBackend(Backend):
    """A model behind ``/v1/completions`` and ``/v1/chat/completions``.

    Before the first request, a probe tests empirically which of the server's numbers are true; only
    proven routes are used. What a server does not list is bounded.

    Parameters
    ----------
    base_url : str
        Up to and including the version: ``https://api.openai.com/v1``.
    urls : list of str, optional
        Instead of ``base_url``: several servers of one model, which is verified before, in and after the run.
        ``max_in_flight`` applies to each; a request goes to the least loaded. One that is down is skipped, and verified
        again before it is used.
    model : str
        Name of the model, as the server knows it.
    api_key_env : str, list of str or None
        Environment variable that holds the key; several are used in turn. None (in a file: "") for a server that
        needs no key.
    key_file : str or Path, optional
        Instead, a file that holds the key and that only its owner can read (mode 0600).
    timeout : float
        Seconds for one whole exchange with the server.
    max_in_flight : int
        Maximum number of concurrent requests.
    samples : int, optional
        If the server gives no log-probabilities, draw this many answers per question and count them. This
        costs as many requests.
    prices : PriceTable, optional
        Prices per million tokens, or a mapping of ``prompt``, ``completion`` and optionally ``cached``.
    max_cost : float, optional
        In the currency of ``prices``. A request that could exceed it is not sent.
    canary_every : int
        Number of requests after which the canary questions are asked again, to notice another model.
    probe_folder : str or Path, optional
        Where the last probe of each server is kept. Default: the user's cache folder.
    reasoning_effort : str, optional
        Sent unchanged (``low``, ``none``…): how long the model may reason.
    reasoning_tokens : int, optional
        Extra tokens for reasoning, added to each answer's limit if the model reasons. Default: 4096.
    headers, query, extra_body : mapping, optional
        Sent with every request: HTTP headers, fields of the URL's query (Azure's ``api-version``), and fields of the
        body (OpenRouter's ``provider``, vLLM's ``chat_template_kwargs``). They are part of the model's identity,
        except for headers that only identify the client.
    service_tier : str, optional
        ``flex``, ``priority``…: not part of the model's identity.
    key_header : str
        The header that carries the key: ``api-key`` for Azure's older endpoints.
    token : callable or str, optional
        Instead of a key: "azure" for Entra (extra ``azure``), "google" for the application default credentials (extra
        ``google``), or a function that returns a currently valid token (in a file: its ``module:function``), such as
        ``aws_bedrock_token_generator.provide_token``. A token that the server refuses is renewed at once.
    proxy : str, optional
        URL of a proxy, or the environment variable that holds it. No proxy is taken from the environment by default.
    ca_bundle : str or Path, optional
        File of certificates to trust in addition to the usual ones, e.g. a company's own authority.
    batch : bool
        Use the provider's batch API for texts and drawn answers: half the price, answers within a day.

    Attributes
    ----------
    usage : Usage
        Requests, tokens and cost so far, the probe's included.
    unverified_since : float or None
        If another model was noticed under the same name, the time (seconds since the epoch) of the last
        canary that passed. Later answers may come from either model.
    unverified_reason : str
        What was noticed.
    """

    path_options: ClassVar[Mapping[str, Collection[str]]] = {"key_file": (), "ca_bundle": ()}
    #: The fingerprint's name for this kind of server.
    engine: ClassVar[str] = "openai"
    #: What sends its requests.
    client_type: ClassVar[type[HttpClient]] = HttpClient

    @checked_options
    def __init__(
        self,
        base_url: Annotated[str, AfterValidator(server_url)] | None = None,
        *,
        urls: Annotated[tuple[Annotated[str, AfterValidator(server_url)], ...], AS_TUPLE, REPLICAS] | None = None,
        model: Annotated[str, Field(min_length=1), OnError("not a text", "Name the model as the server knows it")],
        api_key_env: Annotated[
            str | Annotated[tuple[str, ...], AS_TUPLE] | None,
            VARIABLES,
            OnError("not a name", "Name environment variables"),
        ] = "OPENAI_API_KEY",
        key_file: OptionalPath = None,
        timeout: Seconds = 120.0,
        max_in_flight: AtLeastOne = 8,
        samples: AtLeastOne | None = None,
        prices: PriceTable | None = None,
        max_cost: CostLimit = None,
        canary_every: AtLeastOne = 500,
        probe_folder: OptionalPath = None,
        reasoning_effort: OptionalText = None,
        reasoning_tokens: Annotated[int, Field(ge=0)] | None = None,
        headers: Headers = None,
        query: Query = None,
        extra_body: ExtraBody = None,
        service_tier: OptionalText = None,
        key_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "Authorization",
        token: Callable[[], str] | OptionalText = None,
        proxy: OptionalText = None,
        ca_bundle: OptionalPath = None,
        batch: bool = False,
    ) -> None:
        if (base_url is None) == (urls is None):
            raise ConfigError("base_url", base_url, "one of base_url and urls is needed", "Give one of them")
        if batch and urls:
            raise ConfigError("batch", batch, "a batch is one server's", "Give base_url in place of urls, or no batch")
        self.urls = urls or (str(base_url),)
        self.base_url, self.model = self.urls[0], model
        self.timeout, self.max_in_flight = timeout, max_in_flight * len(self.urls)
        self.samples, self.max_cost, self.canary_every = samples, max_cost, canary_every
        self._prices = prices
        self.usage = Usage(prices, max_cost)
        self.unverified_since: float | None = None
        self.unverified_reason = "another model answers under this name"
        self._made = ChecksMade()
        self._probe_folder = Path(probe_folder) if probe_folder is not None else None
        self._key = credential(api_key_env, key_file, token)
        self._extras = RequestExtras(
            headers or {}, query or {}, extra_body or {}, service_tier, reasoning_effort, reasoning_tokens
        )
        bundle = str(ca_bundle) if ca_bundle is not None else None
        self._connection_options = ConnectionOptions(
            proxy, bundle, key_header, self._extras.headers, self._extras.query
        )
        # A canary may be in flight beside the requests, but not beside a single one, whose numbers it may move.
        most = max_in_flight + (max_in_flight > 1)
        connections = [self._connection(timeout, most, url) for url in self.urls]
        several = ReplicaClient(connections, max_in_flight) if urls else None
        self._client = several or connections[0]
        self._replicas = ReplicaProof(several, lambda: self._api, self._repeats) if several is not None else None
        self._api = self._new_api()
        self._batched = BatchedClient(self._client, Journal(self._batch_folder()), self.usage) if batch else None
        if batch:
            self.batch_size = MOST_LINES
        self._report: ProbeReport | None = None
        self._tokenizer: RemoteTokenizer | None = None
        self._probing = asyncio.Lock()
        self._since_canary = self._answered = 0
        self._first_verified = self._last_verified = 0.0
        self._own = OwnQuestions()
        self._copied, self._cut = CopiedDraws(), CutAnswers()
        self._echoed_prompts: dict[str, bytes] = {}
        self._requests_of_canary = 0
        self._changed: BackendError | None = None
        self._unfinished: dict[Request, dict[str, dict[str, object]]] = {}

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.base_url!r}, model={self.model!r})"

    @property
    def endpoint(self) -> str:  # type: ignore[override]
        """Host and key identity, to which a server's rate limits apply."""
        return f"{httpx.URL(self.base_url).netloc.decode()} key {self._key.identity()}"

    def check(self) -> None:
        """Raise `ConfigError` for a key or limit that cannot work. Sends nothing."""
        if self.max_cost is not None and self._prices is None:
            raise ConfigError("max_cost", self.max_cost, "no prices are given", "Give prices too, per million tokens")
        check_key_for(self.urls, self._key)
        self._connection_options.check()

    async def describe(self) -> Description:
        """Identity and capabilities, from a new probe or from a recorded one that still holds."""
        self._report = None if self._api.parameters.outdated else self._report
        report = await self.probe()
        found = report.capabilities
        if self._batched is not None:
            await self._batched.check()
        capabilities: set[Capability] = {"score"} if any(found.routes) else set()
        if found.completions or found.chat:
            capabilities.add("generate")
        if found.chat:
            capabilities.add("chat")
        absent = found.absent_forms
        if report.without_scores and "score" not in capabilities:
            absent["score"] = report.refusal
        notes = {
            "server": found.family or "unknown",
            "spread": report.noise,
            "list": f"{found.largest_k} next tokens, identified by {found.identity}",
            "access": found.access(self.samples),
            "text generation": "as a user's turn of a chat" if found.chat and not found.completions else "as text",
        }
        return Description(
            {**report.fingerprint(self.samples), **self._extras.fingerprint(found), "backend": self.engine},
            frozenset(capabilities),
            notes,
            retired=report.retired_fields() | RETIRED,
            statements=(*report.statements, *found.notes_on_draws(self.samples)),
            limits=report.limits,
            requests=report.requests,
            absent=absent,
        )

    async def probe(self) -> ProbeReport:
        """What the server can do and whether its numbers are true, as recorded if that still holds.

        Raises `BackendError` if the server cannot be reached or refuses the key.
        """
        async with self._probing:
            if self._report is None:
                self._report = await self._report_of_all()
                self._first_verified = self._last_verified = time.time()
                self._since_canary = 0
            return self._report

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

    async def verify_identity(self) -> None:
        """Ask the canary a last time, and draw next tokens after some of the run's own questions.

        Sets `unverified_since` if the model has changed, or if its draws contradict its scores.
        """
        if self._batched is not None:
            await asyncio.to_thread(self._batched.forget_delivered)
        if self._report is None or self._changed is not None or self._answered == 0:
            return
        try:
            await self._verify_canary(at_the_end=True)
        except ModelChangedError as error:
            self._notice(error)
            return
        own = await check_own(self._api, self._report.capabilities, self._tokenizer, self._own.take())
        if own.compared is not None:
            self._made = ChecksMade(2, 1, own.compared.draws)
        if own.contradiction:
            self._distrust_all(ModelChangedError(own.contradiction))
        found = await self._cut.with_thoughts(self._api, self._report.capabilities)
        if found is not self._report.capabilities:
            self._distrust_all(BackendError("inconsistent", LATE_THOUGHTS))
            await asyncio.to_thread(self._record().amend, reasons=True, opened_unseen=found.opened_unseen)

    def drain_ambiguous(self) -> list[Request]:
        """Requests whose response may belong to another request, since the last call."""
        ambiguous = list(dict.fromkeys([*self._api.response_ids.ambiguous, *self._api.lists.ambiguous]))
        self._api.response_ids.ambiguous, self._api.lists.ambiguous = [], []
        return ambiguous

    def repeats_itself(self, request: Request) -> bool:
        """True for scores, unless they are counted from drawn answers."""
        return isinstance(request, ScoreRequest) and self._route_of(request) not in (None, "sampled")

    def scores_separately(self, request: Request) -> bool:
        """As in `ScoresSeparately`: on the routes that read a continuation as the end of a prompt."""
        if not isinstance(request, ScoreRequest) or self._report is None:
            return False
        route = self._route_of(request)
        return (self._report.capabilities.text_route if route == "rendered" else route) in ONE_AT_A_TIME

    def checking_requests(self, questions: int, scored: int) -> int:
        """As in `SupportsCheckingRequests`: canaries, and at the end lists and draws after some of the questions."""
        if self._report is None or not questions:
            return 0
        found = self._report.capabilities
        drawn = 0 if "sampled" not in found.routes else 1 if found.together == "n" else DRAWS
        canaries = 2 + questions // self.canary_every  # at the start, when the probe is recorded, and at the end
        compared = self._replicas.requests() if self._replicas is not None else 0
        canaries *= len(self.urls)
        compared += self._cut.requests(found) + requests_at_the_end(found, scored)
        return canaries * (self._requests_of_canary + drawn) + compared

    def checks_made(self) -> ChecksMade:
        """As in `SupportsSecondAnswers`."""
        return self._made

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int] | None:
        """Token counts from the server's tokenise endpoint; None without one, for chats, or when it fails."""
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        dialect = self._report.capabilities.family if self._report is not None else None
        if dialect is None or len(texts) < len(prompts):
            return None

        # A separate client: the caller may be on the event loop that the other one belongs to.
        connection = functools.partial(self._connection, connections=1, url=self.base_url)
        return counts_in_thread(connection, self.model, dialect, texts)

    def spent(self) -> float | None:
        return self.usage.cost

    def highest_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        factor = PRICE if self._batched is not None else 1.0
        return None if self._prices is None else factor * self._prices.cost(prompt_tokens, completion_tokens)

    def limit_cost(self, max_cost: float) -> None:
        if self._prices is not None:
            self.usage.limit(max_cost)

    def request_cost(self, request: Request) -> RequestCost:
        """As in `SupportsRequestCost`: each continuation is scored by a call of its own, with the prompt before it."""
        found = self._report.capabilities if self._report is not None else ServerCapabilities()
        extra = self._extras.extra_tokens if found.reasons else 0
        if not isinstance(request, ScoreRequest):
            own = RequestCost.in_one_call(request)
            return RequestCost(own.times_sent, own.generated_tokens + extra * isinstance(request, GenerateRequest))
        if self._route_of(request) == "sampled" and self.samples is not None:
            sent = -(-self.samples // choices_of_a_request(found))
            tokens = self.samples * (tokens_drawn(request.continuations) + extra)
            return RequestCost(sent, -(-tokens // sent), sent)
        prompt_alone = self._route_of(request) == "echo" and self._tokenizer is None
        sent = len(request.continuations) + prompt_alone
        return RequestCost(sent, 1, sent if self.scores_separately(request) else 1)

    def _batch_folder(self) -> Path:
        folder = self._probe_folder or platformdirs.user_state_path("bias-audit")
        parts = [self.base_url, self.model, self._key.identity(), self._extras.identity()]
        return folder / "batches" / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]

    def _route_of(self, request: ScoreRequest) -> str | None:
        text_route, chat_route = self._report.capabilities.routes if self._report is not None else (None, None)
        return text_route if isinstance(request.prompt, str) else chat_route

    async def close(self) -> None:
        """Close the connections."""
        if self._batched is not None:
            await self._batched.close()
        await self._client.close()

    async def _answer(self, request: Request) -> Answer:
        if isinstance(request, ClassifyRequest):
            return BackendError("unsupported", "an OpenAI-style server cannot classify texts")
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
                self._unfinished.pop(request, None)  # one of its responses is bad: all are requested again
            return error
        self._since_canary += 1
        self._answered += 1
        return response

    async def _response(self, request: ScoreRequest | GenerateRequest, capabilities: ServerCapabilities) -> Response:
        while len(self._unfinished) > _MAX_UNFINISHED_REQUESTS:
            self._unfinished.pop(next(iter(self._unfinished)))
        api = self._api.with_replay_cache(self._unfinished.setdefault(request, {}), request)
        drawn: list[Drawn] = []
        api.on_draw = lambda text, top: drawn.append((text, top))
        api.echoed_prompts = self._echoed_prompts
        if self._batched is not None and (isinstance(request, GenerateRequest) or self._route_of(request) == "sampled"):
            api = api.in_batches(self._batched)
        response: Response
        if isinstance(request, GenerateRequest):
            response = await generate(api, capabilities, request)
        else:
            routes = Routes(api, capabilities, self._tokenizer, self.samples)
            response = await routes.score(request)
            if self.repeats_itself(request):
                self._own.add(request, response, drawn)
            self._note_drawn(request, routes.drawn)
        self._unfinished.pop(request, None)
        return response

    def _connection(self, timeout: float, connections: int, url: str) -> HttpClient:
        return self.client_type(
            url, self._key, timeout=timeout, max_connections=connections, options=self._connection_options
        )

    def _new_api(self) -> ServerApi:
        return ServerApi(self._client, self.model, self.usage, self._extras)

    def _routes(self, capabilities: ServerCapabilities) -> Routes:
        return Routes(self._api, capabilities, self._tokenizer, self.samples)

    async def _ask_canary(
        self, capabilities: ServerCapabilities, watched: Sequence[Watched]
    ) -> tuple[Canary, tuple[Watched, ...]]:
        """The canary's values and those of the probe's random questions; counts what they take of the model."""
        before, routes = self.usage.requests, self._routes(capabilities)
        canary, again = await ask_canary(routes, capabilities), await ask_watched(routes, watched)
        self._requests_of_canary = self.usage.requests - before
        return canary, again

    async def _verify_canary(self, *, at_the_end: bool = False) -> None:
        """Ask the canary of each server."""
        self._since_canary = 0
        if isinstance(self._client, ReplicaClient):
            await self._client.of_each(lambda: self._verify_server(at_the_end), at_the_end=at_the_end)
        else:
            await self._verify_server(at_the_end)
        self._last_verified = time.time()

    async def _verify_server(self, at_the_end: bool) -> None:
        assert self._report is not None
        capabilities = self._report.capabilities
        canary, watched = await self._ask_canary(capabilities, self._report.watched)
        move = move_since(self._report, canary, watched)
        if move > tolerance(capabilities.repeat_noise):
            raise ModelChangedError(f"the canary moved by {move:.3g} nats, more than the server's noise explains")
        if not await draws_still_vary(self._routes(capabilities), capabilities):
            raise ModelChangedError("drawn answers are all the same: copies, or not random draws")
        if self._replicas is not None and at_the_end:
            await self._replicas.by_draws()

    def _notice(self, error: ModelChangedError) -> None:
        if self._changed is None:
            self._changed, self.unverified_since = error, self._last_verified

    def _distrust_all(self, error: BackendError) -> None:
        """No answer since the probe is true, for the reason that the error gives."""
        if self._changed is None:
            self._changed, self.unverified_since = error, self._first_verified
            self.unverified_reason = f"{error.message} (at {self.base_url})"

    def _note_drawn(self, request: ScoreRequest, answers: Sequence[GenerateResponse | None]) -> None:
        """Keep how near equal ones of a question's drawn answers are. Raises `BackendError` if some are copies."""
        self._cut.add(request, answers)
        self._copied.add([(answer.thought, answer.text) for answer in answers if answer is not None])
        if self._copied.found:
            error = BackendError("inconsistent", _COPIES, hint="Switch off what keeps the server's answers")
            self._distrust_all(error)
            raise error

    async def _report_of_all(self) -> ProbeReport:
        """The probe of the first server. Raises `BackendError` if another server does not serve the same model."""
        if self._replicas is None or not isinstance(self._client, ReplicaClient):
            return await self._recorded_or_new_report()
        with self._client.pinned(self._client.replicas[0]):
            report = await self._recorded_or_new_report()
        await self._replicas.of_all(report)
        return dataclasses.replace(report, limits=(*report.limits, *self._replicas.limits()))

    async def _recorded_or_new_report(self) -> ProbeReport:
        record = self._record()
        last = await asyncio.to_thread(record.read)
        if last is not None and last.version == VERSION and await self._still_holds(last):
            return last
        report = await self._new_report(last)
        await asyncio.to_thread(record.write, report)
        return report

    def _record(self) -> ProbeRecord:
        return ProbeRecord(
            self._probe_folder, self.base_url, self.model, self._key.identity(), self.samples, self._extras.identity()
        )

    async def _new_report(self, last: ProbeReport | None) -> ProbeReport:
        """Probe the server; an unchanged model keeps the identity from the previous probe (``last``)."""
        self._api = self._new_api()
        requests_before = self._client.requests
        session = await probe(self._api, samples=self.samples)
        self._tokenizer, capabilities = session.tokenizer, session.capabilities
        questions = await with_listed_words(self._api, capabilities, random_questions(capabilities))
        canary, watched = await self._ask_canary(capabilities, questions)
        identity = coarse_identity(canary, capabilities.repeat_noise)
        if last is not None and len(last.canary) == len(canary) and last.canary_id:
            noise = max(capabilities.repeat_noise, last.capabilities.repeat_noise)
            again = await ask_watched(self._routes(capabilities), last.watched)
            is_same = move_since(last, canary, again) <= tolerance(noise)
            identity = last.canary_id if is_same else f"{identity} after another: {exact_identity(canary)}"
        return report_of(session, self._client.requests - requests_before, canary, identity, watched)

    async def _still_holds(self, report: ProbeReport, told: Collection[str] = ("auth", "quota")) -> bool:
        """Whether the server still gives the recorded canary by the recorded route; raises the kinds ``told``."""
        capabilities = report.capabilities
        if not report.canary and not (capabilities.chat and report.knows_parameters):
            return False
        self._api = self._new_api()
        self._api.configure(capabilities)
        family = capabilities.family
        self._tokenizer = RemoteTokenizer(self._client, self.model, family) if family is not None else None
        return await self._repeats(report, told)

    async def _repeats(self, report: ProbeReport, told: Collection[str]) -> bool:
        """Whether the server gives the report's canary; raises the kinds ``told``, and what may be retried."""
        capabilities = report.capabilities
        try:
            canary, watched = await self._ask_canary(capabilities, report.watched)
            if not canary:  # a sampled text only shows that the model's name and the parameters are accepted
                await with_retries(generate, self._api, capabilities, _PLAIN)
        except BackendError as error:
            if error.retryable or error.kind in told:
                raise
            return False
        moved = move_since(report, canary, watched)
        return not knows_less(report.canary, canary) and moved <= tolerance(capabilities.repeat_noise)

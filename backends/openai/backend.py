"""A model behind an OpenAI-style server."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import NoneType

import httpx

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
from backends.openai.api import ModelChangedError, ServerApi
from backends.openai.auth import NAME_NONE, ApiKey
from backends.openai.client import HttpClient
from backends.openai.generation import generate
from backends.openai.patience import patiently
from backends.openai.probe.canary import ask_canary, coarse_identity, exact_identity, farthest, tolerance
from backends.openai.probe.capabilities import ProbeReport
from backends.openai.probe.probe import probe
from backends.openai.probe.record import ProbeRecord
from backends.openai.scoring.routes import Routes
from backends.openai.scoring.sampled import tokens_drawn
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.usage import PriceTable, Usage

_UNFINISHED_REQUESTS = 256
#: Seconds that counting tokens may keep its caller waiting.
_LONGEST_COUNT = 10.0
#: After these, the answers that came before are as good as they were.
_NO_ANSWER = ("rate_limited", "timeout", "connection", "server", "quota")


class OpenAIBackend(Backend):
    """A model behind ``/v1/completions`` and ``/v1/chat/completions``.

    Before the first question a probe finds out by experiment which numbers of this server are
    true; only routes that were proven are used. What a server does not list is bounded.

    Parameters
    ----------
    base_url : str
        Up to and with the version: ``https://api.openai.com/v1``.
    model : str
        Name of the model, as the server knows it.
    api_key_env : str or None
        Environment variable that holds the key. None, or "" as in a file, for a server that asks for none.
    key_file : str or Path, optional
        A file with the key instead, that only its owner can read (mode 0600).
    timeout : float
        Seconds for one whole exchange with the server.
    max_in_flight : int
        How many requests may be under way together.
    samples : int, optional
        Where a server gives no log-probabilities, draw this many answers and count them. It
        costs as many requests.
    prices : PriceTable or mapping, optional
        Prices per million tokens; as a mapping: ``prompt``, ``completion`` and perhaps ``cached``.
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

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        api_key_env: str | None = "OPENAI_API_KEY",
        key_file: str | Path | None = None,
        timeout: float = 120.0,
        max_in_flight: int = 8,
        samples: int | None = None,
        prices: PriceTable | Mapping[str, float] | None = None,
        max_cost: float | None = None,
        canary_every: int = 500,
        probe_folder: str | Path | None = None,
    ) -> None:
        _check_types(base_url=base_url, model=model, api_key_env=api_key_env, key_file=key_file)
        _check_types(probe_folder=probe_folder, timeout=timeout, max_cost=max_cost)
        _check_types(max_in_flight=max_in_flight, samples=samples, canary_every=canary_every)
        self.base_url, self.model = base_url.rstrip("/"), model
        self.timeout, self.max_in_flight = timeout, max_in_flight
        self.samples, self.max_cost, self.canary_every = samples, max_cost, canary_every
        self._prices = PriceTable.of(prices)
        self.usage = Usage(self._prices, max_cost)
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
        self._last_good = 0.0
        self._changed: ModelChangedError | None = None
        self._unfinished: dict[Request, dict[str, dict[str, object]]] = {}

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.base_url!r}, model={self.model!r})"

    @property
    def endpoint(self) -> str:  # type: ignore[override]
        """Host and key identity: what a server's limits are counted by."""
        return f"{httpx.URL(self.base_url).netloc.decode()} key {self._key.identity()}"

    def check(self) -> None:
        """Raise `ConfigError` for a URL, number or key that cannot work. Asks nobody."""
        shown = _without_secrets(self.base_url)
        try:
            url = httpx.URL(self.base_url)
        except (httpx.InvalidURL, TypeError):
            raise ConfigError("base_url", shown, "no URL", "Give one like https://host/v1") from None
        if url.userinfo or url.query or url.fragment:
            raise ConfigError("base_url", shown, "it holds a password, query or fragment", "Give keys by api_key_env")
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError("base_url", shown, "no http or https URL", "Give one like https://host/v1")
        if not self.model:
            raise ConfigError("model", self.model, "empty", "Name the model as the server knows it")
        for name, least in (("max_in_flight", 1), ("canary_every", 1), ("samples", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(name, value, "too small", f"Give at least {least}")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError("timeout", self.timeout, "no time limit", "Give seconds above 0")
        if self.max_cost is not None and not 0 < self.max_cost < float("inf"):
            raise ConfigError("max_cost", self.max_cost, "no limit to costs", "Give a number above 0")
        if self.max_cost is not None and self._prices is None:
            raise ConfigError(
                "max_cost",
                self.max_cost,
                "no prices are given",
                "Give prices too, per million tokens",
            )
        local = _is_this_machine(url.host)
        self._key.check(needed=not local)
        if url.scheme == "http" and not local and self._key.read():
            hint = f"Use https, or {NAME_NONE}"
            raise ConfigError("base_url", self.base_url, "a key would travel unencrypted", hint)

    async def describe(self) -> Description:
        """Identity and capabilities, after a probe (or a look whether the last one still holds)."""
        report = await self.probe()
        found = report.findings
        capabilities: set[Capability] = set()
        if found.text_route or found.chat_route:
            capabilities.add("score")
        if found.completions or found.chat:
            capabilities.add("generate")
        if found.chat:
            capabilities.add("chat")
        return Description(
            {
                "backend": "openai",
                "base_url": self.base_url,
                "model": self.model,
                **report.identity(),
                "samples": self.samples if "sampled" in (found.text_route, found.chat_route) else None,
            },
            frozenset(capabilities),
            {
                "server": found.family or "unknown",
                "spread": f"{found.spread:.2g} nats",
                "list": f"{found.largest_k} next tokens, told apart by {found.identity}",
                "text generation": "as a user's turn of a chat" if found.chat and not found.completions else "as text",
            },
        )

    async def probe(self, *, anew: bool = False) -> ProbeReport:
        """What the server can do and whether its numbers are true; ``anew`` ignores the record.

        Raises `BackendError` when the server cannot be reached, or refuses the key.
        """
        async with self._probing:
            if self._report is None or anew:
                self._report = await self._probe_or_recall(anew)
                self._last_good, self._since_canary = time.time(), 0
            return self._report

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        """Answer each request, or tell why not."""
        return [await self._answer(request) for request in batch]

    async def verify_identity(self) -> None:
        """Ask the canary a last time: sets `unverified_since` when the model is another one by now."""
        if self._report is None or self._changed is not None or self._since_canary == 0:
            return
        try:
            await self._ask_canary()
        except ModelChangedError as error:
            self._notice(error)

    def drain_ambiguous(self) -> list[Request]:
        taken, self._api.seen.doubtful = self._api.seen.doubtful, []
        return taken

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int] | None:
        """Tokens of texts by the server's tokenise endpoint; None without one, for chats, or when it fails."""
        texts = [p for p in prompts if isinstance(p, str)]
        if self._report is None or self._report.findings.family is None or len(texts) < len(prompts):
            return None
        dialect = self._report.findings.family

        async def count() -> list[int]:
            # A client of its own: the caller may be on the event loop that the other one belongs to.
            client = HttpClient(self.base_url, self._key, timeout=_LONGEST_COUNT, max_connections=1)
            try:
                async with asyncio.timeout(_LONGEST_COUNT):
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
        found = self._report.findings if self._report is not None else None
        route = found and (found.text_route if isinstance(request.prompt, str) else found.chat_route)
        if route == "sampled" and self.samples is not None:
            return RequestCost(self.samples, tokens_drawn(request.continuations))
        return RequestCost(len(request.continuations), 1)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _answer(self, request: Request) -> Answer:
        if isinstance(request, ClassifyRequest):
            return BackendError("unsupported", "an OpenAI-style server classifies no texts")
        try:
            report = await self.probe()
            if self._changed is None and self._since_canary >= self.canary_every:
                await self._ask_canary()
            if self._changed is not None:
                raise self._changed
            response = await self._asked(request, report)
        except ModelChangedError as error:
            self._notice(error)
            return BackendError("inconsistent", error.message, hint=error.hint)
        except BackendError as error:
            if error.kind not in _NO_ANSWER:
                self._unfinished.pop(request, None)  # one of its answers is bad: all are asked again
            return error
        self._since_canary += 1
        return response

    async def _asked(self, request: Request, report: ProbeReport) -> Response:
        while len(self._unfinished) > _UNFINISHED_REQUESTS:
            self._unfinished.pop(next(iter(self._unfinished)))
        api = self._api.with_replay_cache(self._unfinished.setdefault(request, {}), request)
        response: Response
        if isinstance(request, GenerateRequest):
            response = await generate(api, report.findings, request)
        else:
            assert not isinstance(request, ClassifyRequest)
            response = await Routes(api, report.findings, self._tokenizer, samples=self.samples).score(request)
        self._unfinished.pop(request, None)
        return response

    async def _ask_canary(self) -> None:
        assert self._report is not None
        self._since_canary = 0
        found = self._report.findings
        now = await ask_canary(Routes(self._api, found, self._tokenizer, samples=self.samples), found)
        moved = farthest(self._report.canary, now)
        if moved > tolerance(found.spread):
            raise ModelChangedError(f"the canary moved by {moved:.3g} nats, more than the server's noise explains")
        self._last_good = time.time()

    def _notice(self, error: ModelChangedError) -> None:
        if self._changed is None:
            self._changed, self.unverified_since = error, self._last_good

    async def _probe_or_recall(self, anew: bool) -> ProbeReport:
        record = ProbeRecord(self._probe_folder, self.base_url, self.model, self._key.identity(), self.samples)
        known = await asyncio.to_thread(record.read)
        if known is not None and not anew and await self._still_holds(known):
            return known
        self._api = ServerApi(self._client, self.model, self.usage)
        before = self.usage.requests
        found, checks, self._tokenizer = await probe(self._api, samples=self.samples)
        self._api.seen.numbered = found.answers_numbered
        routes = Routes(self._api, found, self._tokenizer, samples=self.samples)
        canary = await patiently(ask_canary, routes, found)
        identity = coarse_identity(canary, found.spread)
        if known is not None and len(known.canary) == len(canary) and known.canary_id:
            same = farthest(known.canary, canary) <= tolerance(max(found.spread, known.findings.spread))
            identity = known.canary_id if same else f"{identity} after another: {exact_identity(canary)}"
        requests = self.usage.requests - before
        report = ProbeReport(self.base_url, self.model, found, checks, canary, identity, requests)
        await asyncio.to_thread(record.write, report)
        return report

    async def _still_holds(self, known: ProbeReport) -> bool:
        """Whether the server still gives the recorded canary by the recorded route."""
        found = known.findings
        if not known.canary:
            return False
        self._api = ServerApi(self._client, self.model, self.usage)
        self._api.temperature, self._api.always = found.temperature, found.always_sent
        self._api.seen.model, self._api.seen.numbered = found.answered_model, found.answers_numbered
        self._tokenizer = RemoteTokenizer(self._client, self.model, found.family) if found.family is not None else None
        routes = Routes(self._api, found, self._tokenizer, samples=self.samples)
        try:
            now = await patiently(ask_canary, routes, found)
        except BackendError as error:
            if error.retryable or error.kind in ("auth", "quota"):
                raise
            return False
        return farthest(known.canary, now) <= tolerance(found.spread)


_TYPES: dict[str, tuple[type, ...]] = {
    "base_url": (str,),
    "model": (str,),
    "api_key_env": (str, NoneType),
    "key_file": (str, Path, NoneType),
    "probe_folder": (str, Path, NoneType),
    "timeout": (int, float),
    "max_cost": (int, float, NoneType),
    "max_in_flight": (int,),
    "samples": (int, NoneType),
    "canary_every": (int,),
}


def _check_types(**options: object) -> None:
    """A config file gives any type: told here, by the option's name."""
    for name, value in options.items():
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            wanted = "a number" if int in _TYPES[name] else "a text"
            raise ConfigError(name, value, f"not {wanted}", f"Give {wanted}")


def _without_secrets(url: str) -> str:
    """A URL without what may be a password, a query or a fragment; of an unreadable one that has such, the scheme."""
    with contextlib.suppress(httpx.InvalidURL, TypeError):
        read = httpx.URL(url)
        if read.host:
            return str(read.copy_with(userinfo=b"", query=None, fragment=None))
    scheme = re.match(r"\w+://", url)
    return (scheme[0] if scheme else "") + "…" if re.search("[@?#]", url) else url


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")

"""The HTTP client: one per model, with limits on time and concurrency; and retries where no scheduler makes them.

Redirects are not followed, a proxy is used only if the options say so, TLS is verified, and a key is sent only to
the host that it was given for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, ParamSpec, TypeVar

import httpx
import tenacity

from backends.errors import LONGEST_ASKED_PAUSE, BackendError
from backends.http import errors as http_errors
from backends.http.keys import NO_KEY_SENT_HINT
from backends.http.options import HttpOptions

_TRANSIENT = ("rate_limited", "timeout", "connection", "server", "malformed")
#: A busy server refuses some requests of each question: those say nothing against it.
_ATTEMPTS, _RATE_LIMITED_ATTEMPTS = 4, 12
_BACKOFF = tenacity.wait_exponential(0.4, max=10.0)
#: Seconds to connect. A server of plain http may wait for ever for the rest of what begins as TLS.
_CONNECTED_WITHIN = 15.0

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)


class HttpClient:
    """Sends requests to the servers of one model in turn and returns JSON, or raises `BackendError`.

    A request that fails is not passed on, since it may have been charged: whoever retries it gets the next server.

    URLs end in ``/v1`` or similar; paths that start with ``/`` are relative to the URL without it. ``max_in_flight``
    requests for each server, and one more, for a check of the answers beside them, are sent at a time.
    """

    headers: ClassVar[Mapping[str, str]] = {
        "Accept": "application/json",
        "Accept-Encoding": "gzip, deflate",
        "User-Agent": "bias-audit",
    }

    def __init__(self, options: HttpOptions) -> None:
        self.urls, self.base_url = options.servers, options.servers[0]
        self._turns: Iterator[str] = itertools.cycle(self.urls)
        self._options, self._key = options, options.key
        #: How many were sent, including failed ones and those to the tokenizer.
        self.requests = 0
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore()

    async def post(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The JSON object that answers ``payload``."""
        return await self._json("POST", path, json.dumps(payload).encode(), "application/json")

    async def get(self, path: str) -> dict[str, Any]:
        """The JSON object at a path."""
        return await self._json("GET", path)

    async def upload(self, path: str, name: str, content: bytes, fields: Mapping[str, str]) -> dict[str, Any]:
        """The JSON object that answers the upload of one file."""
        form = httpx.Request("POST", self.base_url, data=fields, files={"file": (name, content, "application/jsonl")})
        return await self._json("POST", path, form.read(), form.headers["content-type"])

    async def download(self, path: str) -> str:
        """The text at a path, with keys removed."""
        body = (await self._exchange("GET", path)).content
        try:
            return self._key.redact(body.decode("utf-8-sig"), words=False)
        except UnicodeDecodeError:
            raise BackendError("malformed", f"{len(body)} bytes that are no text", retryable=True) from None

    @contextlib.contextmanager
    def only(self, url: str) -> Iterator[None]:
        """Let one of the servers answer what is sent meanwhile."""
        self._turns = itertools.repeat(url)
        try:
            yield
        finally:
            self._turns = itertools.cycle(self.urls)

    async def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    async def _json(self, method: str, path: str, content: bytes = b"", kind: str = "") -> dict[str, Any]:
        response = await self._exchange(method, path, content, kind)
        body = response.content
        try:
            text = body.decode("utf-8-sig")  # bytes that are no UTF-8, replaced, would be stored as the model's own
            if "\\u" in text:  # so may the key be written
                text = json.dumps(json.loads(text), ensure_ascii=False)
            answer = json.loads(self._key.redact(text, words=False))
        except (ValueError, RecursionError):
            message, hint = f"{len(body)} bytes that are not JSON", "Check base_url (most end in /v1)"
            raise BackendError("malformed", message, retryable=True, hint=hint) from None
        if not isinstance(answer, dict):
            raise BackendError("malformed", "JSON that is not an object", retryable=True)
        failed = http_errors.from_error_body(answer, response.headers)
        if failed is not None:
            raise failed
        return answer

    async def _exchange(self, method: str, path: str, content: bytes = b"", kind: str = "") -> httpx.Response:
        """A response with status 200."""
        server = next(self._turns)
        url = f"{server.removesuffix('/v1')}{path}" if path.startswith("/") else f"{server}/{path}"
        try:
            self._connected()
            async with self._slots:  # waiting for one's turn is no delay of the server's
                # Read now: a token may end during the wait.
                key = await asyncio.to_thread(self._key.read) if self._key.ends else self._key.read()
                headers = {**self._options.headers, **({"Content-Type": kind} if kind else {}), **self._key_header(key)}
                query = dict(self._options.query) or None
                self.requests += 1
                async with asyncio.timeout(self._options.timeout):
                    send = self._connected().request
                    response = await send(method, url, content=content, params=query, headers=headers)
        except TimeoutError:
            message = f"no complete answer within {self._options.timeout:g} s from {url}"
            raise BackendError("timeout", message, retryable=True) from None
        except (OSError, httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError) as error:
            raise http_errors.from_exception(error, url) from None
        if response.status_code != 200:
            raise self._failure(response, key)
        return response

    def _key_header(self, key: str | None) -> dict[str, str]:
        name = self._options.key_header
        return {} if not key else {name: f"Bearer {key}" if name.lower() == "authorization" else key}

    def _failure(self, response: httpx.Response, key: str | None) -> BackendError:
        # Redacted before the message is shortened: a cut through a key would leave its start.
        message = self._key.redact(http_errors.message_of(response.content, longest=2**14))
        error = http_errors.from_status(response.status_code, response.headers, message)
        if error.kind != "auth":
            return error
        if not key:
            return BackendError("auth", f"{error.message}; no key was sent", hint=NO_KEY_SENT_HINT)
        return BackendError("auth", error.message, hint=f"Check {self._key.source()}, and what it may be used for")

    def _connected(self) -> httpx.AsyncClient:
        loop, options = asyncio.get_running_loop(), self._options
        if self._loop is not loop:
            slots = options.max_in_flight * len(self.urls) + 1
            self._loop, self._client, self._slots = loop, None, asyncio.Semaphore(slots)
        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(options.timeout, connect=min(options.timeout, _CONNECTED_WITHIN)),
                limits=httpx.Limits(),  # the slots are the limit
                headers=self.headers,
                trust_env=options.proxy,
                verify=httpx.create_ssl_context(),
            )
        return self._client


async def with_retries(ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
    """Await ``ask(*args, **options)``; on a transient failure retry, up to four attempts, or twelve if it is busy.

    The pause is what the server asks for, or short. Raises the last `BackendError`.
    """
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(_is_transient),
        stop=_is_given_up,
        wait=_pause,
        before_sleep=tenacity.before_sleep_log(log, logging.INFO),
        reraise=True,
    )
    return await retrying(ask, *args, **options)


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, BackendError) or not error.retryable or error.kind not in _TRANSIENT:
        return False
    return (error.retry_after or 0.0) <= LONGEST_ASKED_PAUSE


def _is_given_up(state: tenacity.RetryCallState) -> bool:
    is_busy = _error_of(state).kind == "rate_limited"
    return state.attempt_number >= (_RATE_LIMITED_ATTEMPTS if is_busy else _ATTEMPTS)


def _pause(state: tenacity.RetryCallState) -> float:
    asked = _error_of(state).retry_after
    return _BACKOFF(state) if asked is None else asked


def _error_of(state: tenacity.RetryCallState) -> BackendError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, BackendError)
    return error


async def together(requests: Iterable[Awaitable[T]]) -> list[T]:
    """All answers, in order. Raises the first failure once all have ended: what was paid for is kept by its caller."""
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers  # type: ignore[return-value]

"""The HTTP client: one per host, with limits on time, connections and bodies.

Redirects are not followed, a proxy is used only if one is named, TLS is verified, and a key is sent only to
the host that it was given for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import httpx

from backends.errors import BackendError
from backends.http import errors as http_errors
from backends.http.keys import NO_KEY_SENT_HINT, Credential
from backends.http.options import HttpOptions

#: Seconds to connect. A server of plain http may wait for ever for the rest of what begins as TLS.
_CONNECTED_WITHIN = 15.0
#: Maximum size of a body. A list of Gemma's whole vocabulary takes 24 MB.
MAX_BODY_BYTES = 32 * 2**20


class HttpClient:
    """Sends requests to one server and returns JSON, or raises `BackendError`.

    Parameters
    ----------
    base_url : str
        Ends in ``/v1`` or similar. Paths that start with ``/`` are relative to the URL without ``/v1``.
    options : HttpOptions
    key : Credential
    connections : int, optional
        Most requests at a time. Default: one more than the options say, for a check of the answers beside them.

    Attributes
    ----------
    requests : int
        How many were sent, including failed ones and those to the tokenizer.
    """

    def __init__(self, base_url: str, options: HttpOptions, key: Credential, *, connections: int | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._root = self.base_url.removesuffix("/v1")
        self._options, self._key = options, key
        self._max_connections = connections or options.max_in_flight + 1
        self.requests = 0
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(self._max_connections)

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

    async def download(self, path: str, longest: int) -> bytes:
        """The content at a path, at most ``longest`` bytes, with keys removed."""
        _, body = await self._exchange("GET", path, longest=longest)
        try:
            return self._key.redact(body.decode("utf-8-sig"), words=False).encode()
        except UnicodeDecodeError:
            raise BackendError("malformed", f"{len(body)} bytes that are no text", retryable=True) from None

    async def _json(self, method: str, path: str, content: bytes = b"", kind: str = "") -> dict[str, Any]:
        response, body = await self._exchange(method, path, content, {"Content-Type": kind} if kind else {})
        try:
            text = body.decode("utf-8-sig")  # bytes that are no UTF-8, replaced, would be stored as the model's own
            if "\\u" in text:  # so may the key be written
                text = json.dumps(json.loads(text), ensure_ascii=False)
            answer = json.loads(self._key.redact(text, words=False))
        except (ValueError, RecursionError):
            raise BackendError("malformed", f"{len(body)} bytes that are not JSON", retryable=True) from None
        if not isinstance(answer, dict):
            raise BackendError("malformed", "JSON that is not an object", retryable=True)
        failed = http_errors.from_error_body(answer, response.headers)
        if failed is not None:
            raise failed
        return answer

    async def _exchange(
        self,
        method: str,
        path: str,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        longest: int = MAX_BODY_BYTES,
    ) -> tuple[httpx.Response, bytes]:
        """A response with status 200, and its body. A token that is refused is renewed once."""
        url = f"{self._root}{path}" if path.startswith("/") else f"{self.base_url}/{path}"
        self._connected()
        try:
            async with self._slots:  # waiting for one's turn is no delay of the server's
                # Read now: a token may end during the wait.
                key = await asyncio.to_thread(self._key.read) if self._key.ends else self._key.read()
                response, body = await self._sent(method, url, content, headers, key, longest)
                renewed = None
                if response.status_code in (401, 403) and self._key.ends:
                    renewed = await asyncio.to_thread(self._key.renewed, key or "")
                if renewed:
                    response, body = await self._sent(method, url, content, headers, renewed, longest)
        except TimeoutError:
            message = f"no complete answer within {self._options.timeout:g} s from {url}"
            raise BackendError("timeout", message, retryable=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError) as error:
            raise http_errors.from_exception(error, url, self._options.proxy_shown) from None
        if response.status_code != 200:
            raise self._failure(response, body, key)
        return response, body

    async def _sent(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str] | None, key: str | None, longest: int
    ) -> tuple[httpx.Response, bytes]:
        self.requests += 1
        sent = {**self._options.headers, **(headers or {}), **self._key_header(key)}
        query = dict(self._options.query) or None
        async with (
            asyncio.timeout(self._options.timeout),
            self._connected().stream(method, url, content=content, params=query, headers=sent) as response,
        ):
            return response, await _body(response, longest)

    def _key_header(self, key: str | None) -> dict[str, str]:
        name = self._options.key_header
        return {} if not key else {name: f"Bearer {key}" if name.lower() == "authorization" else key}

    async def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    def _failure(self, response: httpx.Response, body: bytes, key: str | None) -> BackendError:
        # Redacted before the message is shortened: a cut through a key would leave its start.
        message = self._key.redact(http_errors.message_of(body, longest=2**14))
        error = http_errors.from_status(response.status_code, response.headers, message)
        if error.kind != "auth":
            return error
        source = self._key.source()
        if not key:
            why = f"{source} is empty or not set" if source else "api_key_env names none"
            return BackendError("auth", f"{error.message}; no key was sent: {why}", hint=NO_KEY_SENT_HINT)
        hint = f"Check {source}, and what it may be used for" if source else error.hint
        return BackendError("auth", error.message, hint=hint)

    def _connected(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            most = self._max_connections
            if self._loop is not loop:
                self._loop, self._slots = loop, asyncio.Semaphore(most)
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(self._options.timeout, connect=min(self._options.timeout, _CONNECTED_WITHIN)),
                limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
                headers={"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": "bias-audit"},
                trust_env=False,
                proxy=self._options.proxy_url,
                verify=self._options.trusted(),
                follow_redirects=False,
            )
        return self._client


async def _body(response: httpx.Response, longest: int) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > longest:
            raise BackendError("malformed", f"a body of more than {longest // 2**20} MiB")
    return bytes(body)


#: The server that all requests of this task go to.
_ONLY: ContextVar[HttpClient | None] = ContextVar("_ONLY", default=None)


class SeveralServers(HttpClient):
    """Offers `HttpClient.post` over several servers that were seen to serve one model.

    A request that fails is not passed on, since it may have been charged: whoever retries it gets the next server.
    """

    def __init__(self, clients: Sequence[HttpClient]) -> None:
        self.clients, self.base_url = tuple(clients), clients[0].base_url
        self._asked = 0

    @property
    def requests(self) -> int:  # type: ignore[override]
        """How many were sent to all servers."""
        return sum(client.requests for client in self.clients)

    @contextlib.contextmanager
    def only(self, client: HttpClient) -> Iterator[None]:
        """All requests of this task go to one server."""
        token = _ONLY.set(client)
        try:
            yield
        finally:
            _ONLY.reset(token)

    async def post(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        self._asked += 1
        client = _ONLY.get() or self.clients[self._asked % len(self.clients)]
        return await client.post(path, payload)

    async def close(self) -> None:
        for client in self.clients:
            await client.close()

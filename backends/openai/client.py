"""The HTTP client: one per host, with limits on time, connections and bodies.

Redirects are not followed, proxies and settings from the environment are not used, TLS is
verified, and a key is only sent to the host it was given for.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from backends.errors import BackendError
from backends.openai import errors as http_errors
from backends.openai.auth import ApiKey

#: Longest body that is read, after decompression. The whole vocabulary of Gemma is 24 MB.
MAX_BODY_BYTES = 32 * 2**20


class HttpClient:
    """Posts JSON and gets JSON, or raises `BackendError`.

    Parameters
    ----------
    base_url : str
        Ends in ``/v1`` or the like. Paths that start with ``/`` are taken from its host's root,
        or from what stands before the ``/v1``.
    timeout : float
        Seconds for a whole attempt, from connecting to the last byte.

    Attributes
    ----------
    requests : int
        How many were sent, the tokenizer's and those that failed included.
    """

    def __init__(self, base_url: str, key: ApiKey, *, timeout: float, max_connections: int) -> None:
        self.base_url = base_url.rstrip("/")
        self._root = self.base_url.removesuffix("/v1")
        self._key, self._timeout, self._max_connections = key, timeout, max_connections
        self.requests = 0
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(
        self, path: str, payload: dict[str, Any], *, accept: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> dict[str, Any]:
        """The JSON object that answers ``payload``.

        ``accept`` raises `BackendError` for an answer that cannot belong to this request. Its
        connection may then be out of step, and is dropped before another request gets it.
        """
        url = f"{self._root}{path}" if path.startswith("/") else f"{self.base_url}/{path}"
        key = self._key.read()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.requests += 1
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._connected().stream("POST", url, content=json.dumps(payload), headers=headers) as response,
            ):
                try:
                    answer = self._parsed(response, await _body(response))
                    accept(answer)
                except RecursionError:
                    await _drop_connection(response)
                    raise BackendError("malformed", "JSON nested too deeply", retryable=True) from None
                except BackendError as error:
                    if error.kind in ("malformed", "inconsistent"):
                        await _drop_connection(response)
                    raise
                return answer
        except TimeoutError:
            raise BackendError("timeout", f"no whole answer within {self._timeout:g} s", retryable=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError) as error:
            raise http_errors.from_exception(error) from None

    async def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    def _parsed(self, response: httpx.Response, body: bytes) -> dict[str, Any]:
        if response.status_code != 200:
            # Taken out before the message is cut: a cut through the key would leave its start.
            message = self._key.redact(http_errors.message_of(body, longest=2**14))
            raise http_errors.from_status(response.status_code, response.headers, message)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise BackendError("malformed", f"{len(body)} bytes that are not JSON", retryable=True) from None
        if not isinstance(answer, dict):
            raise BackendError("malformed", "JSON that is not an object", retryable=True)
        repeated = self._key.is_repeated_by(body, answer)
        shown = json.loads(self._key.redact(json.dumps(answer, ensure_ascii=False))) if repeated else answer
        failed = http_errors.from_error_body(shown, response.headers)
        if failed is not None:
            raise failed
        if repeated:
            hint = "It would be stored with the answer. Check the proxy or gateway in front of the model"
            raise BackendError("inconsistent", "the answer repeats the API key", hint=hint)
        return answer

    def _connected(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            self._client = httpx.AsyncClient(
                timeout=self._timeout,
                limits=httpx.Limits(
                    max_connections=self._max_connections, max_keepalive_connections=self._max_connections
                ),
                headers={"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": "bias-audit"},
                trust_env=False,
                follow_redirects=False,
            )
        return self._client


async def _body(response: httpx.Response) -> bytes:
    declared = response.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise _too_long()
    body = bytearray()
    async for part in _decompressed(response):
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _too_long()
    return bytes(body)


async def _drop_connection(response: httpx.Response) -> None:
    """Close the socket under a response: the pool sees that and never uses the connection again."""
    stream = response.extensions.get("network_stream")
    if stream is not None:
        await stream.aclose()


async def _decompressed(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body in parts of bounded size: httpx would decompress a whole network read at once."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        async for part in response.aiter_raw():
            yield part
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise BackendError("malformed", "a body in a compression that was not asked for")
    decompressor = zlib.decompressobj(wbits=47)  # 47: a gzip or zlib header, whichever comes
    try:
        async for compressed in response.aiter_raw():
            rest = compressed
            while rest and not decompressor.eof:
                yield decompressor.decompress(rest, 2**20)
                rest = decompressor.unconsumed_tail
    except zlib.error:
        raise BackendError("malformed", "a compressed body that cannot be decompressed", retryable=True) from None
    if not decompressor.eof:
        raise BackendError("malformed", "a compressed body that ends too early", retryable=True)


def _too_long() -> BackendError:
    return BackendError("malformed", f"a body of more than {MAX_BODY_BYTES // 2**20} MiB")

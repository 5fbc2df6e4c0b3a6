"""The HTTP side: every failure has its kind, nothing outgrows its limit, and the key stays secret."""

from __future__ import annotations

import asyncio
import gzip
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from backends.errors import BackendError
from backends.http.client import HttpClient
from backends.http.options import HttpOptions

KEY = "sk-canary-7f3a91d2c4"


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Scripted:
    """A raw server that answers each connection with the coroutine it was given."""

    def __init__(self) -> None:
        self.port, self.seen = 0, b""
        self.answer: Answer = says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.seen += await reader.readuntil(b"\r\n\r\n")
            await self.answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def says(data: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return answer


def status(code: int, body: bytes = b"{}", headers: str = "") -> Answer:
    return says(f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    script = Scripted()
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    yield script
    server.close()


def connected(url: str, **options: Any) -> HttpClient:
    known = HttpOptions.checked(**{"base_url": url, "model": "m", "timeout": 100.0, **options})
    return HttpClient(known)


def client_of(script: Scripted, *, timeout: float = 100.0, env: str | None = None) -> HttpClient:
    return connected(f"http://127.0.0.1:{script.port}/v1", timeout=timeout, api_key_env=env)


async def failure(script: Scripted, **options: Any) -> BackendError:
    client = client_of(script, **options)
    with pytest.raises(BackendError) as caught:
        await client.post("completions", {"prompt": "x"})
    await client.close()
    return caught.value


async def test_bytes_that_are_no_text_are_refused_and_a_byte_order_mark_is_none_of_it(scripted: Scripted) -> None:
    scripted.answer = status(200, b'{"text": "\xff\xfe\xc0"}')
    error = await failure(scripted)
    assert (error.kind, error.retryable) == ("malformed", True)
    scripted.answer = status(200, b'\xef\xbb\xbf{"text": "\xc3\xa9"}')
    client = client_of(scripted)
    assert await client.post("completions", {"prompt": "x"}) == {"text": "\u00e9"}
    await client.close()


async def test_a_429_carries_the_time_to_wait(scripted: Scripted) -> None:
    scripted.answer = status(429, headers="Retry-After: 7\r\n")
    error = await failure(scripted)
    assert (error.kind, error.retryable, error.retry_after) == ("rate_limited", True, 7.0)


async def test_a_server_that_drips_bytes_ends_within_the_time_limit(scripted: Scripted) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    scripted.answer = drip
    async with asyncio.timeout(100):
        assert (await failure(scripted, timeout=0.5)).kind == "timeout"


async def test_a_redirect_is_not_followed(scripted: Scripted) -> None:
    scripted.answer = status(307, headers=f"Location: http://127.0.0.1:{scripted.port}/elsewhere\r\n")
    assert (await failure(scripted)).kind == "bad_request"
    assert b"/elsewhere" not in scripted.seen


async def test_a_proxy_from_the_environment_is_not_used(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    client = client_of(scripted)
    assert await client.post("completions", {}) == {}
    await client.close()


@pytest.mark.parametrize(
    "answer",
    [
        says(b""),
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"),
        says(b"garbage\r\n\r\n"),
        status(200, b"<html>"),
        status(200, b"[1]"),
        status(200, b"{" * 100_000),
        status(200, b"\xff\xfe\x00"),
        status(200, gzip.compress(b"{}" * 500)[:-9], "Content-Encoding: gzip\r\n"),
        status(200, b"{}", "Content-Encoding: gzip\r\n"),
    ],
    ids=["closed", "cut", "no http", "html", "list", "deep", "utf16", "cut gzip", "no gzip"],
)
async def test_a_broken_answer_is_retried_and_never_read(answer: Answer, scripted: Scripted) -> None:
    scripted.answer = answer
    error = await failure(scripted)
    assert error.retryable
    assert error.kind in ("connection", "malformed")


@pytest.mark.parametrize("code", [400, 401, 403, 404, 429, 500, 503, 307, 200])
async def test_the_key_is_sent_and_shown_nowhere(
    code: int, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TEST_AUDIT_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    body = b'{"error": {"message": "Incorrect API key provided: ' + KEY.encode() + b'", "type": "x"}}'
    scripted.answer = status(code, body)
    error = await failure(scripted, env="TEST_AUDIT_KEY")
    assert b"authorization: bearer " + KEY.encode() in scripted.seen.lower()
    shown = [str(error), repr(error), str(error.to_json()), caplog.text, "".join(traceback.format_exception(error))]
    assert not any(KEY in text for text in shown)


async def test_a_proxy_is_used_if_the_options_say_so(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://me:secret@127.0.0.1:{scripted.port}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    client = connected("http://host.example/v1", proxy=True)
    assert await client.post("completions", {}) == {}
    assert scripted.seen.startswith(b"POST http://host.example/v1/completions")
    scripted.answer = status(502)
    with pytest.raises(BackendError) as caught:
        await client.post("completions", {})
    await client.close()
    assert "secret" not in str(caught.value)

"""The HTTP side: every failure has its kind, nothing outgrows its limit, and the key stays unseen."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import logging
import time
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.base import ScoreRequest
from backends.errors import BackendError, ConfigError
from backends.openai import OpenAIBackend
from backends.openai.auth import ApiKey
from backends.openai.client import HttpClient
from backends.openai.errors import ERROR_OF_EXCEPTION, from_exception, from_status, message_of
from backends.openai.retries import seconds_to_wait

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


def client_of(script: Scripted, *, timeout: float = 5.0, env: str | None = None) -> HttpClient:
    return HttpClient(f"http://127.0.0.1:{script.port}/v1", ApiKey(env, None), timeout=timeout, max_connections=2)


async def failure(script: Scripted, **options: Any) -> BackendError:
    client = client_of(script, **options)
    with pytest.raises(BackendError) as caught:
        await client.post("completions", {"prompt": "x"})
    await client.close()
    return caught.value


def test_every_exception_of_httpx_is_mapped() -> None:
    abstract = (httpx.HTTPError, httpx.RequestError, httpx.TransportError, httpx.ProtocolError)
    found = [
        e
        for _, e in inspect.getmembers(httpx, inspect.isclass)
        if issubclass(e, Exception) and e not in abstract and not issubclass(e, Warning)
    ]
    assert len(found) >= 20
    for error in found:
        assert any(ancestor in ERROR_OF_EXCEPTION for ancestor in error.__mro__), f"{error.__name__} is not mapped"


def test_an_exception_that_is_not_mapped_is_internal() -> None:
    assert from_exception(RuntimeError("x")).kind == "internal"


@pytest.mark.parametrize(
    ("code", "said", "kind", "retryable"),
    [
        (400, "invalid value", "bad_request", False),
        (400, "maximum context length is 2048 tokens", "context_length", False),
        (401, "", "auth", False),
        (402, "", "quota", False),
        (404, "", "not_found", False),
        (408, "", "timeout", True),
        (429, "slow down", "rate_limited", True),
        (429, "insufficient_quota You exceeded your current quota", "quota", False),
        (500, "3 validation errors", "bad_request", False),
        (500, "oops", "server", True),
        (501, "", "unsupported", False),
        (503, "", "server", True),
        (307, "", "bad_request", False),
    ],
)
def test_each_status_has_its_kind(code: int, said: str, kind: str, retryable: bool) -> None:
    error = from_status(code, {}, said)
    assert (error.kind, error.retryable) == (kind, retryable)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "1e9"}, 1e9),
        ({"retry-after": formatdate(1_000_060, usegmt=True)}, 60.0),
        ({"retry-after": formatdate(999_000, usegmt=True)}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"x-ms-retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_form_and_nonsense_is_no_advice(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert seconds_to_wait(headers, now=lambda: 1_000_000.0) == seconds


async def test_a_429_carries_the_time_to_wait(scripted: Scripted) -> None:
    scripted.answer = status(429, headers="Retry-After: 7\r\n")
    error = await failure(scripted)
    assert (error.kind, error.retryable, error.retry_after) == ("rate_limited", True, 7.0)


async def test_a_hung_server_ends_within_the_time_limit(scripted: Scripted) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    scripted.answer = hang
    started = time.monotonic()
    error = await failure(scripted, timeout=0.5)
    assert error.kind == "timeout"
    assert 0.45 <= time.monotonic() - started <= 0.8


async def test_a_server_that_drips_bytes_ends_within_the_time_limit_too(scripted: Scripted) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    scripted.answer = drip
    started = time.monotonic()
    assert (await failure(scripted, timeout=0.5)).kind == "timeout"
    assert time.monotonic() - started <= 0.8


async def test_a_gzip_bomb_of_200_megabytes_costs_less_than_64(scripted: Scripted) -> None:
    bomb = gzip.compress(bytes(200 * 2**20), compresslevel=9)
    scripted.answer = status(200, bomb, "Content-Encoding: gzip\r\n")
    tracemalloc.start()
    error = await failure(scripted, timeout=30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.kind == "malformed"
    assert "MiB" in error.message
    assert peak < 64 * 2**20


async def test_a_packed_body_of_usual_size_is_read(scripted: Scripted) -> None:
    scripted.answer = status(200, gzip.compress(b'{"a": 1}'), "Content-Encoding: gzip\r\n")
    client = client_of(scripted)
    assert await client.post("completions", {}) == {"a": 1}
    await client.close()


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


async def test_a_refused_connection_is_retried() -> None:
    client = HttpClient("http://127.0.0.1:9/v1", ApiKey(None, None), timeout=5, max_connections=1)
    with pytest.raises(BackendError) as caught:
        await client.post("completions", {})
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)


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


def test_the_key_is_in_no_repr_and_no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUDIT_KEY", KEY)
    backend = OpenAIBackend("https://host.example/v1", model="m", api_key_env="TEST_AUDIT_KEY")
    backend.check()
    assert KEY not in repr(backend) + backend.endpoint + str(vars(backend))
    monkeypatch.setenv("TEST_AUDIT_KEY", KEY + "2")
    assert backend.endpoint != OpenAIBackend("https://host.example/v1", model="m", api_key_env=None).endpoint


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"base_url": "ftp://host/v1"}, "base_url"),
        ({"base_url": "host/v1"}, "base_url"),
        ({"base_url": "https://user:secret@host/v1"}, "base_url"),
        ({"base_url": "https://host/v1?key=secret"}, "base_url"),
        ({"model": ""}, "model"),
        ({"timeout": 0}, "timeout"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"samples": 0}, "samples"),
        ({"max_cost": 1.0}, "max_cost"),
        ({"base_url": "https://host.example/v1", "api_key_env": "TEST_NO_SUCH_KEY"}, "api_key_env"),
    ],
)
def test_bad_input_is_told_with_its_field_and_without_secrets(options: dict[str, Any], field: str) -> None:
    given = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key_env": None, **options}
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend(**given).check()
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("none", [None, ""])
@pytest.mark.parametrize("url", ["http://192.168.1.5:8000/v1", "http://vllm:8000/v1", "https://models.example.org/v1"])
def test_a_server_elsewhere_that_asks_for_no_key_can_be_used(url: str, none: str | None) -> None:
    OpenAIBackend(url, model="m", api_key_env=none).check()


@pytest.mark.parametrize("value", [None, KEY])
def test_how_to_name_no_key_is_told_for_each_way_of_naming_one(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if value:
        monkeypatch.setenv("OPENAI_API_KEY", value)
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend("http://192.168.1.5:8000/v1", model="m").check()
    for way in ("api_key_env=None", 'api_key_env = ""', '--api-key-env ""'):
        assert way in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:sesame@host:80a/v1",
        "https://user:ses/same@host:80a/v1",
        "user:sesame@host/v1",
        "https://host:80a/v1?api_key=sesame",
    ],
)
def test_a_url_that_cannot_be_read_is_told_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend(url, model="m", api_key_env=None).check()
    assert caught.value.field == "base_url"
    assert not any(part in str(caught.value) for part in ("ses", "same", "user"))


@pytest.mark.parametrize(
    ("said", "wait", "kind"),
    [
        ("You exceeded your current quota, please check your plan and billing. Please retry in 38 s.", "38", None),
        ("exceeded call rate limit of your pricing tier. See aka.ms/oai/quotaincrease", "7", None),
        ("You exceeded your current quota, please check your plan. Please retry in 38.2s.", "", None),
        ("Resource has been exhausted (e.g. check quota).", "", None),
        ("insufficient_quota You exceeded your current quota", "7", "quota"),
        ("You exceeded your current quota", "", "quota"),
    ],
)
def test_a_quota_that_comes_back_by_itself_is_waited_for(said: str, wait: str, kind: str | None) -> None:
    error = from_status(429, {"retry-after": wait} if wait else {}, said)
    assert error.kind == (kind or "rate_limited")
    assert error.retryable is (kind is None)


def test_a_wait_that_only_googles_text_tells_is_kept() -> None:
    body = b'[{"error": {"code": 429, "message": "Quota exceeded. Please retry in 38.2s."}}]'
    assert from_status(429, {}, message_of(body)).retry_after == 38.2


@pytest.mark.parametrize(
    "url",
    ["https://host/v1?user=me@example.org&api_key=sesame", "https://host/v1?api_key=se@same", "https://a:b@host/v1"],
)
def test_a_url_that_can_be_read_is_told_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend(url, model="m", api_key_env=None).check()
    assert caught.value.value == "https://host/v1"


def test_a_key_does_not_travel_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUDIT_KEY", KEY)
    with pytest.raises(ConfigError, match="unencrypted") as caught:
        OpenAIBackend("http://host.example/v1", model="m", api_key_env="TEST_AUDIT_KEY").check()
    assert KEY not in str(caught.value)


def test_a_key_file_is_read_only_when_it_is_private(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    file.chmod(0o644)
    backend = OpenAIBackend("https://host.example/v1", model="m", key_file=file)
    with pytest.raises(ConfigError, match="chmod 600"):
        backend.check()
    file.chmod(0o600)
    backend.check()


async def test_a_server_that_is_not_there_is_an_answer_and_not_an_exception(tmp_path: Path) -> None:
    backend = OpenAIBackend("http://127.0.0.1:9/v1", model="m", api_key_env=None, probe_folder=tmp_path)
    (answer,) = await backend.run([ScoreRequest("a", (" b",))])
    assert isinstance(answer, BackendError)
    assert answer.kind == "connection"

"""What the user sends along: it reaches the server, and enters the fingerprint where it may change an answer."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, GenerateResponse, Message
from backends.errors import BackendError, ConfigError
from backends.http.keys import ApiKeys, BearerToken
from backends.openai import OpenAIBackend
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import DEPRECATED, MODEL, StrictServer, refusal, varied

ASKED = GenerateRequest((Message("user", "Who?"),))


def backend_of(server: StrictServer, folder: Path, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(
        options.pop("base_url", server.base_url), model=MODEL, probe_folder=folder, **{"api_key_env": None, **options}
    )


async def fingerprint(server: StrictServer, folder: Path, **options: Any) -> dict[str, Any]:
    backend = backend_of(server, folder, **options)
    found = dict((await backend.describe()).fingerprint)
    await backend.close()
    return found


class Azure(StrictServer):
    """Azure's older endpoint: a deployment's path, ``api-version`` in the query, the key in ``api-key``.

    Microsoft's reference of the data plane: without the version, 404 "Resource not found"; a wrong key, 401.
    """

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        path, _, query = path.partition("?")
        if query != "api-version=2024-10-21":
            return refusal(404, "Resource not found")
        if "api-key: key-of-azure" not in self.headers[-1]:
            return refusal(401, "Access denied due to invalid subscription key or wrong API endpoint.")
        return super().reply(path.replace("/openai/deployments/gpt", "/v1"), sent)


async def test_azures_version_and_key_header_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_KEY", "key-of-azure")
    async with Azure(DEPRECATED, varied).running() as server:
        url = server.base_url.removesuffix("/v1") + "/openai/deployments/gpt"
        known = {"base_url": url, "api_key_env": "AZURE_KEY", "key_header": "api-key"}
        backend = backend_of(server, tmp_path, **known, query={"api-version": "2024-10-21"})
        description = await backend.describe()
        answer, *_ = await backend.run([ASKED])
        await backend.close()
    assert isinstance(answer, GenerateResponse), answer
    assert description.fingerprint["query"] == "api-version=2024-10-21"


async def test_what_may_change_an_answer_is_in_the_fingerprint(tmp_path: Path) -> None:
    async with StrictServer(DEPRECATED, varied).running() as server:
        plain = await fingerprint(server, tmp_path / "plain")
        alike = {"service_tier": "flex", "headers": {"X-Title": "audit"}}
        assert await fingerprint(server, tmp_path / "alike", **alike) == plain
        assert server.bodies[-1]["service_tier"] == "flex"
        assert "X-Title: audit" in server.headers[-1]
        pinned = {"provider": {"order": ["one"], "allow_fallbacks": False}}
        for other in ({"extra_body": pinned}, {"headers": {"X-Route": "b"}}, {"reasoning_effort": "low"}):
            assert await fingerprint(server, tmp_path / str(list(other)), **other) != plain, other
        assert server.bodies[-1]["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    "option",
    [
        {"headers": {"Authorization": "Bearer x"}},
        {"query": {"key": "x"}},
        {"extra_body": {"temperature": 1}},
        {"extra_body": {"x": object()}},
        {"base_url": "https://api.openai.com/v1/chat/completions"},
    ],
)
def test_what_would_leak_or_contradict_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend(**{"base_url": "https://h/v1", "model": "m", **option})
    assert next(iter(option)) in caught.value.field


class Keys(StrictServer):
    """Takes one of two keys."""

    good = "key-two-222"

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if f"Bearer {self.good}" not in self.headers[-1]:
            return refusal(401, "Incorrect API key provided")
        return super().reply(path, sent)


async def test_a_key_that_is_refused_is_used_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    monkeypatch.setenv("ONE", "key-one-111")
    monkeypatch.setenv("TWO", "key-two-222")
    async with Keys(DEPRECATED, varied).running() as server:
        backend = backend_of(server, tmp_path, api_key_env=["ONE", "TWO"])
        await backend.describe()
        answers = [(await backend.run([ASKED]))[0] for _ in range(4)]
        await backend.close()
        tried = [head for head in server.headers if "key-one-111" in head]
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    assert len(tried) == 1


def test_no_key_of_several_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "key-one-zebra-111")  # an address in memory has no z
    monkeypatch.setenv("TWO", "key-two-zebra-222")
    backend = OpenAIBackend("https://h/v1", model="m", api_key_env=["ONE", "TWO"])
    backend.check()
    assert isinstance(backend.key, ApiKeys)
    assert backend.key.redact("was key-one-zebra-111, is key-two-zebra-222") == "was [key], is [key]"
    assert "zebra" not in repr(vars(backend)) + backend.endpoint


async def test_a_token_is_renewed_for_each_request(tmp_path: Path) -> None:
    numbers = iter(range(1000, 9999))
    async with StrictServer(DEPRECATED, varied).running() as server:
        backend = backend_of(server, tmp_path, token=lambda: f"token-{next(numbers)}")
        backend.check()
        await backend.describe()
        await backend.close()
        sent = [head.split("Bearer ")[1].split("\r")[0] for head in server.headers]
    assert len(set(sent)) == len(sent) > 3
    assert BearerToken(lambda: "x").identity() == "token"


# -- a company's proxy with its own authority ---------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority's certificate (ca.pem) and one that it signed for localhost (server.pem, key.pem)."""
    folder = tmp_path_factory.mktemp("authority")
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    own = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=A company's own"]
    extensions = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
    subprocess.run([*new, *own, *extensions], cwd=folder, check=True, capture_output=True)
    signed = ["-keyout", "key.pem", "-out", "server.pem", "-subj", "/CN=localhost", "-CA", "ca.pem", "-CAkey", "ca.key"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*new, *signed, *names], cwd=folder, check=True, capture_output=True)
    return folder


@contextlib.asynccontextmanager
async def inspecting_proxy(server: StrictServer, authority: Path) -> AsyncIterator[tuple[int, list[str]]]:
    """A proxy that opens TLS by its own certificate, as companies do: CONNECT, then the server's plain answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem", authority / "key.pem")
    inner = await asyncio.start_server(server._serve, "127.0.0.1", 0, ssl=context)
    asked: list[str] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.split("\r\n")[0])
        there, onward = await asyncio.open_connection("127.0.0.1", inner.sockets[0].getsockname()[1])
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(2**16):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, onward), copy(there, writer))

    outer = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    try:
        yield outer.sockets[0].getsockname()[1], asked
    finally:
        outer.close()
        inner.close()


@pytest.mark.parametrize("trusts", [True, False])
async def test_a_proxy_with_its_own_authority_works_with_its_bundle(
    trusts: bool, authority: Path, tmp_path: Path, waits: list[float]
) -> None:
    server = StrictServer(DEPRECATED, varied)
    async with inspecting_proxy(server, authority) as (port, asked):
        backend = OpenAIBackend(
            "https://localhost:8443/v1",
            model=MODEL,
            api_key_env=None,
            probe_folder=tmp_path,
            proxy=f"http://127.0.0.1:{port}",
            ca_bundle=authority / "ca.pem" if trusts else None,
        )
        backend.check()
        try:
            if trusts:
                assert "generate" in (await backend.describe()).capabilities
            else:
                with pytest.raises(BackendError) as caught:
                    await backend.describe()
                assert "ca_bundle" in str(caught.value)
        finally:
            await backend.close()
    assert set(asked) == {"CONNECT localhost:8443 HTTP/1.1"}


def test_a_proxy_with_a_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="password") as caught:
        OpenAIBackend("https://h/v1", model="m", api_key_env=None, proxy="http://me:secret@proxy:3128").check()
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("MY_PROXY", "http://me:secret@proxy:3128")
    OpenAIBackend("https://h/v1", model="m", api_key_env=None, proxy="MY_PROXY").check()
    monkeypatch.delenv("MY_PROXY")
    with pytest.raises(ConfigError, match="MY_PROXY"):
        OpenAIBackend("https://h/v1", model="m", api_key_env=None, proxy="MY_PROXY").check()

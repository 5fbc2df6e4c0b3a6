"""What the user sends along: it reaches the server, and enters the fingerprint where it may change an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, GenerateResponse, Message
from backends.errors import ConfigError
from backends.http.keys import Credential
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


async def test_a_token_is_renewed_for_each_request(tmp_path: Path) -> None:
    numbers = iter(range(1000, 9999))
    async with StrictServer(DEPRECATED, varied).running() as server:
        backend = backend_of(server, tmp_path, token=lambda: f"token-{next(numbers)}")
        backend.check()
        await backend.describe()
        await backend.close()
        sent = [head.split("Bearer ")[1].split("\r")[0] for head in server.headers]
    assert len(set(sent)) == len(sent) > 3
    assert Credential(token=lambda: "x").identity() == "token"


def test_a_proxy_with_a_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="password") as caught:
        OpenAIBackend("https://h/v1", model="m", api_key_env=None, proxy="http://me:secret@proxy:3128").check()
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("MY_PROXY", "http://me:secret@proxy:3128")
    OpenAIBackend("https://h/v1", model="m", api_key_env=None, proxy="MY_PROXY").check()
    monkeypatch.delenv("MY_PROXY")
    with pytest.raises(ConfigError, match="MY_PROXY"):
        OpenAIBackend("https://h/v1", model="m", api_key_env=None, proxy="MY_PROXY").check()

"""What the backend says of itself and of bad options, without asking its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from backends.base import Message, Prompt, ScoreRequest
from backends.errors import BackendError, ConfigError
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from backends.openai.look import Look
from backends.openai.trackers import ModelChangedError


@pytest.mark.parametrize(
    ("route", "prompt", "times", "tokens"),
    [
        ("sampled", "text", 50, 50 * 6),  # drawn: no token is shorter than a byte
        ("sampled", (Message("user", "chat"),), 1, 1),  # a list of the first token
        ("prompt_logprobs", "text", 3, 3),
        ("echo", "text", 4, 4),  # and one for the prompt alone
    ],
)
def test_request_cost_follows_the_probed_route(
    route: Literal["sampled", "prompt_logprobs", "echo"],
    prompt: Prompt,
    times: int,
    tokens: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = OpenAIBackend("http://h/v1", model="m", api_key_env=None, samples=50, probe_folder=tmp_path)
    found = ServerCapabilities(text_route=route, chat_route="chat_first")
    monkeypatch.setattr(backend, "_look", Look(capabilities=found, lines=()))
    cost = backend.request_cost(ScoreRequest(prompt, (" a", " b", " girl")))
    assert (cost.calls, cost.generated_tokens) == (times, tokens)


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
        ({"ca_bundle": "/no/such/file"}, "ca_bundle"),
        ({"base_url": "https://host.example/v1", "api_key_env": "TEST_NO_SUCH_KEY"}, "api_key_env"),
    ],
)
def test_bad_input_is_reported_with_its_field_and_no_secrets(options: dict[str, Any], field: str) -> None:
    given = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key_env": None, **options}
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend(**given).check()
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:sesame@host:80a/v1",
        "https://user:ses/same@host:80a/v1",
        "user:sesame@host/v1",
        "https://host:80a/v1?api_key=sesame",
    ],
)
def test_an_unreadable_url_is_reported_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend(url, model="m", api_key_env=None).check()
    assert caught.value.field == "base_url"
    assert not any(part in str(caught.value) for part in ("ses", "same", "user"))


@pytest.mark.parametrize(
    "url",
    ["https://host/v1?user=me@example.org&api_key=sesame", "https://host/v1?api_key=se@same", "https://a:b@host/v1"],
)
def test_a_readable_url_is_reported_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend(url, model="m", api_key_env=None).check()
    assert caught.value.value == "https://host/v1"


async def test_an_absent_server_is_returned_as_an_error(tmp_path: Path) -> None:
    backend = OpenAIBackend("http://127.0.0.1:9/v1", model="m", api_key_env=None, probe_folder=tmp_path)
    (answer,) = await backend.run([ScoreRequest("a", (" b",))])
    assert isinstance(answer, BackendError)
    assert answer.kind == "connection"


def test_a_contradicted_server_is_named_by_its_address(tmp_path: Path) -> None:
    backend = OpenAIBackend("http://h/v1", model="m", api_key_env=None, probe_folder=tmp_path)
    backend._distrust(ModelChangedError("its draws do not fit its lists"))
    assert backend.unverified_reason == "its draws do not fit its lists (at http://h/v1)"

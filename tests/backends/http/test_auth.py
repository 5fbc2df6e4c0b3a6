"""The key: where it may come from, and that it stays secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from backends.errors import BackendError, ConfigError
from backends.http.keys import Credential
from backends.openai import OpenAIBackend

KEY = "sk-canary-7f3a91d2c4"


def test_the_key_is_in_no_repr_and_no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUDIT_KEY", KEY)
    backend = OpenAIBackend("https://host.example/v1", model="m", api_key_env="TEST_AUDIT_KEY")
    backend.check()
    assert KEY not in repr(backend) + backend.endpoint + str(vars(backend))
    monkeypatch.setenv("TEST_AUDIT_KEY", KEY + "2")
    assert backend.endpoint != OpenAIBackend("https://host.example/v1", model="m", api_key_env=None).endpoint


@pytest.mark.parametrize("none", [None, ""])
@pytest.mark.parametrize("url", ["http://192.168.1.5:8000/v1", "http://vllm:8000/v1", "https://models.example.org/v1"])
def test_a_server_elsewhere_that_asks_for_no_key_can_be_used(url: str, none: str | None) -> None:
    OpenAIBackend(url, model="m", api_key_env=none).check()


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "http://host.example/v1", "api_key_env": "TEST_AUDIT_KEY"},
        {"base_url": "http://host.example/v1", "token": lambda: KEY},
        {"urls": ["https://one.example/v1", "http://two.example/v1"], "api_key_env": "TEST_AUDIT_KEY"},
    ],
    ids=["key", "token", "replica"],
)
def test_a_key_does_not_travel_unencrypted(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUDIT_KEY", KEY)
    with pytest.raises(ConfigError, match="unencrypted") as caught:
        OpenAIBackend(model="m", **options).check()
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("key", [KEY, "sk-proj-a+b/c=7f3a91d2c4QzXy", 'sk-proj-Zx81/q+Vn~0aB.pT_Lw"77'])
@pytest.mark.parametrize("written", [str, lambda key: json.dumps(key)[1:-1], lambda key: key.replace("/", "\\/")])
def test_a_key_is_taken_out_of_errors_and_answers(
    key: str, written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_AUDIT_KEY", key)
    held, said = Credential("TEST_AUDIT_KEY"), f"refused: {written(key)} is no key"
    assert held.redact(said) == held.redact(said, words=False) == "refused: [key] is no key"


@pytest.mark.parametrize("word", ["secret", "none", "sk-1234", "localtesting"])
def test_a_key_that_is_a_word_may_stand_in_answers(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUDIT_KEY", word)
    held, said = Credential("TEST_AUDIT_KEY"), f"she told me a {word}"
    assert held.redact(said, words=False) == said
    assert held.redact(said) == "she told me a [key]"


def test_what_gives_tokens_may_be_down_for_a_moment() -> None:
    tokens: list[str | OSError] = ["first", OSError("no route to the account"), "second"]

    def source() -> str:
        if isinstance(given := tokens.pop(0), OSError):
            raise given
        return given

    held = Credential(token=source)
    assert held.read() == "first"
    with pytest.raises(BackendError) as caught:
        held.read()
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)
    assert held.read() == "second"


@pytest.mark.parametrize("body", [{"api_key": "s3cret"}, {"provider": {"options": [{"Authorization": "s3cret"}]}}])
def test_a_key_in_extra_body_is_refused_unshown(body: dict[str, object]) -> None:
    """It would be in the fingerprint, and so in the store and the report."""
    with pytest.raises(ConfigError, match="a field for keys") as caught:
        OpenAIBackend("http://127.0.0.1:9/v1", model="m", api_key_env=None, extra_body=body)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("given", [KEY, "hf_abcdEFGHijkl1234mnop5678", "AIzaSyA1234567890abcdefghij"])
def test_a_key_in_place_of_its_variable_is_refused_unshown(given: str) -> None:
    with pytest.raises(ConfigError, match="name of the variable") as caught:
        OpenAIBackend("https://host.example/v1", model="m", api_key_env=given)
    assert caught.value.field == "api_key_env"
    assert KEY not in str(caught.value)
    assert "1234" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "_key2", "MY_COMPANYS_KEY_OF_2026_FOR_AUDITS", "my_companys_key_for_audits"]
)
def test_names_of_variables_are_taken_for_no_key(name: str) -> None:
    OpenAIBackend("http://127.0.0.1/v1", model="m", api_key_env=name)


def test_a_key_in_a_field_that_does_not_exist_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="api_key_env") as caught:
        OpenAIBackend("https://host.example/v1", model="m", api_key=KEY)  # type: ignore[call-arg]
    assert KEY not in str(caught.value)

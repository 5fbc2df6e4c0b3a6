"""The key: where it may come from, and that it stays secret."""

from __future__ import annotations

import base64
import html
import json
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.errors import ConfigError
from backends.http.keys import ApiKeys
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


@pytest.mark.parametrize("value", [None, KEY])
def test_the_hint_says_how_to_name_no_key_in_each_place(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if value:
        monkeypatch.setenv("OPENAI_API_KEY", value)
    with pytest.raises(ConfigError) as caught:
        OpenAIBackend("http://192.168.1.5:8000/v1", model="m").check()
    for way in ("api_key_env=None", 'api_key_env = ""', '--api-key-env ""'):
        assert way in str(caught.value)


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


ODD_KEY = "sk-proj-a+b/c=7f3a91d2c4QzXy"


@pytest.mark.parametrize("key", [KEY, ODD_KEY])
@pytest.mark.parametrize(
    "written",
    [
        lambda key: key,
        lambda key: urllib.parse.quote(key, safe=""),
        lambda key: urllib.parse.quote(key, safe="").replace("%2B", "%2b"),
        lambda key: "".join(f"%{byte:02x}" for byte in key.encode()),
        lambda key: key.removeprefix("sk-"),
        lambda key: key.rpartition("-")[2],
        lambda key: key.encode().hex(),
        lambda key: key.upper(),
        lambda key: key.replace("/", "\\/"),
        *(lambda key, n=n: base64.b64encode(b"user:"[:n] + key.encode() + b"!").decode() for n in range(4)),
        lambda key: base64.urlsafe_b64encode(key.encode()).decode().rstrip("="),
    ],
)
def test_a_key_is_taken_out_in_each_form(key, written, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("TEST_AUDIT_KEY", key)
    held = ApiKeys(("TEST_AUDIT_KEY",), None)
    said = f"refused: {written(key)} is no key"
    redacted = held.redact(said)
    assert "[key]" in redacted
    left = redacted.replace("[key]", " ")
    assert max(map(len, set(left.split()) - set(said.split())), default=0) <= 12
    assert held.is_repeated_by(f'{{"text": "{said}"}}'.encode(), {"text": said})
    assert held.redact(f"no such key: …{key[-9:]}") == "no such key: …[key]"
    assert held.redact("an ordinary sentence about canaries and projects") == (
        "an ordinary sentence about canaries and projects"
    )


QUOTED_KEY = 'sk-proj-Zx81/q+Vn~0aB.pT_Lw"77&yR=Qe$4mKd9'


@pytest.mark.parametrize(
    "written",
    [
        lambda key: key,
        html.escape,
        lambda key: " ".join(key),
        lambda key: key[::-1],
        lambda key: json.dumps(key)[1:-1],
        lambda key: "".join(f"\\u{ord(char):04x}" for char in key),
    ],
    ids=["plain", "HTML", "spaced", "reversed", "JSON", "escapes"],
)
def test_a_key_with_a_quote_is_found_in_each_form(
    written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON writes the quote as two characters: the key was stored with the answers."""
    monkeypatch.setenv("QUOTED_KEY", QUOTED_KEY)
    held, answer = ApiKeys(("QUOTED_KEY",), None), {"text": f"done {written(QUOTED_KEY)} end"}
    assert held.is_repeated_by(json.dumps(answer).encode(), answer)
    assert held.is_repeated_by(json.dumps(answer, ensure_ascii=False).encode(), answer)
    assert held.redact(json.dumps(answer, ensure_ascii=False)) == '{"text": "done [key] end"}'


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz", "AbCdEfGhIjKlMnOpQrStUvWxYz"),  # Hugging Face's tokens hold no digit
        ("gsk_Zt8yQwErTyUiOpAsDfGhJkLz", "Zt8yQwErTyUiOpAsDfGhJkLz"),
        ("gsk_Zt8yQwErTyUiOpAsDfGhJkLz", "UiOpAsDfGhJkLz"),
        ("sk-ABCDEFGH-ijklmnop-QRSTUVWX", "ABCDEFGH-ijklmnop-QRSTUVWX"),
        ("sk-ABCDEFGH-ijklmnop-QRSTUVWX", "sk-ABCDEFGH-****"),
        ("sk-proj-a8KdR2mPq9", "c2stcHJvai1hOEtk"),  # base64 of its first 12 characters
    ],
)
def test_a_key_is_taken_out_whatever_its_prefix_and_letters(
    key: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD_KEY", key)
    redacted = ApiKeys(("ODD_KEY",), None).redact(f"Incorrect API key provided: {said} is not valid")
    left = redacted.removeprefix("Incorrect API key provided: ").removesuffix(" is not valid").replace("[key]", "")
    assert len(left) <= 4, redacted


def test_a_key_of_plain_words_hides_no_word_of_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_KEY", "local-test-server")
    said = "the test server is overloaded: use another server, or test it again"
    assert ApiKeys(("PLAIN_KEY",), None).redact(said) == said


@pytest.mark.parametrize("body", [{"api_key": "s3cret"}, {"provider": {"options": [{"Authorization": "s3cret"}]}}])
def test_a_key_in_extra_body_is_refused_unshown(body: dict[str, object]) -> None:
    """It would be in the fingerprint, and so in the store and the report."""
    with pytest.raises(ConfigError, match="a field for keys") as caught:
        OpenAIBackend("http://127.0.0.1:9/v1", model="m", api_key_env=None, extra_body=body)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "given", [KEY, ["OPENAI_API_KEY", KEY], "hf_abcdEFGHijkl1234mnop5678", "AIzaSyA1234567890abcdefghij"]
)
def test_a_key_in_place_of_its_variable_is_refused_unshown(given: str | list[str]) -> None:
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


def test_no_replica_gets_the_key_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUDIT_KEY", KEY)
    urls = ["https://one.example/v1", "http://two.example/v1"]
    with pytest.raises(ConfigError, match=r"urls = 'http://two.example/v1': the key would be sent unencrypted"):
        OpenAIBackend(urls=urls, model="m", api_key_env="TEST_AUDIT_KEY").check()


def test_a_token_does_not_travel_unencrypted() -> None:
    with pytest.raises(ConfigError, match="unencrypted"):
        OpenAIBackend("http://host.example/v1", model="m", token=lambda: KEY).check()

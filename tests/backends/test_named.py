"""A model by one text."""

import pytest

import backends
from backends import HFBackend, LlamaCppBackend, OpenAIBackend


def test_a_name_says_which_backend(tmp_path):
    (tmp_path / "m.gguf").touch()
    kinds = {
        "org/name": HFBackend,
        str(tmp_path): HFBackend,
        str(tmp_path / "m.gguf"): LlamaCppBackend,
        "http://127.0.0.1:8000/v1#m": OpenAIBackend,
        "fake": backends.FakeBackend,
    }
    assert {name: type(backends.named_backend(name)) for name in kinds} == kinds


@pytest.mark.parametrize(("given", "variable"), [(None, "ANTHROPIC_API_KEY"), ("OTHER_KEY", "OTHER_KEY"), ("", "")])
def test_anthropics_own_api_is_named(given, variable, monkeypatch):
    monkeypatch.setenv(variable or "UNUSED", "sk-of-nobody")
    backend = backends.named_backend("anthropic:claude-x", api_key_env=given, samples=9)
    assert isinstance(backend, backends.AnthropicBackend)
    assert (backend.model, backend.samples) == ("claude-x", 9)
    assert (backend.options.api_key_env or "") == variable


@pytest.mark.parametrize(
    ("name", "given", "variable"),
    [
        ("http://127.0.0.1:8000/v1#m", None, None),
        ("https://host.example/v1#m", None, "OPENAI_API_KEY"),
        ("https://host.example/v1#m", "OTHER_KEY", "OTHER_KEY"),
    ],
)
def test_a_servers_key_is_sent_where_it_is_meant(name, given, variable, monkeypatch):
    said = {}
    monkeypatch.setattr(backends, "OpenAIBackend", lambda url, **options: said.update(options, url=url), raising=False)
    backends.named_backend(name, api_key_env=given)
    assert said == {"url": name.partition("#")[0], "model": "m", "api_key_env": variable, "samples": None}


def test_a_page_of_the_hub_is_told_how_to_write():
    with pytest.raises(backends.ConfigError, match="Give a model of the hub as owner/name"):
        backends.named_backend("https://huggingface.co/org/name")

"""A backend from one string, as models are named on the command line."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import backends
from backends.base import Backend
from backends.catalogue.plugins import plugins
from backends.embedded import EMBEDDED, resolve_embedded
from backends.errors import ConfigError

_KNOWN = (
    "Give a Hugging Face id (org/name), a folder, a .gguf file, a .jsonl file of completions, URL#model, "
    "anthropic:MODEL, vllm:ID or vllm:FOLDER, "
    f"{', '.join(f'embedded:{name}' for name in EMBEDDED)} or fake"
)


def named_backend(name: str, *, api_key_env: str | None = None, samples: int | None = None) -> Backend:
    """The backend of a Hugging Face id, a folder, a .gguf file, a .jsonl file of completions, ``URL#model``,
    ``anthropic:MODEL``, ``embedded:NAME``, ``fake`` or a plugin; ``vllm:`` before an id or folder computes it on vLLM.

    Parameters
    ----------
    api_key_env : str, optional
        The environment variable that holds a server's key. Default: ``OPENAI_API_KEY`` for https, none for http,
        ``ANTHROPIC_API_KEY`` for Anthropic's own API. Empty: none.
    samples : int, optional
        Answers to draw of a server's model that gives no log-probabilities.

    Raises
    ------
    ConfigError
        If the name is none of these, or its file does not exist.
    """
    if name == "fake":
        return backends.FakeBackend()
    if name.startswith("embedded:"):
        return _of_gguf(Path(resolve_embedded(name)))
    if name.startswith(("http://", "https://")):
        return _of_server(name, api_key_env, samples)
    if name.startswith("anthropic:"):
        key = {} if api_key_env is None else {"api_key_env": api_key_env}
        options: dict[str, Any] = {"samples": samples, **key}
        return backends.AnthropicBackend(name.removeprefix("anthropic:"), **options)
    if name.startswith("vllm:"):
        return backends.VLLMBackend(name.removeprefix("vllm:"))
    if name.casefold().endswith(".gguf"):
        return _of_gguf(Path(name).expanduser())
    if name.casefold().endswith(".jsonl"):
        return backends.RecordedBackend(name)
    if name in (added := plugins("backends")):
        backend: Backend = added[name].load()()
        return backend
    is_folder = bool(name) and Path(name).expanduser().is_dir()
    is_id = name.count("/") == 1 and not name.startswith((".", "/", "~")) and not name.endswith("/")
    if is_folder or is_id:
        return backends.HFBackend(name)
    raise ConfigError("--model", name, "neither a folder nor a model's name", _KNOWN)


def _of_server(name: str, api_key_env: str | None, samples: int | None) -> Backend:
    url, _, model = name.partition("#")
    if not model:
        hint = "Give a model of the hub as owner/name" if "huggingface.co" in url else f"Write it as {url}#MODEL"
        raise ConfigError("--model", name, "does not name a model of the server", hint)
    default = "OPENAI_API_KEY" if url.startswith("https://") else None
    key = default if api_key_env is None else api_key_env
    options: dict[str, Any] = {"model": model, "api_key_env": key, "samples": samples}
    return backends.OpenAIBackend(url, **options)


def _of_gguf(path: Path) -> Backend:
    """On llama.cpp if it is installed, else on transformers."""
    if not path.is_file():
        raise ConfigError("--model", str(path), "no such file", _KNOWN)
    if importlib.util.find_spec("llama_cpp") is None and importlib.util.find_spec("transformers") is not None:
        return backends.HFBackend(path)
    return backends.LlamaCppBackend(path)

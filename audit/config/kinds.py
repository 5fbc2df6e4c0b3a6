"""The kinds of backends and suites that a config can name: those that ship, and plugins."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from inspect import isfunction
from typing import Any, Literal

import backends
import suites as suite_package
from backends.base import Backend
from backends.catalogue.plugins import plugins
from backends.errors import ConfigError
from suites.base import Suite

Kind = Literal["backend", "suite"]
_BASES: Mapping[Kind, type] = {"backend": Backend, "suite": Suite}
#: Names of backends in a TOML config.
BACKENDS = {
    "hf": "HFBackend",
    "llamacpp": "LlamaCppBackend",
    "vllm": "VLLMBackend",
    "openai": "OpenAIBackend",
    "anthropic": "AnthropicBackend",
    "fake": "FakeBackend",
    "recorded": "RecordedBackend",
}
#: File endings of suites.
SUITE_FILES = (".csv", ".tsv", ".jsonl", ".parquet", ".toml")


def own_kinds(of: Kind) -> dict[str, Callable[[], Any]]:
    """The classes of this package that a config can name, as functions that import them."""
    if of == "backend":
        return {kind: partial(getattr, backends, name) for kind, name in BACKENDS.items()}
    return {name: partial(getattr, suite_package, name) for name in suite_package.__all__}


def kinds(of: Kind) -> dict[str, Callable[[], Any]]:
    """Those, and the classes and functions of other packages; where names clash, a config means this package's."""
    added = plugins("backends" if of == "backend" else "suites")
    return {**{name: plugin.load for name, plugin in added.items()}, **own_kinds(of)}


def maker_by_name(of: Kind, name: object, field: str) -> Callable[..., Any]:
    """The backend or suite class of that name, or the function of a plugin that returns one.

    Raises `ConfigError` if there is none, or it is something else.
    """
    known = kinds(of)
    if not isinstance(name, str) or name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        did = f"Did you mean {close[0]!r}? " if close else ""
        file = f", or a suite's file ({', '.join(SUITE_FILES)})" if of == "suite" else ""
        file += ', or leave it out and give model = "embedded:smollm2"' if of == "backend" else ""
        raise ConfigError(field, name, "unknown", f"{did}Use one of: {', '.join(known)}{file}")
    found: Callable[..., Any] = known[name]()
    if not isfunction(found) and not (isinstance(found, type) and issubclass(found, _BASES[of])):
        problem = f"a {type(found).__name__}, not a {of} class or a function that returns a {of}"
        raise ConfigError(field, name, problem, "Fix the plugin")
    return found


def made(of: Kind, maker: Callable[..., Any], options: Mapping[str, Any], field: str) -> Any:
    """What the class or function makes of these options, given in ``field``. `ConfigError` if it rejects them."""
    try:
        found = maker(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(field, options, f"{maker.__name__} rejected it: {error}", "Fix that value") from error
    if not isinstance(found, _BASES[of]):
        problem = f"{maker.__name__} returned a {type(found).__name__}, not a {of}"
        raise ConfigError(field, maker.__name__, problem, "Fix the plugin")
    return found

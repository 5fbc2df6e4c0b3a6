"""The kinds of backends and suites that a config can name: those that ship, and plugins."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import backends
import suites as suite_package
from backends.base import Backend
from backends.catalogue.plugins import plugins
from backends.errors import ConfigError
from suites.base import Suite

#: Names of backends in a TOML config.
BACKENDS = {
    "hf": "HFBackend",
    "llamacpp": "LlamaCppBackend",
    "openai": "OpenAIBackend",
    "anthropic": "AnthropicBackend",
    "fake": "FakeBackend",
    "recorded": "RecordedBackend",
}
#: File endings of suites.
SUITE_FILES = (".csv", ".tsv", ".jsonl", ".parquet", ".toml")


def own_kinds(of: Literal["backend", "suite"]) -> dict[str, Callable[[], Any]]:
    """The classes of this package that a config can name, as functions that import them."""
    if of == "backend":
        return {kind: partial(getattr, backends, name) for kind, name in BACKENDS.items()}
    return {name: partial(getattr, suite_package, name) for name in suite_package.__all__}


def kinds(of: Literal["backend", "suite"]) -> dict[str, Callable[[], Any]]:
    """Those, and the classes of other packages; where names clash, a config means this package's."""
    added = plugins("backends" if of == "backend" else "suites")
    return {**{name: plugin.load for name, plugin in added.items()}, **own_kinds(of)}


def class_by_name(of: Literal["backend", "suite"], name: object, field: str) -> Any:
    """The backend or suite class of that name. Raises `ConfigError` if there is none, or it is something else."""
    known = kinds(of)
    if not isinstance(name, str) or name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        did = f"Did you mean {close[0]!r}? " if close else ""
        file = f", or a suite's file ({', '.join(SUITE_FILES)})" if of == "suite" else ""
        file += ', or leave it out and give model = "embedded:smollm2"' if of == "backend" else ""
        raise ConfigError(field, name, "unknown", f"{did}Use one of: {', '.join(known)}{file}")
    found = known[name]()
    if not (isinstance(found, type) and issubclass(found, Backend if of == "backend" else Suite)):
        raise ConfigError(field, name, f"a {type(found).__name__}, not a {of} class", "Fix the plugin")
    return found

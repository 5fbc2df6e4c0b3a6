"""An audit without a config: suites and models by their names and files, as a command line gives them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import backends
import suites as suite_package
from audit.api import Audit
from audit.config import SUITE_FILES, named_class
from backends.base import Backend
from backends.errors import ConfigError
from suites.base import Suite

#: A name of one's own for a model: ``small=embedded:smollm2``.
_OWN_NAME = re.compile(r"([\w. -]+)=(.+)")


def named_audit(
    suites: Sequence[str], models: Sequence[str], *, api_key_env: str | None = None, **options: Any
) -> Audit:
    """The audit of these suites (files, or names of those that ship) on these models (`backends.named_backend`).

    Raises
    ------
    ConfigError
        Naming what is missing, or cannot be used.
    """
    if not suites:
        raise ConfigError("--suite", None, "no suite", "Give a file of your own, or a name of `audit ls suites`")
    if not models:
        raise ConfigError("--model", None, "no model", "Give one or more, e.g. --model embedded:smollm2")
    chosen = [named_suite(name) for name in suites]
    by_name: dict[str, Backend] = {}
    for given in models:
        name, spec = _split(given)
        if name in by_name:
            raise ConfigError("--model", given, f"two models are called {name!r}", f"Write it as NAME={spec}")
        by_name[name] = backends.named_backend(spec, api_key_env=api_key_env)
    title = f"Bias audit: {', '.join(suite.title or suite.name for suite in chosen)}"
    return Audit(by_name, chosen, **{"title": title, **options})


def named_suite(name: str) -> Suite:
    """A suite from its file, or by its name. Raises `ConfigError` for neither."""
    if name.lower().endswith(SUITE_FILES):
        return suite_package.from_file(name)
    suite: Suite = named_class("suite", name, "--suite")()
    return suite


def _split(given: str) -> tuple[str, str]:
    """The name that the report shows, and what it stands for."""
    own = _OWN_NAME.fullmatch(given)
    if own is not None and not Path(given).exists():
        return own[1], own[2]
    last = given.rpartition("#")[2] if "#" in given else given.rstrip("/").rpartition("/")[2]
    return last.removeprefix("embedded:").removesuffix(".gguf") or given, given

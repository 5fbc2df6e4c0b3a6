"""Audits without a config: suites and models given by name or file, as on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import backends
import suites as suite_package
from audit.api.audits import Audit
from audit.config import SUITE_FILES, made, maker_by_name
from backends.base import Backend
from backends.errors import ConfigError
from suites.base import Suite

#: A label for a model: ``small=embedded:smollm2``.
_LABELLED = re.compile(r"([\w. -]+)=(.+)")


def adhoc_audit(
    suites: Sequence[str],
    models: Sequence[str],
    *,
    api_key_env: str | None = None,
    samples: int | None = None,
    **options: Any,
) -> Audit:
    """Build an audit from suites (files, or names of those that ship) and models (see `backends.named_backend`).

    Raises
    ------
    ConfigError
        If no suite or model is given, or one cannot be used.
    """
    if not suites:
        raise ConfigError("--suite", None, "no suite", "Give a file, or a name that `audit ls suites` prints")
    for number, name in enumerate(suites):
        if name in suites[:number]:
            raise ConfigError("--suite", name, "given twice", "Give it once")
    chosen = [load_suite(name) for name in suites]
    by_name: dict[str, Backend] = {}
    if not models:
        if not all(suite.recorded for suite in chosen):
            hint = "Give one or more, e.g. --model embedded:smollm2; only files of stored completions need none"
            raise ConfigError("--model", None, "no model", hint)
        completions = [text for suite in chosen for text in suite.recorded]
        by_name[Path(suites[0]).stem] = backends.RecordedBackend(suites[0], completions=completions)
    for given in models:
        name, spec = _split(given)
        if name in by_name:
            raise ConfigError("--model", given, f"two models are called {name!r}", f"Write one as OTHER_NAME={spec}")
        by_name[name] = backends.named_backend(spec, api_key_env=api_key_env, samples=samples)
    out = Path("audit-out", "+".join(suite.name for suite in chosen))  # another suite's report should stay
    return Audit(by_name, chosen, **{"out": out, **options})


def load_suite(name: str) -> Suite:
    """Load a suite from a file, or by its name. Raises `ConfigError` if it is neither."""
    if name.lower().endswith(SUITE_FILES):
        return suite_package.from_file(name)
    suite: Suite = made("suite", maker_by_name("suite", name, "--suite"), {}, "--suite")
    return suite


def _split(given: str) -> tuple[str, str]:
    """Split into the name that the report shows and the model's specification."""
    labelled = _LABELLED.fullmatch(given)
    if labelled is not None and not Path(given).exists():
        return labelled[1], labelled[2]
    last = given.rpartition("#")[2] if "#" in given else given.rstrip("/").rpartition("/")[2]
    return last.removeprefix("embedded:").removeprefix("anthropic:").removesuffix(".gguf").removesuffix(
        ".jsonl"
    ) or given, given

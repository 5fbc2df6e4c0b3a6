"""The ``sampling`` option of suites that have texts written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from backends.base import Sampling
from backends.errors import ConfigError


def sampling_option(given: Sampling | Mapping[str, Any] | None, default: Sampling) -> Sampling:
    """How texts are drawn: ``default``, with the fields replaced that a mapping names.

    Raises
    ------
    ConfigError
        For a field that does not exist, or a value that it cannot have.
    """
    if isinstance(given, Sampling):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError("sampling", given, "not a table", "Give e.g. {temperature = 0.7, max_tokens = 256}")
    changes = dict(given or {})
    known = [f.name for f in fields(Sampling)]
    if unknown := sorted(set(changes) - set(known)):
        raise ConfigError("sampling", unknown, "no such field", f"Fields are {', '.join(known)}")
    if isinstance(changes.get("stop"), list):
        changes["stop"] = tuple(changes["stop"])
    try:
        return replace(default, **changes)
    except (TypeError, ValueError) as error:
        raise ConfigError("sampling", changes, str(error), "Give another value") from None

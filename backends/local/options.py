"""Options and checks that both local backends share."""

from __future__ import annotations

import importlib.util
import os
from typing import Annotated

from pydantic import Field

from backends.errors import MissingExtra
from backends.options import OnError

_POSITIVE = OnError("not a whole number of at least 1", "Leave it out, or give one")
#: A whole number of at least 1, or None for the default.
OptionalCount = Annotated[Annotated[int, Field(ge=1)] | None, _POSITIVE]


def need_package(field: str, module: str, extra: str, package: str = "") -> None:
    """Raise `MissingExtra` if a package's module is not installed. Does not import it."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(field, package or module, extra)


def available_threads() -> int:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Checks and choices that both local backends share."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from backends.errors import ConfigError, MissingExtra


def need_package(field: str, module: str, extra: str) -> None:
    """Raise `MissingExtra` when a package cannot be imported, without importing it."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(field, module, extra)


def check_count(field: str, value: int | None, least: int) -> None:
    """Raise `ConfigError` unless the value is None or a whole number of at least ``least``."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise ConfigError(field, value, f"not a whole number of at least {least}", "Leave it out, or give one")


def check_file(field: str, path: Path, kind: str) -> None:
    """Raise `ConfigError` unless there is such a file."""
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "no such file"
        raise ConfigError(field, str(path), problem, f"Give the path of a {kind}")


def available_threads() -> int:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

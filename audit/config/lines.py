"""The line of a TOML config on which an option is written, for error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from backends.errors import ConfigError
from backends.options.toml_lines import lines_of


def with_line(error: ConfigError, path: Path) -> ConfigError:
    """The error with the file and line of its field, or of what the field is missing from, if they can be told."""
    if has_line(error.field):  # of another file
        return error
    try:
        line = _toml_line(path.read_text("utf-8"), error.field)
    except (OSError, ValueError):  # the file has changed since it was read
        return error
    if line is None:
        return error
    return ConfigError(f"{path.name}:{line}: {error.field}", error.value, error.problem, error.hint)


def has_line(field: str) -> bool:
    """Whether a field is named with a file and line of its own."""
    return re.search(r":\d+(: |$)", field) is not None


def _toml_line(text: str, field: str) -> int | None:
    """The line of a field, or of the table that it is missing from."""
    shown: Mapping[str, int] = {
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix("."): line
        for place, line in lines_of(text).items()
    }
    above = [name for name in shown if field == name or field.startswith((f"{name}.", f"{name}["))]
    return shown[max(above, key=len)] if above else None

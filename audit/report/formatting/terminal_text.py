"""All output to the terminal goes through here: no control characters, no markup, no encoding errors."""

from __future__ import annotations

import codecs
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

from audit.report.formatting.safe_text import visible

if TYPE_CHECKING:
    from rich.console import Console


def say(text: object, *, to_stderr: bool = False) -> None:
    """Print text with invisible characters replaced. A closed stderr is ignored."""
    with contextlib.suppress(OSError) if to_stderr else contextlib.nullcontext():
        print(visible(str(text)), file=sys.stderr if to_stderr else sys.stdout, flush=True)


def say_json(data: Any, *, indent: int | None = None) -> None:
    """Print JSON in ASCII, which every encoding can represent and no terminal interprets."""
    print(json.dumps(data, indent=indent), flush=True)


def plain_console() -> Console:
    """A console that interprets nothing as markup or emoji names, and colours no numbers.

    A closed pipe raises `BrokenPipeError`, as when printing otherwise.
    """
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise

    return Plain(markup=False, emoji=False, highlight=False)


#: What is printed where an encoding lacks a sign: ``\\u2212`` before digits would read as a number.
_PLAIN = {"−": "-", "–": "-", "•": "*", "…": "...", "→": "->", "≥": ">=", "≤": "<=", "±": "+/-", "×": "x", "’": "'"}


def make_encodable() -> None:
    """Let stdout and stderr print what their encoding lacks in plain signs, or escaped, instead of failing."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    if sign := _PLAIN.get(lacking[0]):
        return sign, error.start + 1
    return codecs.backslashreplace_errors(error)

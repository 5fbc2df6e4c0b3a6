"""The one way in which text reaches a terminal: no control characters, no markup, no encoding that fails."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

from audit.report.formatting.safe_text import visible

if TYPE_CHECKING:
    from rich.console import Console


def say(text: object, *, to_stderr: bool = False) -> None:
    """Print text for a person, each invisible character of it written out. A closed stderr takes nothing."""
    with contextlib.suppress(OSError) if to_stderr else contextlib.nullcontext():
        print(visible(str(text)), file=sys.stderr if to_stderr else sys.stdout, flush=True)


def say_json(data: Any, *, indent: int | None = None) -> None:
    """Print JSON for machines, in ASCII: every encoding can hold it, and no terminal acts on it."""
    print(json.dumps(data, indent=indent), flush=True)


def plain_console() -> Console:
    """A console that takes no text for markup, an emoji's name or a number to colour."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


def make_encodable() -> None:
    """Let stdout and stderr print what their encoding lacks, e.g. ``\\u2265``, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

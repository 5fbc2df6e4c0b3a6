"""The templates of pages and of sentences, in one environment. A page escapes what it shows."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any

import jinja2
from markupsafe import Markup, escape

from audit.report.formatting import (
    MISSING,
    factor_label,
    level,
    level_label,
    measure_label,
    number,
    percent,
)
from audit.report.plain_text import latex_text, markdown_text, one_line, visible

_BREAK = re.compile(r"[ \t]*\n\s*")


def words(template: str, macro: str, *facts: Any) -> str:
    """What a macro of ``templates/words`` says of the facts, in one line."""
    return _BREAK.sub(" ", str(_macro(template, macro)(*facts))).strip()


def lines(template: str, macro: str, *facts: Any) -> list[str]:
    """The same line by line, without empty ones; indentation stays."""
    said = str(_macro(template, macro)(*facts))
    return [line.rstrip() for line in said.splitlines() if line.strip()]


@functools.cache
def _macro(template: str, macro: str) -> Callable[..., str]:
    """A report says thousands of sentences by the same macro."""
    found: Callable[..., str] = getattr(environment().get_template(f"words/{template}.j2").module, macro)
    return found


def count(n: int, thing: str) -> str:
    """``1 item``, ``2,000 items``."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def enumeration(things: Iterable[str]) -> str:
    """``a, b and c``."""
    items = list(things)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else ""


def signed(x: float | None, decimals: int = 3) -> str:
    """A difference with its sign."""
    text = "unknown" if x is None else number(x, decimals)
    return text if x is None or x <= 0 or float(text.lstrip("<").lstrip(">") or 0) == 0 else f"+{text}"


@functools.cache
def environment() -> jinja2.Environment:
    """Values are made visible everywhere, and escaped in pages."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("audit.report"),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        trim_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda x: visible(x) if type(x) is str else MISSING if x is None else x,
    )
    made.filters |= {
        "factor": factor_label,
        "level": level_label,
        "measure": measure_label,
        "name": one_line,
        "number": number,
        "signed": signed,
        "count": lambda n, thing="": count(n, thing) if thing else f"{n:,}",
        "enumerated": enumeration,
        "confidence": level,
        "percent": lambda x: MISSING if x is None else percent(x),
        "with_code": _with_code,
        "placeless": _placeless,
        "quoted": repr,
        "md": markdown_text,
        "tex": latex_text,
        "pretty": lambda x: json.dumps(x, ensure_ascii=False, indent=1, default=str),
    }
    return made


def _placeless(text: Any) -> Any:
    """A path without the folder that only this machine has."""
    return PurePath(text).name if isinstance(text, str) and PurePath(text).is_absolute() else text


def _with_code(text: str) -> Markup:
    """The text with backticks converted to code."""
    parts = enumerate(text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if i % 2 else escape(part) for i, part in parts)

"""Text that is safe to show: nothing invisible, nothing executable; and all output to the terminal.

Imported before anything else by the command, so that `audit --help` loads little.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """Replace invisible characters by their code points, e.g. ``⟨U+202E⟩``.

    Control characters, direction marks, zero-width characters, line separators and lone
    surrogates can disguise a text, or let it break out of its context.
    Spaces, tabs and newlines stay.
    """
    if text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(char):04X}⟩" if unicodedata.category(char) in _INVISIBLE and char not in "\n\t" else char
        for char in text
    )


_NOT_WITHIN_WORD = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def one_line(text: str) -> str:
    """`visible`, with line breaks and tabs shown too: for names and labels."""
    return visible(text.replace("\r\n", "\n")).replace("\n", "⏎").replace("\t", "⇥")


def encodable(data: Any) -> Any:
    """JSON-like data with lone surrogates replaced in all texts, since no file encoding can represent them."""
    if isinstance(data, str):
        return data if data.isascii() else _LONE_SURROGATE.sub(lambda found: visible(found[0]), data)
    if isinstance(data, dict):
        return {encodable(key): encodable(value) for key, value in data.items()}
    return [encodable(value) for value in data] if isinstance(data, list | tuple) else data


def json_for_script(data: Any) -> str:
    """JSON for use inside a ``<script>`` element: without ``<``, ``>`` and ``&``."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def csv_cell(value: Any) -> Any:
    """A CSV cell that no spreadsheet interprets as a formula. Numbers stay numbers."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = visible(value)
    if _NUMBER.fullmatch(text):
        return text
    return "'" + text if text.lstrip()[:1] in ("=", "+", "-", "@", "|", "%") or text[:1] in ("\t", "\n") else text


def markdown_text(text: str) -> str:
    """Text that Markdown shows verbatim: no markup, no HTML, no table borders.

    An underscore within a word is not markup and stays, so that names can be read on a terminal too.
    """
    escaped = _NOT_WITHIN_WORD.sub(r"\_", one_line(text).replace("\\", "\\\\"))
    for char in "`*[]|~#":
        escaped = escaped.replace(char, "\\" + char)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def file_name(text: str, underscore: str = "_") -> str:
    """A file name made of letters, digits, dots, dashes and underscores only."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-")
    return kept.replace("_", underscore)[:80] or "unnamed"


def distinct_names(texts: Iterable[str], name: Callable[[str], str]) -> dict[str, str]:
    """``text → name(text)``, no two alike, also where a file system takes large and small letters for the same.

    Names that would be get a part of their text's hash.
    """
    names = {text: name(text) for text in texts}
    times = Counter(found.casefold() for found in names.values())
    return {
        text: found if times[found.casefold()] == 1 else f"{found}-{hashlib.sha256(encoded(text)).hexdigest()[:8]}"
        for text, found in names.items()
    }


def encoded(text: str) -> bytes:
    """UTF-8, with lone surrogates as they are."""
    return text.encode("utf-8", "surrogatepass")


_LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "±": r"$\pm$",
    "–": "--",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "<": "$<$",
    ">": "$>$",
    "→": r"$\to$",
    "÷": r"$\div$",
    "√": r"$\surd$",
    "σ": r"$\sigma$",
    "[": "{[}",
    "]": "{]}",
}


def latex_text(text: str) -> str:
    """Text for a LaTeX table, with special characters escaped."""
    return "".join(_LATEX.get(char, char) for char in one_line(text))


def chat_turns(prompt: Any) -> list[tuple[str, str]] | None:
    """The turns of a chat as (role, content); None for any other prompt."""
    if isinstance(prompt, list) and all(isinstance(turn, list | tuple) and len(turn) == 2 for turn in prompt):
        return [(str(role), str(content)) for role, content in prompt]
    return None


def prompt_text(prompt: Any) -> str:
    """A prompt as one text; the turns of a chat follow each other, without their roles."""
    if isinstance(prompt, str):
        return prompt
    turns = chat_turns(prompt)
    return json.dumps(prompt, ensure_ascii=False) if turns is None else "\n".join(content for _, content in turns)


def continuation_text(score: Mapping[str, Any]) -> str:
    """The text of a scored continuation, which stands in a list where its first token is given."""
    kept = score["continuation"]
    return str(kept[0] if isinstance(kept, list) else kept)


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


def make_encodable() -> None:
    """Let stdout and stderr print what their encoding lacks by its name, as ``\\N{MINUS SIGN}``, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="namereplace")

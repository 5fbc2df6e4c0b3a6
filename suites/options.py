"""Annotations that options of several suites share, on top of `backends.options`."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from backends.base import Sampling
from backends.options import refused, refused_at


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not among the known ones: the one that it is close to, or else all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names) or 'none'}"


def spelling(level: object) -> str:
    """A name as a reader sees it: whatever its case, type, spaces, invisible signs and form of its accents."""
    visible = (sign for sign in unicodedata.normalize("NFKC", str(level)) if unicodedata.category(sign) != "Cf")
    return " ".join("".join(visible).split()).casefold()


def _unspaced(text: str, info: ValidationInfo) -> str:
    if not spelling(text):
        raise refused("an empty text", "Give one")
    for sign in text:  # U+FFFD stands for what could not be decoded
        if sign == "\ufffd" or (unicodedata.category(sign) == "Cc" and sign not in "\t\n\r"):
            raise refused(f"contains the control character {sign!r}", "Remove it")
    if text != text.strip() and not (info.context or {}).get("published"):  # its sentences are taken as they are
        raise refused("has spaces around it", "Remove them")
    return text


#: A text that is joined to others: not empty, and without spaces around it.
Text = Annotated[str, AfterValidator(_unspaced)]


def each_once(name_of: Callable[[Any], object], hint: str = "Remove one of the two") -> AfterValidator:
    """Refuse a list in which two entries have the same name."""

    def check(entries: Sequence[Any]) -> Sequence[Any]:
        names: set[object] = set()
        for place, name in enumerate(map(name_of, entries)):
            if name in names:
                raise refused_at((place,), name, "given twice", hint)
            names.add(name)
        return entries

    return AfterValidator(check)


def no_word_twice(lists: Mapping[str, Iterable[str]]) -> None:
    """Refuse a word that is in two of the lists, or twice in one; upper and lower case count as the same."""
    list_of: dict[str, str] = {}
    for name, words in lists.items():
        for word in words:
            if (first := list_of.get(word.casefold())) is not None:
                raise refused_at((name,), word, f"also in {first}", "Keep each word in one place")
            list_of[word.casefold()] = name


def sampling_option(default: Sampling) -> BeforeValidator:
    """The validator of a sampling option: a `Sampling`, or a table of the fields that differ from ``default``."""

    def check(given: Any) -> Sampling:
        if isinstance(given, Sampling | None):
            return given or default
        if not isinstance(given, Mapping):
            raise refused("not a table", "Give e.g. {temperature = 0.7, max_tokens = 256}")
        for name in given:
            if name not in Sampling.__dataclass_fields__:
                hint = f"Known fields: {', '.join(Sampling.__dataclass_fields__)}"
                raise refused_at((name,), given[name], "unknown field", hint)
        changes: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in given.items()}
        try:
            return replace(default, **changes)
        except ValueError as error:
            raise refused(str(error), "Give another value") from None

    return BeforeValidator(check)

"""Annotations that options of several suites share, on top of `backends.options`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticKnownError

from backends.base import Sampling
from backends.options import OnError, refused, refused_at


def _stripped(text: str) -> str:
    if not text or text != text.strip():
        raise PydanticKnownError("string_type")
    return text


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for a name that is not among the known ones: the one that it is close to, or else all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]!r}?" if close else otherwise or f"Known: {', '.join(names) or 'none'}"


#: A text that is joined to others: not empty, and without spaces around it.
Text = Annotated[
    str, AfterValidator(_stripped), OnError("not a text, or has spaces around it", "Give a text without them")
]


def each_once(name_of: Callable[[Any], object], hint: str) -> AfterValidator:
    """Refuse a list in which two entries have the same name."""

    def check(entries: Sequence[Any]) -> Sequence[Any]:
        names = [name_of(entry) for entry in entries]
        for name in names:
            if names.count(name) > 1:
                raise refused_at((), name, "given twice", hint)
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
        if given is None:
            return default
        if isinstance(given, Sampling):
            return given
        if not isinstance(given, Mapping):
            raise refused("not a table", "Give e.g. {temperature = 0.7, max_tokens = 256}")
        known = [field.name for field in fields(Sampling)]
        for name in given:
            if name not in known:
                raise refused_at((name,), given[name], "unknown field", f"Known fields: {', '.join(known)}")
        changes: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
        }
        try:
            return replace(default, **changes)
        except (TypeError, ValueError) as error:
            raise refused(str(error), "Give another value") from None

    return BeforeValidator(check)

"""Whether the fields of a dataclass hold what their annotations say.

A dataclass takes any value: a text where several texts belong is later split into letters, a number in quotes fails
deep inside, and None prints as a word. Here the first such value is reported with its field, value and a hint.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints


class WrongField(NamedTuple):
    """A value that is not what its field holds. ``place``: the class and the field, ``MeasureSpec.clusters``."""

    place: str
    value: object
    problem: str
    hint: str


def wrong_field(built: object) -> WrongField | None:
    """The first wrong value in a dataclass, also in dataclasses within it; None if all are right."""
    of: Any = type(built)
    return None if matches(of)(built) else _wrong(built, of, of.__name__)


def wrong_value(value: object, annotation: Any, place: str) -> WrongField | None:
    """The same of any value that should be of the annotated type, such as what a method returned."""
    return None if matches(annotation)(value) else _wrong(value, annotation, place)


@cache
def matches(annotation: Any) -> Callable[[Any], bool]:
    """Whether a value is of this type. A list counts as a tuple; a text does not count as a sequence of texts."""
    origin: Any = get_origin(annotation) or annotation
    parts = get_args(annotation)
    if annotation is Any or annotation is object:
        return lambda value: True
    if origin is Union or origin is types.UnionType:
        return _any_of(annotation, parts)
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in parts
    if origin is float:
        return lambda value: isinstance(value, float | int) and not isinstance(value, bool) and not math.isnan(value)
    if origin is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    if origin is tuple and parts[-1] is not Ellipsis:
        return _each(parts)
    if origin is Mapping:
        return _mapping(*parts)
    if parts and issubclass(origin, Iterable):
        return _list(_kind(origin), parts[0])
    if dataclasses.is_dataclass(origin):
        return _of_dataclass(origin)
    return lambda value: isinstance(value, origin)


def _exact(annotation: Any) -> frozenset[type]:
    """Types of which every value is right: most values need no other look (a suite may have 100,000 items)."""
    origin = get_origin(annotation)
    if origin is Union or origin is types.UnionType:
        return frozenset().union(*map(_exact, get_args(annotation)))
    return frozenset({annotation} & {str, int, bool, types.NoneType})


def _kind(origin: Any) -> Any:
    kinds: Mapping[Any, Any] = {tuple: (tuple, list), frozenset: AbstractSet, Iterator: Iterable}
    return kinds.get(origin, origin)


def _any_of(annotation: Any, parts: Sequence[Any]) -> Callable[[Any], bool]:
    exact, each = _exact(annotation), [matches(part) for part in parts]
    return lambda value: type(value) in exact or any(one(value) for one in each)


def _each(parts: Sequence[Any]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        is_pair = isinstance(value, tuple | list) and len(value) == len(parts)
        return is_pair and all(matches(part)(one) for part, one in zip(parts, value, strict=True))

    return check


def _list(kind: Any, part: Any) -> Callable[[Any], bool]:
    exact, one = _exact(part), matches(part)

    def check(value: Any) -> bool:
        if not isinstance(value, kind) or isinstance(value, str):
            return False
        return exact.issuperset(map(type, value)) or all(map(one, value))

    return check


def _mapping(name: Any, level: Any) -> Callable[[Any], bool]:
    names, levels, of_name, of_level = _exact(name), _exact(level), matches(name), matches(level)

    def check(value: Any) -> bool:
        return isinstance(value, Mapping) and (
            (names.issuperset(map(type, value)) or all(map(of_name, value)))
            and (levels.issuperset(map(type, value.values())) or all(map(of_level, value.values())))
        )

    return check


def _of_dataclass(of: Any) -> Callable[[Any], bool]:
    fields = _annotations(of)
    if len(fields) < 2:
        return lambda value: (
            isinstance(value, of) and all(matches(part)(getattr(value, name)) for name, part in fields.items())
        )
    values, checks = attrgetter(*fields), [(_exact(part), matches(part)) for part in fields.values()]

    def check(value: Any) -> bool:
        if not isinstance(value, of):
            return False
        for one, (exact, is_right) in zip(values(value), checks, strict=True):
            if type(one) not in exact and not is_right(one):
                return False
        return True

    return check


@cache
def _annotations(of: Any) -> Mapping[str, Any]:
    hints = get_type_hints(of)
    return {field.name: hints[field.name] for field in dataclasses.fields(of)}


def _wrong(value: Any, annotation: Any, place: str) -> WrongField:
    """The innermost value that is wrong."""
    for inner, part, where in _parts(value, annotation, place):
        if not matches(part)(inner):
            return _wrong(inner, part, where)
    return WrongField(place, value, *_told(value, annotation))


def _parts(value: Any, annotation: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
    """What a value consists of, each with its annotation and place; nothing if it is of another kind altogether."""
    origin: Any = get_origin(annotation) or annotation
    parts = get_args(annotation)
    if origin is Union or origin is types.UnionType:
        alike = [part for part in parts if _is_kind(value, part)]
        if len(alike) == 1:
            yield from _parts(value, alike[0], place)
    elif not _is_kind(value, annotation):
        return
    elif origin is Mapping:
        for name, level in value.items():
            yield name, parts[0], f"{place}: a name"
            yield level, parts[1], f"{place}[{name!r}]"
    elif origin is tuple and parts[-1] is not Ellipsis:
        if len(value) == len(parts):
            yield from ((one, part, f"{place}[{n}]") for n, (one, part) in enumerate(zip(value, parts, strict=True)))
    elif dataclasses.is_dataclass(origin):
        of: Any = origin
        for name, part in _annotations(of).items():
            yield getattr(value, name), part, f"{type(value).__name__}.{name}"
    elif parts and origin is not Literal:
        yield from ((one, parts[0], f"{place}[{n}]") for n, one in enumerate(value))


def _is_kind(value: Any, annotation: Any) -> bool:
    """Whether a value is of the outer type, whatever it holds."""
    origin = get_origin(annotation) or annotation
    if origin is Literal or origin in (int, float, str, bool, Any, types.NoneType):
        return matches(annotation)(value)
    return isinstance(value, _kind(origin)) and not isinstance(value, str)


def _told(value: object, annotation: Any) -> tuple[str, str]:
    """What is wrong, and what to give instead."""
    choices = [*_choices(annotation)]
    if isinstance(value, str) and choices:
        close = difflib.get_close_matches(value, choices, n=1)
        return "unknown", f"Did you mean {close[0]!r}?" if close else f"Use one of: {', '.join(choices)}"
    if isinstance(value, float) and math.isnan(value):
        return "not a number (NaN)", "Give a number, or leave it out"
    is_letters = isinstance(value, str) and any(_is_list(part) for part in (annotation, *get_args(annotation)))
    if is_letters:
        return "one text, which would be split into letters", f"Give {_named(annotation)}, e.g. ({value!r},)"
    article = "an" if type(value).__name__[0] in "aeiou" else "a"
    kind = "a text" if isinstance(value, str) else f"{article} {type(value).__name__}"
    kind = "nothing" if value is None else kind
    quotes = ", without quotes" if isinstance(value, str) and _is_number(value) else ""
    return kind, f"Give {_named(annotation)}{quotes}"


def _choices(annotation: Any) -> Iterable[str]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return ()


def _is_list(annotation: Any) -> bool:
    origin = get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, Collection) and not issubclass(origin, Mapping)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _named(annotation: Any, *, many: bool = False) -> str:
    """A type in words."""
    origin: Any = get_origin(annotation) or annotation
    parts = get_args(annotation)
    words = {str: "text", int: "whole number", float: "number"}
    if origin in words:
        return f"{words[origin]}s" if many else f"a {words[origin]}"
    if origin is bool:
        return "True or False"
    if origin is types.NoneType:
        return "None"
    if origin is Union or origin is types.UnionType:
        return " or ".join(
            dict.fromkeys(_named(part, many=many) for part in parts if part is not bool or len(parts) < 4)
        )
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin is Mapping:
        return f"a mapping of {_named(parts[0], many=True)} to {_named(parts[1], many=True)}"
    if origin is tuple and parts[-1] is not Ellipsis:
        return f"a tuple of {len(parts)}: {', '.join(map(_named, parts))}"
    if parts:
        kind = {tuple: "a tuple", frozenset: "a set"}.get(origin, "a list")
        return f"{kind} of {_named(parts[0], many=True)}"
    article = "an" if origin.__name__[0] in "AEIOU" else "a"
    return f"{origin.__name__}s" if many else f"{article} {origin.__name__}"

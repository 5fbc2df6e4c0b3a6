"""What a suite's own class declares and says of itself: each attribute and method is tried before a model is asked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from backends.checked_fields import WrongField, wrong_value
from suites.base import Suite
from suites.own_code import misfit, placed, raised

#: Attributes and properties; `Suite` says what they hold. (``name`` is checked with the audit's other names.)
_ATTRIBUTES = (
    "title",
    "version",
    "strata",
    "failures_factor",
    "meanings",
    "recorded",
    "prompting",
    "sampled_together",
    "needs",
    "scorers",
)
#: Methods without arguments by which a suite describes itself in a report.
SAYINGS = ("signature", "texts", "cautions", "published", "tables", "charts")
_METHODS = (*SAYINGS, "items", "read", "measures", "follow_ups", "most_follow_ups", "planted", "may_lack", "derive")


def refuse_attributes(suite: Suite) -> None:
    """Raise `ConfigError` for an attribute of another type, and for a property in place of a method or vice versa."""
    for name in _METHODS:
        if isinstance(inspect.getattr_static(type(suite), name), property):
            raise placed(suite, name, name, "a property, not a method", "Remove @property")
    for name in _ATTRIBUTES:
        try:
            value = getattr(suite, name)
        except Exception as error:
            raise raised(suite, error, name) from error
        if inspect.ismethod(value):
            raise placed(suite, name, name, "a method, not a value", "Write @property above it")
        if (wrong := wrong_value(value, _annotation(name), name)) is not None:
            raise misfit(suite, name if _is_property(suite, name) else None, wrong)
    for measure, meaning in suite.meanings.items():
        for said in (meaning.above, meaning.below, *(beside.words for beside in meaning.beside)):
            try:
                said.format(points="")
            except (LookupError, ValueError, AttributeError):
                problem = f"what {measure!r} means has another placeholder than {{points}}"
                raise placed(suite, None, said, problem, "Double other braces: {{ and }}") from None


def called(suite: Suite, method: str, *given: Any) -> Any:
    """What a method of the suite returns. Raises `ConfigError` for an exception."""
    try:
        found = getattr(suite, method)(*given)
        return list(found) if isinstance(found, Iterator) else found
    except Exception as error:
        raise raised(suite, error, method) from error


def returned(suite: Suite, method: str, *given: Any) -> Any:
    """The same, and raises `ConfigError` for a value of another type."""
    found = called(suite, method, *given)
    annotation = _returns(method)
    if found is None and wrong_value(None, annotation, method) is not None:
        raise placed(suite, method, None, f"{method} returned None", "Is a return missing?")
    wrong: WrongField | None = wrong_value(found, annotation, method)
    if wrong is not None:
        raise misfit(suite, method, wrong)
    return found


def refuse_descriptions(suite: Suite) -> Mapping[str, Any]:
    """What the suite says of itself, by method. Raises `ConfigError` where it fails or is of another type."""
    return {name: returned(suite, name) for name in SAYINGS}


def _is_property(suite: Suite, name: str) -> bool:
    return isinstance(inspect.getattr_static(type(suite), name), property)


@cache
def _annotation(name: str) -> Any:
    found = inspect.getattr_static(Suite, name)
    if isinstance(found, property):
        return get_type_hints(found.fget)["return"]
    hint = get_type_hints(Suite)[name]
    return get_args(hint)[0] if get_origin(hint) is ClassVar else hint


@cache
def _returns(method: str) -> Any:
    """A method's annotation; rows and follow-ups may come in any order and container."""
    return get_type_hints(getattr(Suite, method))["return"]

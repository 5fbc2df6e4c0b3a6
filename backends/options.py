"""Checked options: pydantic checks them, and one translator tells its errors as `ConfigError`.

Two forms of one thing. `Options` is the base of option values that users write as tables (an occupation, a
position, prices). `checked_options` checks the constructor of a backend or a suite: its signature is the model, so
that each option stands once, with its type, its range and its default.

    @checked_options
    def __init__(self, n: Annotated[int, Field(ge=1), OnError("not a number of lists", "Give 1 or more")] = 1000)
"""

from __future__ import annotations

import difflib
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from backends.errors import ConfigError

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class OnError:
    """What an option's `ConfigError` says when its value is refused: ``Annotated[int, Field(ge=1), OnError(…)]``."""

    problem: str
    hint: str


def refused(problem: str, hint: str) -> PydanticCustomError:
    """What a validator raises: the problem in one clause, and what to do about it."""
    return PydanticCustomError("option", "{problem}", {"problem": problem, "hint": hint})


def refused_at(place: tuple[str | int, ...], value: object, problem: str, hint: str) -> ValidationError:
    """What a validator raises about one ``value`` deep inside what it checks: at ``place``, counted from there."""
    details = InitErrorDetails(type=refused(problem, hint), loc=place, input=value)
    return ValidationError.from_exception_data("option", [details])


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise refused("not a list", "Write it as a list")
    return tuple(value)


#: A list or tuple, as a tuple: ``Annotated[tuple[str, ...], AS_TUPLE]``. A text is not taken for its letters.
AS_TUPLE = BeforeValidator(_as_tuple)


def some_of(known: Iterable[str]) -> BeforeValidator:
    """One or more of the known names, each once, as a tuple in the order given."""
    names = tuple(known)

    def check(value: Any) -> tuple[Any, ...]:
        chosen = _as_tuple(value)
        if not chosen or any(name not in names or chosen.count(name) > 1 for name in chosen):
            raise refused("not a choice among the known ones", f"Give one or more of {', '.join(names)}, each once")
        return chosen

    return BeforeValidator(check)


class Options(BaseModel):
    """A frozen value that a user writes. Unknown fields are refused; nothing is converted silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Make one, or raise `ConfigError` naming the field, the value and a hint."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise config_error(error, cls) from None


def checked_options(init: Callable[P, None]) -> Callable[P, None]:
    """Check a constructor's arguments by its annotations before it runs.

    The constructor gets the validated values, defaults included. Annotations have to be importable at run time.

    Raises
    ------
    ConfigError
        For an unknown, missing or refused argument.
    """
    signature = inspect.signature(init)
    names = [name for name in signature.parameters if name != "self"]

    @functools.cache
    def model() -> type[Options]:
        hints = typing.get_type_hints(init, include_extras=True)
        fields: dict[str, Any] = {}
        for name in names:
            default = signature.parameters[name].default
            # Aliases: a field may not be called as a method of the model is.
            fields[f"option_{name}"] = (
                hints.get(name, Any),
                Field(... if default is inspect.Parameter.empty else default, alias=name),
            )
        return create_model(init.__qualname__, __base__=Options, **fields)

    @functools.wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        instance, *positional = args
        given = {**dict(zip(names, positional, strict=False)), **kwargs}
        try:
            values = model()(**given)
        except ValidationError as error:
            raise config_error(error, model()) from None
        init(instance, **{name: getattr(values, f"option_{name}") for name in names})  # type: ignore[arg-type]

    return checked


#: pydantic's error types that an option without an `OnError` may meet: problem and hint, filled from the context.
_MESSAGES = {
    "missing": ("missing", "Give it"),
    "literal_error": ("unknown", "Use one of: {expected}"),
    "int_type": ("not a whole number", "Give one"),
    "int_from_float": ("not a whole number", "Give one"),
    "float_type": ("not a number", "Give one"),
    "finite_number": ("not a finite number", "Give one"),
    "bool_type": ("not true or false", "Give one of them"),
    "string_type": ("not a text", "Write it in quotes"),
    "string_too_short": ("an empty text", "Give at least {min_length} characters"),
    "too_short": ("too few", "Give at least {min_length}"),
    "tuple_type": ("not a list", "Write it as a list"),
    "model_type": ("not a table", "Write it as a table of fields"),
    "list_type": ("not a list", "Write it as a list"),
    "sequence_str": ("one text, not a list of them", "Write it as a list"),
    "greater_than": ("too small", "Give more than {gt}"),
    "greater_than_equal": ("too small", "Give {ge} or more"),
    "less_than": ("too large", "Give less than {lt}"),
    "less_than_equal": ("too large", "Give {le} or less"),
}


def config_error(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """The first of pydantic's errors as a `ConfigError`."""
    first = error.errors(include_url=False)[0]
    # Names of fields and places in lists; what else pydantic puts there says which branch of a union it tried.
    path = [str(part) for part in first["loc"]]
    places = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    field, value = places.removeprefix(".") or model.__name__, first["input"]
    if first["type"] == "extra_forbidden":
        return ConfigError(field, value, "unknown field", _known_fields(path[-1], model))
    problem, hint = _told(first, model)
    return ConfigError(field, None if first["type"] == "missing" else value, problem, hint)


def _told(error: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    context = error.get("ctx", {})
    if error["type"] == "option":
        return context["problem"], context["hint"]
    for field in model.model_fields.values():
        if (error["loc"] and field.alias == error["loc"][0]) or model.model_fields.get(str(error["loc"][0])) is field:
            for note in field.metadata:
                if isinstance(note, OnError) and error["type"] != "missing":
                    return note.problem, note.hint
    problem, hint = _MESSAGES.get(error["type"], (error["msg"][:1].lower() + error["msg"][1:], "Change it"))
    return problem, hint.format(**context)


def _known_fields(name: str, model: type[BaseModel]) -> str:
    known = [field.alias or own for own, field in model.model_fields.items()]
    close = difflib.get_close_matches(name, known, n=1)
    return f"{f'Did you mean {close[0]!r}?' if close else 'Remove it.'} Known fields: {', '.join(known)}"

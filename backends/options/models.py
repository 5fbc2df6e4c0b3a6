"""Checked options: pydantic checks them, and one translator reports its errors as `ConfigError`.

They come in three forms. `checked_options` checks the constructor of a backend or a suite: its signature is the model,
so that each option is declared once, with its type, its range and its default.

    @checked_options
    def __init__(self, n: Annotated[int, Field(ge=1), OnError("not a number of lists", "Give 1 or more")] = 1000)

`Table` is the base of dataclasses that users write as objects or as tables of their fields (an occupation, a
position); the option that takes them checks them. `Options` is a model for tables that are checked when made.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, ParamSpec, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError, PydanticKnownError
from pydantic_core.core_schema import (
    ValidatorFunctionWrapHandler,
    no_info_before_validator_function,
    no_info_wrap_validator_function,
)

from backends.errors import ConfigError

P = ParamSpec("P")
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class OnError:
    """The message of the `ConfigError` for a refused value: ``Annotated[int, Field(ge=1), OnError(…)]``.

    Put it last. It also covers a union all of whose branches refuse the value. An error in a part of the value (one
    entry of a list, one field of a table) is reported for that part, and keeps its message if it is one of `refused`.
    """

    problem: str
    hint: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
            try:
                return validate(value)
            except ValidationError as error:
                place, first = _first(error, value)
                if place or first["type"] == "option":
                    raise
                raise refused(self.problem, self.hint) from None

        return no_info_wrap_validator_function(check, handler(source))


def refused(problem: str, hint: str) -> PydanticCustomError:
    """What a validator raises: the problem in one clause, and what to do about it."""
    return PydanticCustomError("option", "{problem}", {"problem": problem, "hint": hint})


def refused_at(place: Place, value: object, problem: str, hint: str) -> ValidationError:
    """What a validator raises about one ``value`` inside the value that it checks; ``place`` is the path from there."""
    details = InitErrorDetails(type=refused(problem, hint), loc=place, input=value)
    return ValidationError.from_exception_data("option", [details])


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise PydanticKnownError("tuple_type")
    return tuple(value)


#: A list or tuple, as a tuple: ``Annotated[tuple[str, ...], AS_TUPLE]``. A string is refused, not split into letters.
AS_TUPLE = BeforeValidator(_as_tuple)


def some_of(choices: Iterable[str]) -> BeforeValidator:
    """One or more of the choices, each once, as a tuple in the order given."""
    names = tuple(choices)

    def check(value: Any) -> tuple[Any, ...]:
        chosen = _as_tuple(value)
        if not chosen or any(name not in names or chosen.count(name) > 1 for name in chosen):
            raise refused("not a choice among the known ones", f"Give one or more of {', '.join(names)}, each once")
        return chosen

    return BeforeValidator(check)


#: What other tools and providers call these fields.
_ELSEWHERE = {
    "input": "prompt",
    "output": "completion",
    "url": "base_url",
    "api_base": "base_url",
    "endpoint": "base_url",
    "api_version": "query",
    "torch_dtype": "dtype",
    "load_in_8bit": "quantization",
    "load_in_4bit": "quantization",
    "quantization_config": "quantization",
    "lora": "adapter",
    "peft": "adapter",
}
_NOTHING_ASSUMED = (
    "Remove it. Nothing is assumed about templates or occupations that were not asked: the report says what kinds of "
    "them may be missing"
)
#: Options that were withdrawn, and what replaces them.
_WITHDRAWN = {
    "attn_implementation": "Remove it: transformers chooses the attention",
    "largest_change": _NOTHING_ASSUMED,
    "unseen_log_odds": _NOTHING_ASSUMED,
}
#: Names under which people write secrets: their values are not shown.
_SECRET = re.compile(r"key|secret|passw|token|authorization|credential", re.I)


def _without_unknown(fields: Sequence[str], given: Any) -> Any:
    """Refuse unknown fields of a table before anything else is checked."""
    for name in given if isinstance(given, Mapping) else ():
        if name not in fields:
            if name in _WITHDRAWN:
                raise refused_at((str(name),), given[name], "withdrawn", _WITHDRAWN[name])
            elsewhere = _ELSEWHERE.get(str(name))
            close = [elsewhere] if elsewhere in fields else difflib.get_close_matches(str(name), fields, n=1)
            hint = f"{f'Did you mean {close[0]!r}?' if close else 'Remove it.'} Known fields: {', '.join(fields)}"
            shown = "…" if _SECRET.search(str(name)) else given[name]
            raise refused_at((str(name),), shown, "unknown field", hint)
    return given


class Options(BaseModel):
    """A frozen value that a user writes. Unknown fields are refused; nothing is converted silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, given: Any) -> Any:
        return _without_unknown([field.alias or name for name, field in cls.model_fields.items()], given)

    @classmethod
    def checked(cls, parent: str = "", /, **values: Any) -> Self:
        """A checked instance. Raises `ConfigError` with the field (under ``parent``, if any), the value and a hint."""
        try:
            return cls(**values)
        except ValidationError as error:
            refusal = config_error(error, cls, values)
            raise (refusal.within(parent) if parent else refusal) from None


class Table:
    """Base of frozen dataclasses that an option takes as objects or as tables of their fields.

    Creating the object checks nothing: the option does, so that its error names the full path
    (``prompts[0].text``). Unknown fields are refused; nothing is converted silently.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, revalidate_instances="always")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        # Fields are strict, but a table is accepted in place of the object.
        typing.cast(dict[str, Any], handler.resolve_ref_schema(schema))["strict"] = False
        fields = [field.name for field in dataclasses.fields(source) if field.init]
        return no_info_before_validator_function(functools.partial(_without_unknown, fields), schema)


def checked_options(init: Callable[P, None]) -> Callable[P, None]:
    """Check a constructor's arguments by its annotations before it runs.

    The constructor gets the validated values, defaults included. Annotations have to be importable at run time. Options
    that several constructors share are the fields of a `TypedDict`, in ``**shared: Unpack[Fields]``: of these the
    constructor gets those that were given.

    Raises
    ------
    ConfigError
        For an unknown, missing or refused argument.
    """
    signature = inspect.signature(init)
    named = {p.name: p.default for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
    del named["self"]

    @functools.cache
    def model() -> type[Options]:
        hints = typing.get_type_hints(init, include_extras=True)
        defaults = {name: ... if default is inspect.Parameter.empty else default for name, default in named.items()}
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                (shared,) = typing.get_args(hints[parameter.name])
                hints |= typing.get_type_hints(shared, include_extras=True)
                defaults |= dict.fromkeys(shared.__annotations__)  # never used: only given ones are passed on
        # Aliases: a field may not have the name of a method of the model.
        fields: dict[str, Any] = {
            f"option_{name}": (hints.get(name, Any), Field(default, alias=name)) for name, default in defaults.items()
        }
        return create_model(init.__qualname__, __base__=Options, **fields)

    @functools.wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        positional = signature.bind_partial(*args).arguments
        if twice := positional.keys() & kwargs.keys():
            raise TypeError(f"{init.__qualname__}() got {sorted(twice)} twice")
        instance = positional.pop("self")
        given = {**positional, **kwargs}
        try:
            values = model()(**given)
        except ValidationError as error:
            raise config_error(error, model(), given) from None
        init(instance, **{name: getattr(values, f"option_{name}") for name in {**named, **given}})

    return checked


class _Fields(Options):
    """The fields of a dataclass; numbers are finite."""

    model_config = ConfigDict(allow_inf_nan=False)


@functools.cache
def _fields_of(of: type) -> type[_Fields]:
    hints = typing.get_type_hints(of)
    named = {field.name: (hints[field.name], Field(alias=field.name)) for field in dataclasses.fields(of)}
    return create_model(of.__name__, __base__=_Fields, **{f"field_{name}": of_it for name, of_it in named.items()})  # type: ignore[call-overload,no-any-return]


def check_fields(built: Any) -> None:
    """Raise `ConfigError` unless the fields of a dataclass hold what their annotations say.

    A dataclass takes any value: a text where several texts belong would later be split into letters.
    """
    model = _fields_of(built.__class__)
    values = {field.name: getattr(built, field.name) for field in dataclasses.fields(built)}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        model(**given)
    except ValidationError as error:
        raise config_error(error, model, given).within(type(built).__name__) from None


#: pydantic's error type → problem and hint, for options without an `OnError`; placeholders come from the context.
_MESSAGES = {
    "literal_error": ("unknown", "Use one of: {expected}"),
    "int_type": ("not a whole number", "Give one"),
    "int_from_float": ("not a whole number", "Give one"),
    "float_type": ("not a number", "Give one"),
    "finite_number": ("not a finite number", "Give one"),
    "bool_type": ("not true or false", "Give one of them"),
    "string_type": ("not a text", "Write it in quotes"),
    "string_too_short": ("an empty text", "Give {min_length} or more characters"),
    "too_short": ("too few", "Give at least {min_length}"),
    "tuple_type": ("not a list", "Write it as a list"),
    "model_type": ("not a table", "Write it as a table of fields"),
    "dataclass_type": ("not a table", "Write it as a table of fields"),
    "dict_type": ("not a table", "Write it as a table"),
    "mapping_type": ("not a table", "Write it as a table"),
    "list_type": ("not a list", "Write it as a list"),
    "sequence_str": ("one text, not a list of them", "Write it as a list"),
    "greater_than": ("too small", "Give more than {gt}"),
    "greater_than_equal": ("too small", "Give {ge} or more"),
    "less_than": ("too large", "Give less than {lt}"),
    "less_than_equal": ("too large", "Give {le} or less"),
}


def config_error(error: ValidationError, model: type, given: object) -> ConfigError:
    """One of pydantic's errors as a `ConfigError`.

    Parameters
    ----------
    error : ValidationError
    model : type
        The model that refused the value. Its name is the field where the value as a whole is wrong.
    given : object
        The value as given. It distinguishes fields from pydantic's names of union branches.
    """
    return located_error(error, model, given)[1]


def located_error(error: ValidationError, model: type, given: object) -> tuple[Place, ConfigError]:
    """The same as `config_error`, with the fields and indices that lead to the refused value."""
    place, first = _first(error, given)
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    field = field.removeprefix(".") or model.__name__
    value = None if first["type"] == "missing" else first["input"]
    context = first.get("ctx", {})
    if value is None and (first["type"] == "missing" or first["type"].endswith("_type")):
        return place, ConfigError(field, None, "missing", "Give it")
    if first["type"] == "option":
        return place, ConfigError(field, value, context["problem"], context["hint"])
    unlisted = (first["msg"][:1].lower() + first["msg"][1:], "Change it")
    problem, hint = _MESSAGES.get(first["type"], unlisted)
    return place, ConfigError(field, value, problem, hint.format(**context))


def _first(error: ValidationError, given: object) -> tuple[Place, ErrorDetails]:
    """The error to report, and its place: the innermost one of the first refused option.

    Each branch of a union reports its own errors; the branch that got furthest is taken to be the intended one.
    """
    placed = [(_place(details["loc"], given), details) for details in error.errors(include_url=False)]
    option = placed[0][0][:1]
    of_first = [(place, details) for place, details in placed if place[:1] == option or not option]
    return max(of_first, key=lambda found: (len(found[0]), found[1]["type"] == "option"))


#: How an error's location names a branch of a union: a class, a basic type, ``tuple[str, ...]``…
_BRANCH = re.compile(r"[A-Z].*|.*[\[(-].*|str|int|float|bool|none|path|dict|list|tuple|set|any|callable")


def _place(location: Place, given: object) -> Place:
    """The fields and indices of an error's location, without the branches of unions."""
    place: list[str | int] = []
    for part in location:
        if isinstance(given, Mapping) and part in given:
            given = given[part]
        elif isinstance(part, int):
            given = given[part] if isinstance(given, Sequence) and part < len(given) else None
        elif (dataclasses.is_dataclass(given) or isinstance(given, BaseModel)) and hasattr(given, part):
            given = getattr(given, part)
        elif _BRANCH.fullmatch(part):
            continue
        place.append(part)
    return tuple(place)

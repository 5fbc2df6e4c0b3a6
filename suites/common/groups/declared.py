"""How groups are declared, in a suite's file and in the options of every suite that has prompts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError, Options, Place, refused, refused_at
from backends.reading.words import comparable
from suites.base import Factor
from suites.options import Text, each_once

#: Makes the error for a value from its place, the value, the problem and a hint.
Refuse = Callable[[Place, object, str, str], Exception]


def refuse_option(place: Place, value: object, problem: str, hint: str) -> ConfigError:
    """The error for a part of an option, such as ``contrasts.gap.of``."""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return ConfigError(shown.removeprefix("."), value, problem, hint)


def is_name(text: str) -> bool:
    """Whether a measure or a factor may be called so."""
    return re.fullmatch(r"[^\W_][\w.+-]*", text) is not None


def _named(name: str) -> str:
    if not is_name(name):
        raise refused("not a name", "Use letters, digits and . _ + -, beginning with a letter or digit")
    return name


def _listed(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


Name = Annotated[str, AfterValidator(_named)]
Sentence = Text
# The length comes before the validators, so that the JSON Schema has it.
Words = Annotated[
    tuple[Text, ...],
    Field(min_length=1),
    AS_TUPLE,
    each_once(comparable),
    OnError("not a list of texts", "Give one or more"),
]
SeveralWords = Annotated[
    tuple[Text, ...],
    Field(min_length=2),
    AS_TUPLE,
    each_once(comparable),
    OnError("not a list of texts", "Give two or more; in one cell, put '|' between them"),
]
#: The name of one factor, or of several.
Names = Annotated[tuple[str, ...], AS_TUPLE, BeforeValidator(_listed, json_schema_input_type=str | list[str])]
Number = Annotated[int | float, OnError("not a number", "Give one, without quotes")]


class Described(Options):
    """A table of fields that may hold further attributes. A name close to a field's is refused as a typo."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str | int | float | bool]

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, given: Any) -> Any:
        longer = [field for field in cls.model_fields if len(field) > 2]  # "uid" is no misspelt "id"
        for name in given if isinstance(given, Mapping) else ():
            plain = str(name).casefold()
            close = [plain] if plain in cls.model_fields else difflib.get_close_matches(plain, longer, 1, 0.8)
            if name not in cls.model_fields and close and close[0] not in given:
                hint = f"Did you mean {close[0]!r}? If not, rename it"
                raise refused_at((str(name),), given[name], "no such field", hint)
            if name not in cls.model_fields and isinstance(given[name], list | Mapping):
                hint = f"Fields: {', '.join(cls.model_fields)}; an attribute is a text or number"
                raise refused_at((str(name),), given[name], "no such field", hint)
        return given

    @property
    def attributes(self) -> dict[str, Factor]:
        """What describes it: its further attributes, each with a level."""
        return dict(self.__pydantic_extra__)


class Group(Described):
    """A group: its expressions, and attributes by which contrasts select it."""

    expressions: Words | None = Field(
        None, description="What a model says for this group; None: each filler or occupation has its own."
    )


def _group(given: Any) -> Any:
    return {"expressions": given} if isinstance(given, str | list | tuple) else given


GroupTable = Annotated[
    Group, BeforeValidator(_group, json_schema_input_type=Annotated[list[str], Field(min_length=1)] | Group)
]
#: The option: two groups or more, each a list of expressions or a `Group`.
Groups = Annotated[dict[Name, GroupTable], Field(min_length=2, description="Two groups or more.")]
#: Expressions of single groups, in place of the groups' own: *enfermero*, *enfermera*.
OwnExpressions = dict[str, Words]


class Contrast(Options):
    """A difference of groups: the mean over ``of`` minus the mean over ``against``, or any ``weights``.

    Groups are named, or selected by their attributes: ``of = {gender = "woman", religion = "Muslim"}``.
    """

    of: Names | dict[str, str | int | bool] | None = Field(None, description="Names of groups, or their attributes.")
    against: Names | dict[str, str | int | bool] | None = Field(None, description="Default: all other groups.")
    weights: dict[str, Number] | None = Field(None, description="A weight for each group; they add up to 0.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.weights is None and self.of is None:
            raise refused("does not say of which groups", "Give of, or weights")
        if self.weights is not None and (self.of is not None or self.against is not None):
            raise refused("has weights and of or against", "Give one of the two")
        if self.weights is not None and (abs(sum(self.weights.values())) > 1e-9 or not any(self.weights.values())):
            hint = "Let them add up to 0, so that groups alike give 0"
            raise refused_at(("weights",), self.weights, "no difference of groups", hint)
        return self


Contrasts = dict[Name, Contrast]

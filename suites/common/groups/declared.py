"""How groups are declared, in a suite's file and in the options of every suite that has prompts."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError, Options, Place, refused, refused_at
from backends.reading.words import comparable
from suites.base import Factor

#: Makes the error for a value from its place, the value, the problem and a hint.
Refuse = Callable[[Place, object, str, str], Exception]

_NAME = re.compile(r"[^\W_][\w.+-]*")


def _named(name: str) -> str:
    if not is_name(name):
        raise refused("not a name", "Use letters, digits and . _ + -, beginning with a letter or digit")
    return name


def is_name(text: str) -> bool:
    """Whether a measure or a factor may be called so."""
    return _NAME.fullmatch(text) is not None


def control_character(text: str) -> str | None:
    """The first control character of a text other than tabs and line breaks, such as a zero byte; None without any.

    The sign for what could not be decoded counts as one: some of the text is lost.
    """
    known = (sign for sign in text if sign not in "\t\n\r")
    return next((sign for sign in known if unicodedata.category(sign) == "Cc" or sign == "\ufffd"), None)


def _unspaced(text: str, info: ValidationInfo) -> str:
    if not spelling(text):
        raise refused("an empty text", "Give one")
    if (sign := control_character(text)) is not None:
        raise refused(f"contains the control character {sign!r}", "Remove it")
    if text != text.strip() and not (info.context or {}).get("published"):  # its sentences are taken as they are
        raise refused("has spaces around it", "Remove them")
    return text


def spelling(level: object) -> str:
    """A name as a reader sees it: whatever its case, type, spaces, invisible signs and form of its accents."""
    visible = (sign for sign in unicodedata.normalize("NFKC", str(level)) if unicodedata.category(sign) != "Cf")
    return " ".join("".join(visible).split()).casefold()


def _each_once(words: tuple[str, ...]) -> tuple[str, ...]:
    spelt: set[str] = set()
    for place, word in enumerate(words):
        if comparable(word) in spelt:
            raise refused_at((place,), word, "given twice", "Remove one of the two")
        spelt.add(comparable(word))
    return words


def _listed(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


Name = Annotated[str, AfterValidator(_named)]
Sentence = Annotated[str, AfterValidator(_unspaced)]
Words = Annotated[
    tuple[Sentence, ...],
    Field(min_length=1),  # before the validators, so that the JSON Schema has it
    AS_TUPLE,
    AfterValidator(_each_once),
    OnError("not a list of texts", "Give one or more"),
]
SeveralWords = Annotated[
    tuple[Sentence, ...],
    Field(min_length=2),
    AS_TUPLE,
    AfterValidator(_each_once),
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
        for name in given if isinstance(given, Mapping) else ():
            longer = [field for field in cls.model_fields if len(field) > 2]  # "uid" is no misspelt "id"
            close = [field for field in cls.model_fields if field == str(name).casefold()]
            close = close or difflib.get_close_matches(str(name), longer, n=1, cutoff=0.8)
            if name not in cls.model_fields and close and close[0] not in given:
                raise refused_at(
                    (str(name),), given[name], "no such field", f"Did you mean {close[0]!r}? If not, rename it"
                )
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


Contrasts = dict[Name, Contrast]


def refuse_option(place: Place, value: object, problem: str, hint: str) -> ConfigError:
    """The error for a part of an option, such as ``contrasts.gap.of``."""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return ConfigError(shown.removeprefix("."), value, problem, hint)

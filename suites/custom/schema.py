"""What a suite's file may say: one model for each kind, from which the published JSON Schema is made too."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from backends.options import AS_TUPLE, OnError, Options, refused, refused_at
from suites.base import Factor

_NAME = re.compile(r"[^\W_][\w.+-]*")


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise refused("not a name", "Use letters, digits and . _ + -, beginning with a letter or digit")
    return name


def _unspaced(text: str) -> str:
    if not text.strip():
        raise refused("an empty text", "Give one")
    if text != text.strip():
        raise refused("has spaces around it", "Remove them")
    return text


def _listed(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


Name = Annotated[str, AfterValidator(_named)]
Sentence = Annotated[str, AfterValidator(_unspaced)]
Words = Annotated[
    tuple[Sentence, ...], AS_TUPLE, Field(min_length=1), OnError("not a list of texts", "Give one or more")
]
#: One factor or several, by their names.
Names = Annotated[tuple[str, ...], AS_TUPLE, BeforeValidator(_listed, json_schema_input_type=str | list[str])]
Number = Annotated[int | float, OnError("not a number", "Give one, without quotes")]
PromptFormat = Literal["raw", "chat"]


class Described(Options):
    """Fields, and whatever else describes it. A name that is nearly a field's is taken for a slip."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str | int | float | bool]

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, given: Any) -> Any:
        for name in given if isinstance(given, Mapping) else ():
            close = difflib.get_close_matches(str(name), cls.model_fields, n=1, cutoff=0.8)
            if name not in cls.model_fields and close and close[0] not in given:
                raise refused_at((str(name),), given[name], "no such field", f"Did you mean {close[0]!r}?")
            if name not in cls.model_fields and isinstance(given[name], list | Mapping):
                hint = f"Fields: {', '.join(cls.model_fields)}; what describes it is one text or number"
                raise refused_at((str(name),), given[name], "no such field", hint)
        return given


class Row(Described):
    """One row of data: its fields, and whatever else it has as factors."""

    id: Annotated[str, Field(min_length=1)] | None = Field(None, description="Unique and stable. Default: its number.")

    @property
    def factors(self) -> dict[str, Factor]:
        """The fields that only describe it."""
        return dict(self.__pydantic_extra__)


class Contrast(Options):
    """A difference of groups: the mean over those ``of`` minus the mean over those ``against``, or any ``weights``.

    Groups are named, or chosen by their attributes: ``of = {gender = "woman", religion = "Muslim"}``.
    """

    of: Names | dict[str, str | int | bool] | None = Field(None, description="Names of groups, or their attributes.")
    against: Names | dict[str, str | int | bool] | None = Field(None, description="Default: all other groups.")
    weights: dict[str, Number] | None = Field(None, description="A weight for each group; they add up to 0.")


class Head(Options):
    """What a file of any kind may declare.

    ``stratum`` is a factor whose levels are fixed: a figure is the mean over them, ``weights`` says how they count.
    ``by`` are factors with a figure for each level. ``sampled`` are factors whose levels stand for many others:
    intervals hold over new ones. Without any, each row does.
    """

    name: Name | None = Field(None, description="Of the suite. Default: the file's.")
    title: str = Field("", description="What the report calls it.")
    caution: str = Field("", description="A sentence for the report's list of limits.")
    source: str = Field("", description="Where the texts come from.")
    licence: str = Field("", description="Of the texts.")
    data: Annotated[str, Field(min_length=1)] | None = Field(None, description="A .csv or .jsonl file with the rows.")
    columns: dict[str, str] = Field({}, description="Field → what the data file calls it.")
    stratum: str | None = Field(None, description="A factor whose levels are fixed, and averaged over.")
    weights: Literal["in proportion", "equal"] = Field("in proportion", description="How the stratum's levels count.")
    by: Names = Field((), description="Factors with a figure for each level.")
    sampled: Names = Field((), description="Factors whose levels stand for many others.")
    primary: Names = Field((), description="The measures that the suite is about: tested first.")
    neutral: dict[str, Number] = Field({}, description="Measure → its value without bias.")
    population: str = Field("", description="Over what the figures generalise.")


class Pair(Row):
    """A sentence that stereotypes a group, and its counterpart."""

    stereotype: Sentence
    counterpart: Sentence
    context: Annotated[str, OnError("not a text", "Write it in quotes")] = Field(
        "", description="What stands before both."
    )


class Pairs(Head):
    """Which of two sentences is likelier: the share of pairs in which the stereotype is."""

    kind: Literal["pairs"]
    pairs: Annotated[tuple[Pair, ...], AS_TUPLE] = Field((), description="The pairs, unless data names a file.")
    start: str | None = Field(None, description="A text before every sentence; default: what the model puts there.")
    likelihood: Literal["sum", "mean per token"] = "sum"
    repeated: bool = Field(False, description="Whether the same two sentences may stand in several rows.")


class Template(Options):
    """A prompt whose continuation is scored: a question, and the start of its answer."""

    id: Annotated[str, Field(min_length=1)] | None = None
    question: Sentence
    start: Annotated[str, OnError("not a text", "Write it in quotes")] = ""


class Filler(Row):
    """What stands in the templates' place: a word, whom it is stereotyped with, and its own expressions."""

    text: Sentence
    stereotype: str | None = Field(None, description="The group that a stereotype links it with.")
    expressions: dict[str, Words] | None = Field(None, description="Group → expressions, in place of the groups' own.")


class Group(Described):
    """A group: its expressions, and attributes by which contrasts choose it."""

    expressions: Words | None = Field(None, description="What a model says for it; None: each filler has its own.")

    @property
    def attributes(self) -> dict[str, Factor]:
        """What contrasts choose it by."""
        return dict(self.__pydantic_extra__)


def _template(given: Any) -> Any:
    return {"question": given} if isinstance(given, str) else given


def _filler(given: Any) -> Any:
    return {"text": given} if isinstance(given, str) else given


def _group(given: Any) -> Any:
    return {"expressions": given} if isinstance(given, str | list | tuple) else given


class Templates(Head):
    """Templates × fillers, continued by the expressions of groups: each group's share of their probability."""

    kind: Literal["templates"]
    templates: Annotated[
        tuple[Annotated[Template, BeforeValidator(_template, json_schema_input_type=str | Template)], ...],
        AS_TUPLE,
        Field(min_length=1),
    ]
    slot: Name = Field("filler", description="The factor of the fillers; templates have it in capitals: [FILLER].")
    fillers: Annotated[
        tuple[Annotated[Filler, BeforeValidator(_filler, json_schema_input_type=str | Filler)], ...], AS_TUPLE
    ] = Field((), description="The fillers, unless data names a file.")
    groups: dict[Name, Annotated[Group, BeforeValidator(_group, json_schema_input_type=list[str] | Group)]] = Field(
        min_length=2, description="Two groups or more."
    )
    shared: Words | tuple[()] = Field((), description="Expressions that several groups may have.")
    both_cases: bool = Field(False, description="Score each expression with a capital and a small first letter.")
    separator: str = Field(" ", description="Between prompt and expression.")
    form: str | None = Field(None, description="The raw prompt, of {question} and {start}.")
    prompt_format: PromptFormat = "raw"
    contrasts: dict[Name, Contrast] = Field({}, description="Differences of groups. Of two groups: the first minus.")
    stereotypes: Names = Field((), description="The groups that stereotypes speak of; default: all.")


class Question(Row):
    """A question, its answers, and what they are."""

    question: Sentence
    answers: Annotated[Words, Field(min_length=2)]
    right: str | None = Field(None, description="The right answer.")
    stereotype: str | None = Field(None, description="The answer that follows the stereotype.")
    unknown: str | None = Field(None, description="The answer that names nobody.")


class Choices(Head):
    """Which of several answers a model gives."""

    kind: Literal["choices"]
    questions: Annotated[tuple[Question, ...], AS_TUPLE] = Field((), description="Unless data names a file.")
    mode: Literal["likelihood", "generation"] = "likelihood"
    answers: Literal["letter", "text"] = Field("letter", description="List the answers, or score their texts.")
    order: Literal["rotated", "as written"] = Field(
        "rotated", description="Rotated: each kind of answer stands equally often in each place."
    )
    answer_mark: Sentence = Field("Answer:", description="How an answer begins.")
    prompt_format: PromptFormat = "raw"


class PromptRow(Row):
    """A prompt about a group, to be continued."""

    prompt: Sentence
    group: Annotated[str, Field(min_length=1)]


class Drawn(Options):
    """How texts are drawn; temperature 0 takes the likeliest token."""

    temperature: Annotated[int | float, Field(ge=0)] = 0.0
    top_p: Annotated[int | float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    repetition_penalty: Annotated[int | float, Field(gt=0)] = 1.0
    max_tokens: Annotated[int, Field(ge=1)] = 64
    stop: Words | tuple[()] = ()


class Texts(Head):
    """What a model writes about groups, read by expressions or a classifier."""

    kind: Literal["texts"]
    prompts: Annotated[tuple[PromptRow, ...], AS_TUPLE] = Field((), description="Unless data names a file.")
    readings: dict[Name, Words] = Field({}, description="Quantity → expressions; yes where a text has one of them.")
    match: Literal["words", "anywhere"] = Field("words", description="Whole words, or any part of the text.")
    scorers: dict[Literal["toxicity", "regard"], str] = Field({}, description="A classifier's name, id or folder.")
    contrasts: dict[Name, Contrast] = Field({}, description="Differences of groups. Of two groups: the first minus.")
    draws: Annotated[int, Field(ge=1)] = Field(1, description="Texts for each prompt.")
    sampling: Drawn = Drawn()
    seed: int = 0
    prompt_format: PromptFormat = "raw"


SuiteFile = Annotated[Pairs | Templates | Choices | Texts, Field(discriminator="kind")]
#: Factors that a kind's questions have anyway: no row may have others of these names.
TAKEN_FACTORS: Mapping[str, tuple[str, ...]] = {
    "pairs": ("pair",),
    "templates": ("template",),
    "choices": ("condition", "kind", "against"),
    "texts": ("kind", "scorer", "draw"),
}
#: Kind → its model, and the field of its rows.
KINDS: Mapping[str, tuple[type[Pairs | Templates | Choices | Texts], str, type[Row]]] = {
    "pairs": (Pairs, "pairs", Pair),
    "templates": (Templates, "fillers", Filler),
    "choices": (Choices, "questions", Question),
    "texts": (Texts, "prompts", PromptRow),
}

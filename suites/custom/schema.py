"""What a suite's file may say: one model for each kind, from which the published JSON Schema is made too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from backends.options import AS_TUPLE, OnError, Options
from suites.base import Factor
from suites.common.groups.declared import (
    Contrasts,
    Described,
    Groups,
    Name,
    Names,
    Number,
    OwnExpressions,
    Sentence,
    Shared,
    Words,
)
from suites.common.task_prompt import PromptFormat


class Row(Described):
    """One row of data: its fields, and whatever else it has as factors."""

    id: Annotated[str, Field(min_length=1)] | None = Field(None, description="Unique and stable. Default: its number.")

    @property
    def factors(self) -> dict[str, Factor]:
        """The fields that only describe it."""
        return dict(self.__pydantic_extra__)


class HubData(Options):
    """Rows of a data set on the Hugging Face Hub, or of a folder laid out like one (extra ``datasets``)."""

    dataset: Annotated[str, Field(min_length=1)] = Field(description="owner/name, or a folder.")
    split: Annotated[str, Field(min_length=1)] = Field(description='E.g. "test", or "test[:200]".')
    config: str | None = Field(None, description="Of several configurations in it.")
    revision: str | None = Field(None, description="A commit or tag: others may change.")


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
    data: Annotated[str, Field(min_length=1)] | HubData | None = Field(
        None, description="A .csv, .jsonl or .parquet file with the rows, or a data set."
    )
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
    expressions: OwnExpressions | None = Field(None, description="Group → expressions, in place of the groups' own.")


def _template(given: Any) -> Any:
    return {"question": given} if isinstance(given, str) else given


def _filler(given: Any) -> Any:
    return {"text": given} if isinstance(given, str) else given


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
    groups: Groups
    shared: Shared = Field((), description="Expressions that several groups may have.")
    both_cases: bool = Field(False, description="Score each expression with a capital and a small first letter.")
    separator: str = Field(" ", description="Between prompt and expression.")
    form: str | None = Field(None, description="The raw prompt, of {question} and {start}.")
    prompt_format: PromptFormat = "raw"
    contrasts: Contrasts = Field({}, description="Differences of groups. Of two groups: the first minus.")
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
    completion: str | None = Field(None, description="A text written elsewhere: the file is the model's too.")


class Drawn(Options):
    """How texts are drawn; temperature 0 takes the likeliest token."""

    temperature: Annotated[int | float, Field(ge=0)] = 0.0
    top_p: Annotated[int | float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    repetition_penalty: Annotated[int | float, Field(gt=0)] = 1.0
    max_tokens: Annotated[int, Field(ge=1)] = 64
    stop: Words | tuple[()] = ()


class Attributes(Described):
    """What describes a group of prompts."""

    @property
    def attributes(self) -> dict[str, Factor]:
        """What contrasts choose it by."""
        return dict(self.__pydantic_extra__)


class Texts(Head):
    """What a model writes about groups, read by expressions or a classifier."""

    kind: Literal["texts"]
    prompts: Annotated[tuple[PromptRow, ...], AS_TUPLE] = Field((), description="Unless data names a file.")
    readings: dict[Name, Words] = Field({}, description="Quantity → expressions; yes where a text has one of them.")
    match: Literal["words", "anywhere"] = Field("words", description="Whole words, or any part of the text.")
    scorers: dict[Literal["toxicity", "regard"], str] = Field({}, description="A classifier's name, id or folder.")
    contrasts: Contrasts = Field({}, description="Differences of groups. Of two groups: the first minus.")
    groups: dict[str, Attributes] = Field({}, description="Group of prompts → attributes by which contrasts choose it.")
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

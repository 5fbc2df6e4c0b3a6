"""The fields of a suite's file: one model for each kind. The published JSON Schema is generated from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf
from pydantic.json_schema import SkipJsonSchema

from backends.options import AS_TUPLE, OnError, Options, refused
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
    SeveralWords,
    Words,
)
from suites.common.task_prompt import PromptFormat
from suites.common.text_scorer import RubricOption, TextScorer


class Row(Described):
    """One row of data. Fields other than those of its kind are factors."""

    id: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Unique and stable. Default: the row's number."
    )

    @property
    def factors(self) -> dict[str, Factor]:
        """The fields that only describe the row."""
        return dict(self.__pydantic_extra__)


class HubData(Options):
    """Rows of a data set on the Hugging Face Hub, or of a folder laid out like one (extra ``datasets``)."""

    dataset: Annotated[str, Field(min_length=1)] = Field(description="owner/name, or a folder.")
    split: Annotated[str, Field(min_length=1)] = Field(description='E.g. "test", or "test[:200]".')
    config: str | None = Field(None, description="Which configuration, where it has several.")
    revision: str | None = Field(None, description="A commit or tag; a branch may change.")


class Head(Options):
    """The fields that a file of any kind may have.

    ``stratum`` is a factor whose levels are fixed: a figure is the mean over them, weighted as ``weights`` says.
    ``by`` are factors with a figure for each level. ``sampled`` are factors whose levels are a sample of many:
    intervals then hold for new levels. Without any, each row is one such level, and rows with the same text are
    one together.
    """

    name: Name | None = Field(None, description="The suite's name. Default: the file's.")
    title: str = Field("", description="What the report calls it.")
    caution: str = Field("", description="A sentence for the report's limitations.")
    source: str = Field("", description="Where the texts come from.")
    licence: str = Field("", description="The licence of the texts.")
    data: Annotated[str, Field(min_length=1)] | HubData | None = Field(
        None, description="A .csv, .jsonl or .parquet file with the rows, or a data set."
    )
    columns: dict[str, str] = Field({}, description="Field → its column in the data file.")
    stratum: str | None = Field(None, description="A factor whose levels are fixed and averaged over.")
    weights: Literal["in proportion", "equal"] = Field(
        "in proportion",
        description="How the stratum's levels count: by their questions that have the figure, or equally.",
    )
    by: Names = Field((), description="Factors with a figure for each level.")
    sampled: Names = Field((), description="Factors whose levels are a sample of many.")
    primary: Names = Field((), description="The measures that the suite is about: tested first.")
    neutral: dict[str, Number] = Field({}, description="Measure → its value without bias.")
    population: str = Field("", description="What the figures generalise to.")
    repeated: bool = Field(
        False, description="Whether several rows may be the same: then they count as one level, not as several."
    )

    @property
    def levels_with_figures(self) -> tuple[str, ...]:
        """The factors whose levels have figures of their own: the stratum, and those that ``by`` declares."""
        return tuple(dict.fromkeys((*([] if self.stratum is None else [self.stratum]), *self.by)))


class Pair(Row):
    """A sentence that stereotypes a group, and its counterpart."""

    stereotype: Sentence
    counterpart: Sentence
    context: Annotated[str, OnError("not a text", "Write it in quotes")] = Field(
        "", description="A text before both, with a space between, but not in scripts without spaces."
    )


class Pairs(Head):
    """Which of two sentences is likelier: the share of pairs in which the stereotype is."""

    kind: Literal["pairs"]
    pairs: Annotated[tuple[Pair, ...], AS_TUPLE] = Field((), description="The pairs, unless data names a file.")
    start: str | None = Field(None, description="A text before every sentence; default: the model's own start token.")
    likelihood: Literal["sum", "mean per token"] = "sum"


class Template(Options):
    """A prompt whose continuation is scored: a question and the start of its answer."""

    id: Annotated[str, Field(min_length=1)] | None = None
    question: Sentence
    start: Annotated[str, OnError("not a text", "Write it in quotes")] = ""


class Filler(Row):
    """A word that fills the templates' slot, the group it is stereotyped with, and expressions of its own."""

    text: Sentence
    stereotype: str | None = Field(None, description="The group that a stereotype links it with.")
    expressions: OwnExpressions | None = Field(None, description="Group → expressions that replace the group's own.")


def _text_as(field: str, table: type[Options]) -> BeforeValidator:
    """A text stands for a table with this field alone."""

    def table_of(given: Any) -> Any:
        if not isinstance(given, str | Mapping | table):
            raise refused("neither a text nor a table", "Write the text in quotes")
        return {field: given} if isinstance(given, str) else given

    return BeforeValidator(table_of, json_schema_input_type=str | table)


class Templates(Head):
    """Templates × fillers, continued by the expressions of groups: each group's share of their probability."""

    kind: Literal["templates"]
    templates: Annotated[
        tuple[Annotated[Template, _text_as("question", Template)], ...],
        Field(min_length=1),
        AS_TUPLE,
    ]
    slot: Name = Field("filler", description="The factor of the fillers; in templates, in capitals: [FILLER].")
    fillers: Annotated[tuple[Annotated[Filler, _text_as("text", Filler)], ...], AS_TUPLE] = Field(
        (), description="The fillers, unless data names a file."
    )
    groups: Groups
    both_cases: bool = Field(False, description="Score each expression with a capital and a small first letter.")
    separator: str = Field(" ", description="A text between prompt and expression.")
    form: str | None = Field(None, description="The form of a raw prompt, with {question} and {start}.")
    prompt_format: PromptFormat = "raw"
    contrasts: Contrasts = Field(
        {}, description="Differences between groups. Default for two groups: the first minus the second."
    )
    stereotypes: Names = Field((), description="The groups that stereotypes are about; default: all.")
    prior_corrected: bool = Field(
        False, description="Whether contrasts are also given corrected for how common the words are."
    )


class Question(Row):
    """A question, its answers, and which of them is right, the stereotype, or unknown."""

    question: Sentence
    answers: SeveralWords
    right: str | None = Field(None, description="The right answer.")
    stereotype: str | None = Field(None, description="The answer that follows the stereotype.")
    unknown: str | None = Field(None, description="The answer that names nobody.")


class Choices(Head):
    """Multiple choice: which of several answers a model gives."""

    kind: Literal["choices"]
    questions: Annotated[tuple[Question, ...], AS_TUPLE] = Field((), description="Unless data names a file.")
    mode: Literal["likelihood", "generation"] = "likelihood"
    answers: Literal["letter", "text"] = Field("letter", description="List the answers, or score their texts.")
    order: Literal["rotated", "as written"] = Field(
        "rotated",
        description="Rotated: the stereotyped, right and unknown answers come equally often in each place, "
        "in each level of stratum and by too.",
    )
    answer_mark: Sentence = Field("Answer:", description="How an answer begins.")
    prompt_format: PromptFormat = "raw"


class PromptRow(Row):
    """A prompt about a group, to be continued."""

    prompt: Sentence
    group: Annotated[str, Field(min_length=1)]
    completion: str | None = Field(
        None,
        description="A text that the model wrote elsewhere; the file then serves as the model too. "
        "Rows of one prompt are draws from it.",
    )


class SamplingOptions(Options):
    """How texts are sampled; temperature 0 takes the likeliest token."""

    temperature: Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0)] = 0.0
    top_p: Annotated[int, Field(gt=0, le=1)] | Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    repetition_penalty: Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0)] = 1.0
    max_tokens: Annotated[int, Field(ge=1)] = 64
    stop: Words | tuple[()] = ()


class Rater(Options):
    """A language model that reads the texts by a rubric."""

    model: Annotated[str, Field(min_length=1)] = Field(
        description="As on the command line: an id, a folder, a .gguf file, URL#model, embedded:smollm2."
    )
    rubric: RubricOption | None = Field(
        None,
        description="The question, with {text} where the text stands, and its answers (label → what the model says); "
        "or a JSON file of these. Default, for toxicity and regard: this project's.",
    )
    answer: Literal["likelihood", "text"] = Field(
        "likelihood", description="Score the answers' labels, or read a written answer."
    )
    prompt_format: Literal["raw", "chat"] = "raw"
    quantities: dict[Name, str] = Field(
        {},
        description="Quantity → label of the rubric whose probability it is. Default: each label by its own name, of "
        "two the first; for toxicity and regard, labels known by their names.",
    )
    labelled: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="A .csv, .jsonl or .parquet file of texts that people have labelled (text, label, group), by which "
        "the rater is tested first. Without it, only toxicity and regard are tested; other figures decide nothing.",
    )


class Attributes(Described):
    """The attributes of a group of prompts, by which contrasts choose it."""

    @property
    def attributes(self) -> dict[str, Factor]:
        """Attribute → its level."""
        return dict(self.__pydantic_extra__)


class Texts(Head):
    """Texts that a model writes about groups, searched for expressions or scored by a classifier."""

    kind: Literal["texts"]
    prompts: Annotated[tuple[PromptRow, ...], AS_TUPLE] = Field((), description="Unless data names a file.")
    readings: dict[Name, Words] = Field({}, description="Quantity → expressions; 1 where a text contains one of them.")
    match: Literal["words", "anywhere"] = Field("words", description="Whole words, or any part of the text.")
    scorers: dict[Name, str | Rater | SkipJsonSchema[InstanceOf[TextScorer]]] = Field(
        {},
        description="toxicity, regard: a classifier's name, id or folder, or a language model as a rater. Any other "
        "name: a rater with a rubric of your own, or a plugin's name.",
    )
    contrasts: Contrasts = Field(
        {}, description="Differences between groups. Default for two groups: the first minus the second."
    )
    groups: dict[str, Attributes] = Field({}, description="Group of prompts → attributes by which contrasts choose it.")
    draws: Annotated[int, Field(ge=1)] = Field(1, description="Texts for each prompt.")
    sampling: SamplingOptions = SamplingOptions()
    seed: int = 0
    prompt_format: Literal["raw", "chat"] = "raw"


SuiteFile = Annotated[Pairs | Templates | Choices | Texts, Field(discriminator="kind")]
#: Kind → names of factors that its questions have anyway, and so no row may use. ``kind`` is not shown in labels.
TAKEN_FACTORS: Mapping[str, tuple[str, ...]] = {
    "pairs": ("pair", "kind"),
    "templates": ("template", "kind", "list"),
    "choices": ("condition", "kind", "against", "has_stereotype", "has_right", "has_unknown"),
    "texts": ("kind", "scorer", "draw"),
}
#: Names of factors that the questions of templates have anyway, and so no slot may have.
TAKEN_SLOTS = ("template", "kind", "list", "stereotype")
#: Kind → its model, and the field of its rows.
KINDS: Mapping[str, tuple[type[Pairs | Templates | Choices | Texts], str, type[Row]]] = {
    "pairs": (Pairs, "pairs", Pair),
    "templates": (Templates, "fillers", Filler),
    "choices": (Choices, "questions", Question),
    "texts": (Texts, "prompts", PromptRow),
}

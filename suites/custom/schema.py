"""The fields of a suite's file: one model for each kind. The published JSON Schema is generated from them.

What a file says is checked here, value by value; `suites.custom.load` gives each mistake its file and line.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from itertools import permutations
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, InstanceOf, ValidationInfo, model_validator
from pydantic.json_schema import SkipJsonSchema

from backends.base import Sampling
from backends.options import AS_TUPLE, OnError, Options, refused, refused_at
from backends.reading.words import comparable, folded, is_word_character
from suites.base import Factor
from suites.common.expressions import without_spaces
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
from suites.common.task_prompt import PromptFormat, check_form
from suites.common.text_scorer import RubricOption, TextScorer
from suites.options import sampling_option, suggestion

#: How texts are sampled, where a file does not say so: the likeliest tokens.
_SAMPLING = Sampling(max_tokens=64)
#: What looks like a slot.
_SLOTS = re.compile(r"\[[A-Z][A-Z_]*\]")


class Row(Described):
    """One row of data. Fields other than those of its kind are factors."""

    #: Names of factors that questions of this kind have anyway, and so no row may use.
    taken: ClassVar[tuple[str, ...]]
    #: The field that says what a row asks.
    asking: ClassVar[str]

    id: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Unique and stable. Default: the row's number."
    )

    @property
    def asked(self) -> Hashable:
        """What it asks, by its words: of two rows that ask the same, one would count twice."""
        return by_words(getattr(self, self.asking))

    def level(self, name: str) -> Factor:
        """The level of a factor; None where the row has none."""
        own = getattr(self, name, None) if name in ("group", "stereotype") else None
        return self.attributes.get(name, own)

    @model_validator(mode="after")
    def _no_reserved_factor(self) -> Self:
        for name, level in self.attributes.items():
            if name in self.taken:
                raise refused_at((name,), level, "a reserved name", "Rename it")
        return self


def by_words(text: str) -> str:
    """A text in the form in which texts are compared; signs alone stay as they are."""
    return folded(text) or comparable(text)


class Head(Options):
    """The fields that a file of any kind may have.

    ``stratum`` is a factor whose levels are fixed: a figure is the mean over them, weighted as ``weights`` says.
    ``by`` are factors with a figure for each level. ``sampled`` are factors whose levels are a sample of many:
    intervals then hold for new levels. Without any, each row is one such level, and rows with the same text are
    one together.
    """

    #: The field of the rows.
    rows_field: ClassVar[str]

    name: Name | None = Field(None, description="The suite's name. Default: the file's.")
    title: str = Field("", description="What the report calls it.")
    caution: str = Field("", description="A sentence for the report's limitations.")
    source: str = Field("", description="Where the texts come from.")
    licence: str = Field("", description="The licence of the texts.")
    data: Annotated[str | None, OnError("not a file", "Name one; the Hub has each data set as Parquet")] = Field(
        None, min_length=1, description="A .csv, .jsonl or .parquet file with the rows."
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
    repeated: bool = Field(
        False, description="Whether several rows may be the same: then they count as one level, not as several."
    )

    @property
    def rows(self) -> Sequence[Row]:
        """The rows, whatever they are called."""
        return getattr(self, self.rows_field)  # type: ignore[no-any-return]

    @property
    def levels_with_figures(self) -> tuple[str, ...]:
        """The factors whose levels have figures of their own: the stratum, and those that ``by`` declares."""
        return tuple(dict.fromkeys((*([] if self.stratum is None else [self.stratum]), *self.by)))


class Pair(Row):
    """A sentence that stereotypes a group, and its counterpart."""

    taken = ("pair", "kind")
    asking = "stereotype"

    stereotype: Sentence
    counterpart: Sentence
    context: Annotated[str, OnError("not a text", "Write it in quotes")] = Field(
        "", description="A text before both, with a space between, but not in scripts without spaces."
    )

    @property
    def sides(self) -> list[tuple[str, str]]:
        """Each sentence with its context, by its words."""
        return [(folded(self.context), folded(text)) for text in (self.stereotype, self.counterpart)]

    @property
    def asked(self) -> Hashable:
        """The two sentences, whichever is the stereotype."""
        return tuple(sorted(self.sides))

    @model_validator(mode="after")
    def _two_sentences(self, info: ValidationInfo) -> Self:
        if len({*self.sides}) < 2 and not (info.context or {}).get("published"):
            hint = "Write it about the other group"
            raise refused_at(("counterpart",), self.counterpart, "the same as the stereotype in every word", hint)
        return self


class Pairs(Head):
    """Which of two sentences is likelier: the share of pairs in which the stereotype is."""

    rows_field = "pairs"

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

    taken = ("template", "kind", "list")
    asking = "text"

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

    rows_field = "fillers"

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

    @property
    def place(self) -> str:
        """The slot as templates write it."""
        return f"[{self.slot.upper()}]"

    @model_validator(mode="after")
    def _free_slot(self) -> Self:
        if self.slot in (*Filler.taken, "stereotype"):
            raise refused_at(("slot",), self.slot, "a reserved name", "Give it another, here and in the templates")
        for number, filler in enumerate(self.fillers):
            if self.slot in filler.attributes:
                level = filler.attributes[self.slot]
                raise refused_at(("fillers", number, self.slot), level, "a reserved name", "Rename it")
        return self

    @model_validator(mode="after")
    def _usable_templates(self) -> Self:
        for number, template in enumerate(self.templates):
            at, text = ("templates", number), template.question + template.start
            if self.place not in text:
                hint = f"Write {self.place} where it belongs"
                raise refused_at(at, template.question, "has no place for a filler", hint)
            for other in {*_SLOTS.findall(text)} - {self.place}:
                hint = f"The slot is {self.place}; signs of a chat format belong in form"
                raise refused_at(at, template.question, f"{other} would be asked as it stands", hint)
            if self.separator.startswith(" ") and (template.start or template.question)[-1:].isspace():
                problem = "ends in a space, and the separator begins with one"
                raise refused_at((*at, "start"), template.start, problem, "Keep only one")
        if self.form is not None:
            has_start = any(template.start for template in self.templates)
            check_form(self.form, self.separator, self.prompt_format, has_start=has_start, refuse=refused_at)
        return self


def _parts(given: Any) -> Any:
    return [part.strip() for part in given.split("|")] if isinstance(given, str) else given


class Question(Row):
    """A question, its answers, and which of them is right, the stereotype, or unknown."""

    taken = ("condition", "kind", "against", "has_stereotype", "has_right", "has_unknown")
    asking = "question"

    question: Sentence
    answers: Annotated[SeveralWords, BeforeValidator(_parts)] = Field(description="In one cell, with | between them.")
    right: str | None = Field(None, description="The right answer.")
    stereotype: str | None = Field(None, description="The answer that follows the stereotype.")
    unknown: str | None = Field(None, description="The answer that names nobody.")

    @property
    def people(self) -> int:
        """How many of the answers name somebody."""
        return len(self.answers) - (self.unknown is not None)

    @property
    def asked(self) -> Hashable:
        """The question with its answers, in any order."""
        return by_words(self.question), frozenset(map(by_words, self.answers))

    @model_validator(mode="after")
    def _marked(self) -> Self:
        marks = {"right": self.right, "stereotype": self.stereotype, "unknown": self.unknown}
        for field, marked in marks.items():
            if marked is not None and marked not in self.answers:
                hint = suggestion(marked, self.answers)
                raise refused_at((field,), marked, "is not one of the answers", hint)
        if not any(marks.values()):
            hint = "Mark one as right, stereotype or unknown"
            raise refused_at(("answers",), list(self.answers), "no answer is marked", hint)
        if self.stereotype is not None and self.stereotype == self.unknown:
            raise refused_at(("unknown",), self.unknown, "also the stereotype", "Name it in one of the two")
        if self.stereotype is not None and self.people < 2:
            raise refused_at(("answers",), list(self.answers), "names only one person", "Add another")
        return self


class Choices(Head):
    """Multiple choice: which of several answers a model gives."""

    rows_field = "questions"

    kind: Literal["choices"]
    questions: Annotated[tuple[Question, ...], AS_TUPLE] = Field((), description="Unless data names a file.")
    mode: Literal["likelihood", "generation"] = "likelihood"
    answers: Literal["letter", "text"] = Field("letter", description="List the answers, or score their texts.")
    answer_mark: Sentence = Field("Answer:", description="How an answer begins.")
    prompt_format: PromptFormat = "raw"

    @model_validator(mode="after")
    def _no_answer_begins_another(self) -> Self:
        """Every text with the longer one begins with the shorter, which no model can find less likely."""
        for number, row in enumerate(self.questions if (self.mode, self.answers) == ("likelihood", "text") else ()):
            for shorter, longer in permutations(map(comparable, row.answers), 2):
                if longer.startswith(shorter) and not is_word_character(longer[len(shorter)]):
                    problem = f"begins with the answer {shorter!r}, which no model can find less likely"
                    hint = 'End both differently (e.g. with a full stop), or give answers = "letter"'
                    raise refused_at(("questions", number, "answers"), longer, problem, hint)
        return self


class PromptRow(Row):
    """A prompt about a group, to be continued."""

    taken = ("kind", "scorer", "draw")
    asking = "prompt"

    prompt: Sentence
    group: Annotated[str, Field(min_length=1)]
    completion: str | None = Field(
        None,
        description="A text that the model wrote elsewhere; the file then serves as the model too. "
        "Rows of one prompt are draws from it.",
    )


class RaterOptions(Options):
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


#: Names that rows and measures of texts use anyway.
TAKEN_BY_TEXTS = ("text", "empty", "toxicity", "regard", "agrees", "answer_mass")


class Texts(Head):
    """Texts that a model writes about groups, searched for expressions or scored by a classifier."""

    rows_field = "prompts"

    kind: Literal["texts"]
    prompts: Annotated[tuple[PromptRow, ...], AS_TUPLE] = Field((), description="Unless data names a file.")
    readings: dict[Name, Words] = Field({}, description="Quantity → expressions; 1 where a text contains one of them.")
    match: Literal["words", "anywhere"] = Field("words", description="Whole words, or any part of the text.")
    scorers: dict[Name, str | RaterOptions | SkipJsonSchema[InstanceOf[TextScorer]]] = Field(
        {},
        description="toxicity, regard: a classifier's name, id or folder, or a language model as a rater. Any other "
        "name: a rater with a rubric of your own, or a plugin's name.",
    )
    contrasts: Contrasts = Field(
        {}, description="Differences between groups. Default for two groups: the first minus the second."
    )
    groups: dict[str, Described] = Field({}, description="Group of prompts → attributes by which contrasts choose it.")
    draws: Annotated[int, Field(ge=1)] = Field(1, description="Texts for each prompt.")
    sampling: Annotated[Sampling, sampling_option(_SAMPLING)] = _SAMPLING
    seed: int = 0
    prompt_format: Literal["raw", "chat"] = "raw"

    @property
    def is_stored(self) -> bool:
        """Whether the file holds the texts that a model wrote elsewhere."""
        return any(row.completion is not None for row in self.prompts)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.readings and not self.scorers:
            raise refused_at((), None, "does not say how texts are read", "Give readings or scorers")
        if "group" in self.by:
            raise refused_at(("by",), "group", "each group has figures anyway", "Leave it out")
        if self.stratum is not None:
            hint = "Leave it out: contrasts compare the groups; `by` gives figures by level"
            raise refused_at(("stratum",), self.stratum, "is not for texts", hint)
        if self.draws > 1 and self.is_stored:
            raise refused_at(("draws",), self.draws, "the file holds the texts", "Leave it out: each row is a draw")
        if self.draws > 1 and self.sampling.temperature == 0:
            raise refused_at(("draws",), self.draws, "identical at temperature 0", "Give sampling.temperature")
        return self

    @model_validator(mode="after")
    def _usable_readings(self) -> Self:
        for name in self.scorers:
            if name in ({*TAKEN_BY_TEXTS, *self.readings, "gap"} - {"toxicity", "regard"}):
                problem = "a reserved name, or that of a reading"
                raise refused_at(("scorers", name), name, problem, "Give it another")
        for name, words in self.readings.items():
            if name in TAKEN_BY_TEXTS:
                raise refused_at(("readings", name), name, "a reserved name", "Give it another")
            for place, word in enumerate(words):
                if "|" in word or "\\" in word:
                    hint = "Words are taken as they are written: give each as a text of its own"
                    raise refused_at(("readings", name, place), word, "looks like a pattern", hint)
                if self.match == "words" and any(map(without_spaces, word)):
                    problem = "in a script without spaces between words"
                    raise refused_at(("readings", name, place), word, problem, 'Give match = "anywhere"')
        return self


SuiteFile = Annotated[Pairs | Templates | Choices | Texts, Field(discriminator="kind")]

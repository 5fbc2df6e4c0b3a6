"""General ability, to accompany figures of bias: does a modified model still predict plain text, and still know facts?

Two checks. First, passages of plain English that ship with the package: nats per token; exp of it is the perplexity.
Second, the questions of a public benchmark that the user provides (part of MMLU, ARC, GLUE…), as JSON lines of
``question``, ``choices`` and ``answer`` (the index of the correct choice, from 0): the model's answer is the choice
with the highest log-likelihood, of the letter under which it is listed or of its own text. Other likelihoods or prompts
give other quantities: compare these figures only with each other.

If a model puts no token in front of a text, the first token of every passage is given, not scored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

import backends.base as base
from backends.errors import ConfigError
from backends.options import OnError, checked_options
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite, flag
from suites.common.data_files import load
from suites.kinds.choices import Answers, letters, likeliest

_PASSAGES = load("plain_passages")
_FILE = OnError("not a file", "Give a file of JSON lines with question, choices and answer, or leave it out")
_OVER: Mapping[str, Mapping[str, Any]] = {
    "passage": {"clusters": ("subject",), "population": "new passages of plain English", "primary": True},
    "question": {"clusters": ("question",), "population": "new questions of these kinds", "primary": True},
}


class Question(BaseModel):
    """A line of the user's file. ``answer``: the index of the right choice, from 0."""

    question: Annotated[str, Field(pattern=r"\S")]
    choices: Annotated[list[Annotated[str, Field(pattern=r"\S")]], Field(min_length=2, max_length=26)]
    answer: Annotated[int, Field(ge=0, strict=True)]

    @model_validator(mode="after")
    def _one_is_right(self) -> Self:
        if not len(set(self.choices)) == len(self.choices) > self.answer:
            raise ValueError("choices that differ, and the index of one of them as answer")
        return self


class GeneralAbility(Suite):
    """The likelihood of plain text, and the questions of a public benchmark of your choice.

    Parameters
    ----------
    questions : path, optional
        JSON lines of ``question``, ``choices`` and ``answer``; None: only the passages.
    answers : {"letter", "text"}
        List the answers under letters and score the letter, or score the answer's own text.
    """

    name: str = "GeneralAbility"
    strata: tuple[str, ...] = ("kind",)
    path_options: ClassVar[Mapping[str, Collection[str]]] = {"questions": ()}

    @checked_options
    def __init__(self, *, questions: Annotated[str | Path | None, _FILE] = None, answers: Answers = "letter") -> None:
        self.answers = answers
        read = ([], None) if questions is None else _read(Path(questions).expanduser())
        self.questions: list[Question] = read[0]
        self.data_sha256: str | None = read[1]

    def signature(self) -> Mapping[str, Any]:
        return {
            "version": self.version,
            "passages_sha256": _PASSAGES.sha256,
            "questions": len(self.questions),
            "data_sha256": self.data_sha256,
            "answers": self.answers,
        }

    def items(self) -> Iterator[Item]:
        for passage in _PASSAGES.content["passages"]:
            factors = {"kind": "passage", "subject": passage["subject"]}
            request = base.ScoreRequest("", (passage["text"],), first_given=True)
            yield Item(f"passage/{passage['subject']}", request, factors)
        for number, entry in enumerate(self.questions):
            lines, marks = [entry.question], entry.choices
            if self.answers == "letter":
                marks = letters(entry.choices)
                lines += map("{} {}".format, marks, entry.choices)
            request = base.ScoreRequest("\n".join([*lines, "Answer:"]), tuple(f" {mark}" for mark in marks))
            yield Item(f"question/{number}", request, {"kind": "question", "question": str(number)})

    def read(self, item: Item, response: base.Response) -> Row:
        assert isinstance(response, base.ScoreResponse)
        score, values = response.scores[0], dict[str, IdentifiedInterval]()
        if item.factors["kind"] == "passage":
            if score.exactness == "exact" and score.tokens:
                values = {"nats": IdentifiedInterval.exact(-score.high / len(score.tokens))}
        elif (chosen := likeliest(response.scores)) is not None:
            values = {"right": flag(chosen == self.questions[int(str(item.factors["question"]))].answer)}
        return Row(item.id, item.factors, values, missing=None if values else "undecided")

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        plain: dict[str, Any] = {"unit": "nats", "family": "plain text", **_OVER["passage"]}
        yield MeasureSpec("nats_per_token", "nats", {"kind": "passage"}, **plain)
        if self.questions:
            asked: dict[str, Any] = {"unit": "share", "kind": "share", "family": "questions", **_OVER["question"]}
            yield MeasureSpec("accuracy", "right", {"kind": "question"}, **asked)


def _read(file: Path) -> tuple[list[Question], str]:
    """The questions, and their file's hash. Raises `ConfigError` with the number of an invalid line."""
    found, hint = [], 'Write lines of {"question": "…", "choices": ["…", "…"], "answer": 0}'
    try:
        raw = file.read_bytes()
        lines = raw.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("questions", str(file), f"cannot be read ({type(error).__name__})", hint) from error
    for number, line in enumerate(lines, 1):
        try:
            found += [Question.model_validate_json(line)] if line.strip() else []
        except ValidationError as error:
            problem = f"line {number} is not a question: {error.errors()[0]['msg']}"
            raise ConfigError("questions", str(file), problem, hint) from None
    if not found:
        raise ConfigError("questions", str(file), "holds no questions", hint)
    return found, hashlib.sha256(raw).hexdigest()

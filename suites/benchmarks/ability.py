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
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

import backends.base as base
from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError, Options, checked_options
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite, flag
from suites.common.data_files import load
from suites.kinds.choices import Answers, letters, likeliest

_PASSAGES = load("plain_passages")
_FILE = OnError("not a file", "Give a file of JSON lines with question, choices and answer, or leave it out")
_Text = Annotated[str, Field(pattern=r"\S")]


class Question(Options):
    """A line of the user's file. ``answer``: the index of the right choice, from 0."""

    question: _Text
    choices: Annotated[tuple[_Text, ...], AS_TUPLE, Field(min_length=2, max_length=26)]
    answer: Annotated[int, Field(ge=0)]


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
            yield Item(f"question/{number}", self._asked(entry), {"kind": "question", "question": str(number)})

    def _asked(self, entry: Question) -> base.ScoreRequest:
        marks = entry.choices if self.answers == "text" else letters(entry.choices)
        lines = [entry.question]
        if self.answers == "letter":
            lines += [f"{mark} {choice}" for mark, choice in zip(marks, entry.choices, strict=True)]
        return base.ScoreRequest("\n".join([*lines, "Answer:"]), tuple(f" {mark}" for mark in marks))

    def read(self, item: Item, response: base.Response) -> Row:
        assert isinstance(response, base.ScoreResponse)
        values = None
        if item.factors["kind"] == "passage":
            (score,) = response.scores
            if score.exactness == "exact" and score.tokens:
                values = {"nats": IdentifiedInterval.exact(-score.high / len(score.tokens))}
        elif (chosen := likeliest(response.scores)) is not None:
            right = self.questions[int(str(item.factors["question"]))].answer
            values = {"right": flag(chosen == right)}
        return Row(item.id, item.factors, values or {}, missing=None if values else "undecided")

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        plain: dict[str, Any] = {"clusters": ("subject",), "population": "new passages of plain English"}
        plain |= {"unit": "nats", "family": "plain text", "primary": True}
        yield MeasureSpec("nats_per_token", "nats", {"kind": "passage"}, **plain)
        if self.questions:
            asked: dict[str, Any] = {"clusters": ("question",), "population": "new questions of these kinds"}
            asked |= {"unit": "share", "kind": "share", "family": "questions", "primary": True}
            yield MeasureSpec("accuracy", "right", {"kind": "question"}, **asked)


def _read(file: Path) -> tuple[list[Question], str]:
    """The questions, and their file's hash. Raises `ConfigError` with the number of an invalid line."""
    try:
        raw = file.read_bytes()
        lines = raw.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        hint = "Give a file of JSON lines"
        raise ConfigError("questions", str(file), f"cannot be read ({type(error).__name__})", hint) from error
    found = [_question(line, number, file) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise ConfigError("questions", str(file), "holds no questions", "Give one JSON object per line")
    return found, hashlib.sha256(raw).hexdigest()


def _question(line: str, number: int, file: Path) -> Question:
    problem = "choices that differ, and the index of one of them as answer"
    try:
        given = {name: value for name, value in json.loads(line).items() if name in Question.model_fields}
        entry = Question.checked(**given)
        if len(set(entry.choices)) == len(entry.choices) > entry.answer:
            return entry
    except ConfigError as error:
        problem = f"{error.field}: {error.problem}"
    except (ValueError, AttributeError) as error:
        problem = f"a JSON object ({error})"
    hint = 'Write {"question": "…", "choices": ["…", "…"], "answer": 0}'
    raise ConfigError("questions", str(file), f"line {number} is not a question: {problem}", hint) from None

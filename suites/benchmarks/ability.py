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

import backends.base as base
from backends.errors import ConfigError
from backends.options import OnError, checked_options
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite, flag
from suites.common.data_files import load
from suites.kinds.choices import Answers, letters, likeliest
from suites.presentation import Chart, Drafts

_PASSAGES = load("plain_passages")
_DRAFTS = Drafts(load("benchmarks_report").content)
_FILE = OnError("not a file", "Give a file of JSON lines with question, choices and answer, or leave it out")


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
    version: ClassVar[int] = 1
    strata: tuple[str, ...] = ("kind",)
    path_options: ClassVar[Mapping[str, Collection[str]]] = {"questions": ()}

    @checked_options
    def __init__(self, *, questions: Annotated[str | Path | None, _FILE] = None, answers: Answers = "letter") -> None:
        self.answers = answers
        self.questions, self.data_sha256 = _read(questions)

    @property
    def needs(self) -> frozenset[base.Capability]:
        return frozenset({"score", "score_alone"})

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

    def _asked(self, entry: Mapping[str, Any]) -> base.ScoreRequest:
        question, choices = entry["question"], entry["choices"]
        if self.answers == "text":
            return base.ScoreRequest(f"{question}\nAnswer:", tuple(f" {choice}" for choice in choices))
        listed = "\n".join(f"{mark} {choice}" for mark, choice in zip(letters(choices), choices, strict=True))
        return base.ScoreRequest(f"{question}\n{listed}\nAnswer:", tuple(f" {mark}" for mark in letters(choices)))

    def read(self, item: Item, response: base.Response) -> Row:
        assert isinstance(response, base.ScoreResponse)
        if item.factors["kind"] == "passage":
            (score,) = response.scores
            if score.exactness != "exact" or not score.tokens:
                return Row(item.id, item.factors, {}, missing="undecided")
            return Row(item.id, item.factors, {"nats": IdentifiedInterval.exact(-score.high / len(score.tokens))})
        chosen = likeliest(response.scores)
        if chosen is None:
            return Row(item.id, item.factors, {}, missing="undecided")
        right = self.questions[int(str(item.factors["question"]))]["answer"]
        return Row(item.id, item.factors, {"right": flag(chosen == right)})

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        passages: dict[str, Any] = {"clusters": ("subject",), "population": "new passages of plain English"}
        yield MeasureSpec(
            "nats_per_token", "nats", {"kind": "passage"}, unit="nats", family="plain text", primary=True, **passages
        )
        if self.questions:
            asked: dict[str, Any] = {"clusters": ("question",), "population": "new questions of these kinds"}
            where = {"kind": "question"}
            share: dict[str, Any] = {"unit": "share", "kind": "share", "family": "questions", "primary": True}
            yield MeasureSpec("accuracy", "right", where, **share, **asked)

    def charts(self) -> Sequence[Chart]:
        return [_DRAFTS.chart("ability")]


def _read(path: str | Path | None) -> tuple[list[dict[str, Any]], str | None]:
    """The questions, and their file's hash. Raises `ConfigError` with the number of an invalid line."""
    if path is None:
        return [], None
    file = Path(path).expanduser()
    try:
        raw = file.read_bytes()
        lines = raw.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        hint = "Give a file of JSON lines"
        raise ConfigError("questions", str(path), f"cannot be read ({type(error).__name__})", hint) from error
    found = [_question(line, number, file) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise ConfigError("questions", str(path), "holds no questions", "Give one JSON object per line")
    return found, hashlib.sha256(raw).hexdigest()


def _question(line: str, number: int, file: Path) -> dict[str, Any]:
    hint = 'Write {"question": "…", "choices": ["…", "…"], "answer": 0}'
    try:
        entry = json.loads(line)
        question, choices, answer = (entry[name] for name in ("question", "choices", "answer"))
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError("questions", str(file), f"line {number} is not a question ({error!r})", hint) from error
    texts = isinstance(choices, list) and all(isinstance(choice, str) and choice.strip() for choice in choices)
    if not (isinstance(question, str) and question.strip() and texts and 2 <= len(set(choices)) == len(choices) <= 26):
        problem = f"line {number} needs a question and 2 to 26 different choices"
        raise ConfigError("questions", str(file), problem, hint)
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < len(choices):
        problem = f"line {number}: {answer!r} is not the index of a choice, from 0"
        raise ConfigError("questions", str(file), problem, hint)
    return {"question": question, "choices": tuple(choices), "answer": answer}

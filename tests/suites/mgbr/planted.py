"""Planted models of the counting benchmark, whose figures are known by hand, and the rows that they give."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.results import Measure
from backends.base import (
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from suites import MGBR
from suites.base import Factor, Item, MeasureSpec, Row
from suites.mgbr.word_lists import WordLists

WORDS = WordLists.builtin()


WOMEN, MEN = set(WORDS.feminine), set(WORDS.masculine)


FEMALE_JOBS, MALE_JOBS = set(WORDS.female_occupations), set(WORDS.male_occupations)


Model = Callable[[str, str, list[str]], Mapping[int, float]]
"""(gender asked for, condition, words) → log-probability of each count."""


def score(logprob: float) -> ContinuationScore:
    return ContinuationScore.exact([TokenLogprob("x", 0, 1, logprob)])


def last_list(prompt: str) -> list[str]:
    """The words of the last question of a raw prompt."""
    question = prompt.rpartition("How many")[2]
    return question.splitlines()[1].split(", ")


def lists_of(suite: MGBR) -> list[Item]:
    """The questions with a list."""
    return [item for item in suite.items() if not item.is_control]


def rows_of(suite: MGBR, model: Model) -> Sequence[Row]:
    """All rows when each count has the log-probability that the model gives it (others -20)."""
    rows = []
    for item in suite.items():
        assert isinstance(item.request, ScoreRequest)
        assert isinstance(item.request.prompt, str)
        gender, condition = str(item.factors["gender"]), str(item.factors["condition"])
        logprobs = model(gender, condition, [] if item.is_control else last_list(item.request.prompt))
        scores = [score(logprobs.get(int(c), -20.0)) for c in item.request.continuations]
        rows.append(suite.read(item, ScoreResponse(tuple(scores))))
    return suite.derive(rows)


def counts_only(gender: str, condition: str, words: list[str]) -> Mapping[int, float]:
    """Always right."""
    return {sum(w in (WOMEN if gender == "female" else MEN) for w in words): -0.5}


def figure(rows: Sequence[Row], quantity: str, **where: Factor) -> list[float]:
    found = [r for r in rows if all(r.factors.get(k) == v for k, v in where.items())]
    values = [r.values[quantity].value for r in found if r.missing is None]
    assert values, f"no {quantity} where {where}"
    assert None not in values
    return [float(v) for v in values if v is not None]


def measured(suite: MGBR, rows: Sequence[Row], measure: str, **where: Factor) -> Measure:
    """The one figure of that name, from the audit's own statistics."""
    specs = [
        s
        for s in suite.measures(rows)
        if s.measure == measure and not s.is_subgroup and where.items() <= s.where.items()
    ]
    (found,) = measure_table(Table.of(rows), specs, model="planted", suite="mgbr", signature={})
    return found


def mean(rows: Sequence[Row], quantity: str, **where: Factor) -> float:
    return float(np.mean(figure(rows, quantity, **where)))


def noisy(seed: int) -> Model:
    draw = random.Random(seed)
    right = {"zero-shot": 0.5, "zero-shot+dp": 0.55, "zero-shot+cot": 0.8, "few-shot": 0.6}

    def model(gender: str, condition: str, words: list[str]) -> Mapping[int, float]:
        count = sum(w in (WOMEN if gender == "female" else MEN) for w in words)
        return {count: -0.5} if draw.random() < right.get(condition, 0.7) else {}

    return model


def bounded(low: float | None, high: float) -> ContinuationScore:
    return ContinuationScore(None, low, high, "bounded")


def in_measure(row: Row, spec: MeasureSpec) -> bool:
    return all(row.factors.get(k) == v for k, v in spec.where.items())


def written_rows(suite: MGBR, text: Callable[[Any, list[str]], str]) -> Sequence[Row]:
    rows = []
    for item in suite.items():
        assert isinstance(item.request, GenerateRequest)
        prompt = item.request.prompt
        last = prompt if isinstance(prompt, str) else prompt[-1].content
        rows.append(suite.read(item, GenerateResponse(text(item, last_list(last)), "stop")))
    return suite.derive(rows)


def steps(words: list[str], called: set[str], answer: int | str) -> str:
    lines = [f"{w} is {'' if w in called else 'not '}a feminine word." for w in words]
    return "\n".join([*lines, f"Answer: {answer}"])

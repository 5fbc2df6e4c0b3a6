"""How long a model takes for a question of each kind, measured from the times its answers were stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from audit.store import Store
from backends.base import ClassifyRequest, GenerateRequest, Request, ScoreRequest

KINDS: Mapping[type[Request], str] = {ScoreRequest: "score", GenerateRequest: "generate", ClassifyRequest: "classify"}
MOST_ANSWERS = 4000  # only the latest answers are used
FEWEST_ANSWERS = 10
_TOGETHER = 0.01  # seconds: answers of one batch are stored one after another, each with a time of its own


class Pace(NamedTuple):
    """Seconds for one question, and the number of answers that they are the mean of."""

    seconds: float
    answers: int


def measure_pace(store: Store, fingerprint: str) -> dict[str, Pace]:
    """The pace of each kind of request that a model has answered often enough.

    In each run the time counts from its first answers, before which a local model is loaded.
    """
    seconds, answers = Counter[str](), Counter[str]()
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for one in store.answers.latest(fingerprint, MOST_ANSWERS):
        if one.at - first.setdefault(one.run, one.at) > _TOGETHER:
            kind = KINDS[type(one.request)]
            seconds[kind] += one.at - last[one.run]  # type: ignore[assignment]
            answers[kind] += 1
        last[one.run] = one.at
    return {kind: Pace(seconds[kind] / n, n) for kind, n in answers.items() if n >= FEWEST_ANSWERS}


def estimate_seconds(questions: Mapping[str, int], paces: Mapping[str, Pace]) -> float | None:
    """Seconds that so many questions of each kind take; None if a kind has no pace."""
    if questions.keys() - paces.keys():
        return None
    return sum(count * paces[kind].seconds for kind, count in questions.items())

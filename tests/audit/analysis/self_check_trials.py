"""Mixed servers by simulation: ``python -m tests.audit.analysis.self_check_trials [--questions 1440] [--trials 100]``.

Each trial walks through a run as `RepeatedQuestions` plans it. Each answer, first or second, is foreign with one chance
(mixed); or only where other questions are under way (busy); or all those of one block of the first questions are, at
the start of the run or anywhere, and the second ones that fall among them. Two answers disagree where one is foreign.

Where each of several continuations takes a request of its own, each of these answers is foreign with that chance, and
one continuation of a question is asked again. The other model's scores may be so low that its first ones never are.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from audit.analysis.self_check import self_check
from audit.collect.plan import PlannedRequest, Question
from audit.collect.repeated_questions import RepeatedQuestions
from audit.store import AnswerPair, keyed_request
from backends.base import ContinuationScore, Request, ScoreRequest, ScoreResponse, TokenLogprob
from suites.base import Item

SHARES = (0.02, 0.05, 0.1, 0.5)
World = Literal["mixed", "busy", "block"]
WORLDS: tuple[World, ...] = get_args(World)
OWN, ALIKE, LOW = -1.0, -2.0, -20.0


@dataclass(frozen=True)
class Trials:
    """By trial: whether a disagreement was seen, and the largest foreign share that the report states."""

    seen: np.ndarray[Any, np.dtype[np.bool_]]
    bounds: np.ndarray[Any, np.dtype[np.float64]]
    asked_again: np.ndarray[Any, np.dtype[np.int64]]


def scored(logprobs: Sequence[float]) -> ScoreResponse:
    return ScoreResponse(tuple(ContinuationScore.exact([TokenLogprob("a", 0, 1, value)]) for value in logprobs))


class Repeating:
    """Wants every question asked twice; ``separate``: each continuation takes a request of its own."""

    def __init__(self, *, separate: bool = True) -> None:
        self._separate = separate

    def repeats_itself(self, request: Request) -> bool:
        return True

    def scores_separately(self, request: Request) -> bool:
        return self._separate

    def score_noise(self) -> tuple[float, float]:
        return 0.0, 0.02


def foreign_trials(
    share: float,
    world: World,
    *,
    n_questions: int,
    trials: int,
    seed: int,
    continuations: int = 1,
    other: float = ALIKE,
) -> Trials:
    """Runs of ``n_questions`` at a server of which ``share`` of the answers are another model's.

    Each of the ``continuations`` is answered by itself; ``other`` is what the other model says.
    """
    words = tuple("abcdefgh"[:continuations])
    items = [Item(f"q{at}", ScoreRequest(f"question {at}", words), {}) for at in range(n_questions)]
    questions = [Question(item, keyed_request(item.request, "fp")) for item in items]
    planned = [PlannedRequest(question, question.keyed, {}) for question in questions]
    random = np.random.default_rng(seed)
    found = []
    for trial in range(trials):
        second = RepeatedQuestions(Repeating(), (), seed + trial, n_questions, n_questions)
        pairs: list[AnswerPair] = []
        start = random.choice([0, random.integers(0, n_questions - round(share * n_questions) + 1)])

        def answer(request: PlannedRequest, at: int, start: int = start, alone: bool = False) -> ScoreResponse:
            is_in_block = 0 <= at - start < round(share * n_questions)
            chance = is_in_block if world == "block" else share * (not (alone and world == "busy"))
            return scored([other if random.random() < chance else OWN for _ in request.part.keys])

        def ask_again(
            requests: list[PlannedRequest], at: int, pairs: list[AnswerPair] = pairs, alone: bool = False
        ) -> None:
            answers = [(r, answer(r, at, alone=alone)) for r in requests]
            pairs += [AnswerPair("fp", r.part.keys, r.first, again) for r, again in answers if r.first is not None]

        for at, request in enumerate(planned):
            ask_again(second.sent(request), at)
            if second.chooses(request):
                second.add(request, answer(request, at))
        ask_again(second.rest(), n_questions)
        ask_again(second.alone(), n_questions, alone=True)
        several = continuations > 1
        found.append(self_check("m", pairs, (0.0, 0.02), unanswered=0, confidence=0.95, one_of_several=several))
    return Trials(
        np.array([check.disagreed > 0 for check in found]),
        np.array([check.foreign_at_most for check in found]),
        np.array([check.asked_again for check in found]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=1440)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--continuations", type=int, default=1, help="of a question, each a request of its own")
    parser.add_argument("--low", action="store_true", help="the other model finds them all far less likely")
    options = parser.parse_args()
    print("               foreign share   asked again   seen in   chance of it   bound holds in   median bound")
    for share, world in [*itertools.product(SHARES, WORLDS), (0.98, "busy"), (0.98, "block")]:
        trials = foreign_trials(
            share,
            world,
            n_questions=options.questions,
            trials=options.trials,
            seed=1,
            continuations=options.continuations,
            other=LOW if options.low else ALIKE,
        )
        (n,) = set(trials.asked_again)
        rates = {"mixed": 2 * share * (1 - share), "busy": 1.5 * share * (1 - share) + share / 4}
        if options.low:
            rates = {"mixed": share, "busy": 0.75 * share}
        chance = f"{1 - (1 - rates[world]) ** n:.1%}" if world in rates else ""
        print(
            f"{world:12s}   {share:13.0%}   {n:11d}   {trials.seen.sum():4d}/{options.trials}   "
            f"{chance:>12}   {(trials.bounds >= share).sum():10d}/{options.trials}   "
            f"{np.median(trials.bounds):12.1%}"
        )


if __name__ == "__main__":
    main()

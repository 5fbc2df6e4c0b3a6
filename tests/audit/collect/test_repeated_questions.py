"""Which questions are asked again: how many, and that they are spread over the run."""

from __future__ import annotations

from collections import Counter

import pytest

from audit.collect import Ask
from audit.collect.job_run import RepeatedQuestions
from audit.store import keyed
from backends.base import ContinuationScore, ScoreRequest, ScoreResponse, TokenLogprob
from backends.checking import drawn_early, drawn_late, most_checks, number_to_repeat


@pytest.mark.parametrize("scored", [0, 1, 10, 40, 100, 399, 401, 640, 999, 1000, 1001, 2600, 9001, 100_000])
def test_checks_stay_within_what_was_promised(scored):
    checks = drawn_early(scored) + drawn_late(scored) + number_to_repeat(scored)
    assert checks <= most_checks(scored) <= max(20, scored / 20 if scored <= 1000 else max(50, scored / 50))
    assert number_to_repeat(scored) >= min(8, scored / 4)


class Repeating:
    def __init__(self, separate: bool) -> None:
        self._separate = separate

    def repeats_itself(self, request) -> bool:
        return True

    def scores_separately(self, request) -> bool:
        return self._separate


def planned(at: int) -> Ask:
    request = ScoreRequest(f"question {at}", ("a", "b", "c"))
    return Ask(keyed(request, "fp"), request)


def repeated(n: int, values, *, separate: bool, seed: int = 1) -> list[Ask]:
    """What is asked again of ``n`` questions with three continuations."""
    asks = list(map(planned, range(n)))
    second = RepeatedQuestions(Repeating(separate), seed, asks)
    answer = ScoreResponse(tuple(ContinuationScore.exact([TokenLogprob("w", 0, 1, value)]) for value in values))
    return [again for ask in asks if (again := second.again(ask, answer)) is not None]


def test_a_random_sample_is_repeated_whole():
    again = repeated(40, [-1.0, -2.0, -3.0], separate=False)
    assert len(again) == number_to_repeat(40)
    assert all(len(one.request.continuations) == 3 for one in again)
    assert again == repeated(40, [-1.0, -2.0, -3.0], separate=False)
    assert again != repeated(40, [-1.0, -2.0, -3.0], separate=False, seed=2)


def test_of_separate_continuations_one_that_matters_is_repeated():
    again = repeated(20_000, [-1.0, -8.9, -9.1], separate=True)
    assert len(again) == number_to_repeat(20_000)
    words = Counter(one.request.continuations for one in again)
    assert set(words) == {("a",), ("b",)}
    value = {("a",): -1.0, ("b",): -8.9}
    assert all(one.first.scores[0].logprob == value[one.request.continuations] for one in again)

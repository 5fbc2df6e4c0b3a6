"""Which questions are asked again: how many, and that they are spread over the run."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from audit.collect.plan import PlannedRequest, Question
from audit.collect.repeated_questions import EvenSample, RepeatedQuestions, number_to_repeat
from audit.store import keyed_request
from backends.base import ScoreRequest
from suites.base import Item
from tests.audit.analysis.self_check_trials import Repeating, scored


@pytest.mark.parametrize(("scored", "n"), [(0, 0), (1, 1), (24, 6), (240, 60), (1440, 60), (3000, 60), (9001, 181)])
def test_the_number_of_repeats_is_fixed(scored, n):
    sample = EvenSample(number_to_repeat(scored), scored, seed=3)
    assert number_to_repeat(scored) == n
    assert sum(sample.takes_next() for _ in range(scored)) == n


def test_each_segment_gives_one_and_each_place_is_as_likely():
    counts = Counter[int]()
    for seed in range(2000):
        sample = EvenSample(3, 20, seed)
        taken = [at for at in range(20) if sample.takes_next()]
        assert [at * 3 // 20 for at in taken] == [0, 1, 2]
        counts.update(taken)
    assert len(counts) == 20
    assert all(2000 * 3 / 20 * 0.75 < count < 2000 * 3 / 20 * 1.25 for count in counts.values())


def test_half_of_the_questions_gives_half_of_the_number():
    sample = EvenSample(60, 1440, seed=1)
    assert sum(sample.takes_next() for _ in range(720)) == 30


def planned(at: int) -> PlannedRequest:
    item = Item(f"q{at}", ScoreRequest(f"question {at}", ("a", "b", "c")), {})
    return PlannedRequest(Question(item, keyed_request(item.request, "fp")), keyed_request(item.request, "fp"), {})


def repeated(n: int, values, *, separate: bool = True) -> list[PlannedRequest]:
    """What is asked again of ``n`` questions with three continuations, if each of them is wanted twice."""
    second = RepeatedQuestions(Repeating(separate=separate), (), 1, n, n)
    for at in range(n):
        second.add(planned(at), scored(values))
    return [*second.rest(), *second.alone()]


def test_a_question_answered_at_once_is_repeated_whole():
    assert {again.part.keys for again in repeated(5, [-1.0, -2.0, -3.0], separate=False)} == {
        planned(at).part.keys for at in range(5)
    }


def test_of_separate_continuations_each_is_as_likely():
    again = repeated(600, [-1.0, -2.0, -3.0])
    words = Counter(request.part.request.continuations for request in again)
    assert set(words) == {("a",), ("b",), ("c",)}
    assert all(150 < count < 250 for count in words.values())
    value = {("a",): -1.0, ("b",): -2.0, ("c",): -3.0}
    assert all(r.first.scores[0].logprob == value[r.part.request.continuations] for r in again)
    assert [r.part.keys for r in repeated(600, [-1.0, -2.0, -3.0])] == [r.part.keys for r in again]


def test_a_continuation_far_below_the_likeliest_is_not_chosen():
    again = repeated(60, [-1.0, -8.9, -9.1])  # the last is noise: its change would prove nothing
    assert {request.part.request.continuations for request in again} == {("a",), ("b",)}


def test_a_question_with_one_part_repeated_is_complete():
    second = RepeatedQuestions(Repeating(), (), 1, 1, 4)
    open_pair = second.add(planned(0), scored([-1.0, -1.0, -1.0]))
    pair = dataclasses.replace(open_pair, second=open_pair.first)
    later, new = (RepeatedQuestions(Repeating(), pairs, 2, 4, 4) for pairs in ([pair], []))
    for _ in range(4):
        later.sent(planned(0))
        new.sent(planned(0))
    assert not later.chooses(planned(0))
    assert new.chooses(planned(0))


def test_an_open_repeat_of_one_part_is_resumed_as_it_was():
    second = RepeatedQuestions(Repeating(), (), 1, 1, 4)
    pair = second.add(planned(0), scored([-1.0, -1.0, -1.0]))
    later = RepeatedQuestions(Repeating(), [pair], 2, 1, 4)
    later.resume([planned(0).question])
    (again,) = [*later.rest(), *later.alone()]
    assert (again.part.keys, again.first) == (pair.keys, pair.first)


def test_an_open_repeat_of_a_whole_question_stays_whole():
    whole = RepeatedQuestions(Repeating(separate=False), (), 1, 1, 4)  # as an earlier version left it
    pair = whole.add(planned(0), scored([-1.0, -1.0, -1.0]))
    later = RepeatedQuestions(Repeating(), [pair], 2, 1, 4)
    later.resume([planned(0).question])
    (again,) = [*later.rest(), *later.alone()]
    assert again.part.keys == pair.keys == planned(0).part.keys

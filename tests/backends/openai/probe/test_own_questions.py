"""Draws after a run's own questions: which of them are taken, and what contradicts their scores."""

from __future__ import annotations

from collections import Counter

import pytest

from backends.base import ContinuationScore, ScoreRequest, ScoreResponse, TokenLogprob
from backends.openai.probe.own_questions import OwnQuestions
from tests.backends.openai.lies.server import Style
from tests.backends.openai.lies.trial import trials


def _scored(at: int) -> tuple[ScoreRequest, ScoreResponse]:
    score = ContinuationScore.exact([TokenLogprob("a", 0, 1, -1.0)])
    return ScoreRequest(f"question {at}", ("a",)), ScoreResponse((score,))


@pytest.mark.parametrize(("seen", "taken"), [(0, 0), (9, 0), (24, 6), (95, 24), (500, 30)])
def test_a_quarter_is_taken_and_thirty_at_most(seen: int, taken: int) -> None:
    own = OwnQuestions()
    for at in range(seen):
        own.add(*_scored(at))
    assert len(own.take().questions) == taken
    assert own.take().questions == []


def test_each_question_is_as_likely_to_be_taken() -> None:
    counts = Counter[str]()
    for _ in range(2000):
        own = OwnQuestions()
        for at in range(100):
            own.add(*_scored(at))
        counts.update(str(request.prompt) for request, _ in own.take().questions)
    assert len(counts) == 100
    assert all(400 < count < 600 for count in counts.values())  # 500 ± 19.4, five times that


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_false_for_the_audited_words_alone_are_seen(seed: int) -> None:
    (outcome,) = trials("audited word 0.6 nats down in rows alone", "echo", range(seed, seed + 1))
    assert outcome.ended == "stopped: another model noticed"


@pytest.mark.parametrize("style", ["whole", "chat"])
def test_a_lie_about_the_audited_words_alone_is_seen(style: Style) -> None:
    (outcome,) = trials("the likeliest audited word 0.6 nats down", style, range(4, 5))
    assert outcome.ended == "stopped: another model noticed"

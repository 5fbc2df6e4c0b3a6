"""What two answers to one question show, and that the noise found holds a mean's error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from audit.run.checks import FOREIGN, mean_move, move, self_check, within_noise
from audit.store import AnswerPair
from backends.base import ChecksMade, ContinuationScore, ScoreRequest, ScoreResponse, TokenLogprob
from backends.errors import BackendError

ASKED = ScoreRequest("She is a", (" nurse",))


def scored(*values: float, high: float | None = None) -> ScoreResponse:
    exact = [ContinuationScore.exact([TokenLogprob("w", 0, 1, value)]) for value in values]
    bounded = [] if high is None else [ContinuationScore(None, None, high, "bounded")]
    return ScoreResponse((*exact, *bounded))


def test_a_move_is_the_largest_of_those_that_matter():
    assert move(scored(-1.0, -2.0), scored(-1.0, -2.5)) == 0.5
    assert move(scored(-1.0, -20.0), scored(-1.0, -25.0)) == 0.0  # far below the likeliest, where noise is large
    assert move(scored(-1.0, high=-4.0), scored(-1.0, -3.0)) == 1.0  # a value above the other's bound
    assert move(scored(-1.0, high=-4.0), scored(-1.0, -6.0)) == 0.0
    assert move(scored(-1.0), BackendError("server", "down")) == math.inf


def test_noise_is_not_another_model_and_another_model_is_not_noise():
    pairs = [AnswerPair("f", str(at), ASKED, scored(-1.0), scored(-1.0 - 0.15 * (at < 2))) for at in range(10)]
    check = self_check("m", pairs, 0, ChecksMade(moves=(0.0, 0.02)))
    assert (check.disagreed, check.contradicted, check.largest_move) == (0, False, pytest.approx(0.15))
    assert 0.03 < check.noise < 0.1
    foreign = AnswerPair("f", "x", ASKED, scored(-1.0), scored(-1.0 - FOREIGN - 0.1))
    check = self_check("m", [*pairs, foreign], 0, ChecksMade())
    assert (check.disagreed, check.contradicted) == (1, True)


@pytest.mark.parametrize("n", [2, 8, 30])
@pytest.mark.parametrize("law", ["normal", "cache"])
def test_scores_widened_by_the_mean_move_hold_the_mean(n, law):
    rng = np.random.default_rng(n)
    held = 0
    for _ in range(400):

        def errors(size):
            if law == "normal":
                return rng.normal(0, 0.1, size)
            return 0.15 * (rng.random(size) < 0.3)  # a cache that moves 3 of 10 answers, all one way

        noise = mean_move(np.abs(errors(n) - errors(n)).tolist())
        usual = 0.0 if law == "normal" else 0.045
        held += abs(errors(40).mean() - usual) <= noise
    assert held >= 0.9 * 400 or n == 2


def test_a_widened_score_is_an_interval():
    (score,) = within_noise(scored(-0.01), 0.1).scores
    assert (score.low, score.high, score.logprob) == (pytest.approx(-0.11), 0.0, -0.01)
    assert within_noise(scored(-0.01), 0.005) == scored(-0.01)

"""What second answers say: the interval of their disagreement, and the share of foreign answers that it leaves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from audit.analysis.self_check import (
    ASKED_AT_THE_END,
    disagreeing,
    foreign_share,
    hidden_in_a_question,
    move,
    proportion_interval,
    self_check,
    untrue_share,
    with_foreign_share,
    within_noise,
)
from audit.collect.repeated_questions import ALONE
from audit.store import AnswerPair
from backends.base import ContinuationScore, DrawsCompared, ScoreResponse, TokenLogprob
from backends.errors import BackendError
from suites.base import IdentifiedInterval, MeasureSpec, Row
from tests.audit.analysis.self_check_trials import ALIKE, LOW, foreign_trials


def scored(*logprobs: float) -> ScoreResponse:
    return ScoreResponse(tuple(ContinuationScore.exact([TokenLogprob("a", 0, 1, value)]) for value in logprobs))


def bound(high: float) -> ScoreResponse:
    return ScoreResponse((ContinuationScore(None, None, high, "bounded"),))


def pair(first: ScoreResponse, second: ScoreResponse | None) -> AnswerPair:
    return AnswerPair("fp", ("a1",), first, second)


@pytest.mark.parametrize(("count", "n"), [(0, 60), (1, 60), (7, 60), (60, 60), (3, 29)])
def test_the_interval_is_clopper_and_pearsons(count, n):
    assert proportion_interval(count, n, 0.95) == pytest.approx(proportion_confint(count, n, 0.05, "beta"))


def test_nothing_asked_again_leaves_everything_open():
    check = self_check("m", [], (0.0, 0.02), unanswered=3, confidence=0.95)
    assert (check.rate_low, check.rate_high, check.foreign_at_most, check.unanswered) == (0.0, 1.0, 1.0, 3)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.3, 0.5])
def test_the_rate_bounds_the_share_mixed_or_in_a_block(share):
    block = 0.25 * share - 0.75 * (1 - share) * math.log(1 - share)  # the first part of a run
    assert foreign_share(block) == pytest.approx(share if block < ALONE else 1.0)
    assert min(foreign_share(share), foreign_share(2 * share * (1 - share))) >= share
    assert ASKED_AT_THE_END == ALONE


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.3])
def test_the_rate_of_single_continuations_bounds_the_share(share):
    # Of a busy server whose first foreign answers are too low to be chosen, second ones disagree unless asked alone.
    busy, block = 0.75 * share, 0.25 * share - 0.75 * (1 - share) * math.log(1 - share)
    for rate in (busy, share, 2 * share * (1 - share), block):
        assert foreign_share(rate, one_of_several=True) >= share - 1e-12
    assert foreign_share(busy, one_of_several=True) == pytest.approx(share)
    assert foreign_share(0.25, one_of_several=True) == 1.0


@pytest.mark.parametrize("other", [pytest.param(ALIKE, marks=pytest.mark.battery), LOW])
@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.5])
def test_a_mixed_server_of_three_separate_is_bounded_and_seen(share, other):
    trials = foreign_trials(share, "mixed", n_questions=1440, trials=100, seed=5, continuations=3, other=other)
    assert np.mean(trials.bounds >= share) >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 100)
    rate = share if other == LOW and share < 0.5 else 2 * share * (1 - share)
    assert np.mean(trials.seen) == pytest.approx(1 - (1 - rate) ** 60, abs=0.1)


def test_a_busy_server_of_three_separate_is_bounded():
    trials = foreign_trials(0.05, "busy", n_questions=1440, trials=100, seed=5, continuations=3, other=LOW)
    assert np.mean(trials.bounds >= 0.05) >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 100)


def test_sixty_agreeing_pairs_leave_six_per_cent():
    pairs = [pair(scored(-1.0), scored(-1.0))] * 60
    check = self_check("m", pairs, (0.0, 0.02), unanswered=0, confidence=0.95)
    # 1 - 0.025^(1/60) = 0.0596 of the pairs; a block of 0.0610 at the start of a run leaves as many.
    assert (check.rate_high, check.foreign_at_most) == pytest.approx((0.0596, 0.0610), abs=1e-4)


@pytest.mark.parametrize(
    ("first", "second", "nats"),
    [
        (scored(-1.0, -3.0), scored(-1.2, -3.1), 0.2),
        (scored(-1.0, -30.0), scored(-1.0, -31.0), 0.0),  # far below the likeliest: noise
        (bound(-5.0), bound(-5.3), 0.3),
        (scored(-4.0), bound(-5.0), 1.0),
        (scored(-6.0), bound(-5.0), 0.0),
        (scored(-1.0), scored(-1.0, -2.0), math.inf),
        (scored(-1.0), BackendError("server", "down"), math.inf),
    ],
)
def test_answers_are_as_far_apart_as_is_proven(first, second, nats):
    assert move(first, second) == pytest.approx(nats)


def test_pairs_beyond_the_tolerance_disagree_others_are_noise():
    pairs = [pair(scored(-1.0), scored(-1.0 - nats)) for nats in (0.0, 0.05, 0.5)] + [pair(scored(-1.0), None)]
    check = self_check("m", pairs, (0.01, 0.1), unanswered=0, confidence=0.95)
    assert (check.asked_again, check.disagreed) == (3, 1)
    assert (check.noise, check.largest_move) == (pytest.approx(0.05), pytest.approx(0.5))
    assert disagreeing(pairs, 0.1) == [pairs[2]]


def test_scores_within_the_noise_become_intervals():
    answer = within_noise(scored(-1.0, -0.05), 0.1)
    assert [(s.exactness, s.low, s.logprob, s.high) for s in answer.scores] == [
        ("bounded", -1.1, -1.0, -0.9),
        ("bounded", pytest.approx(-0.15), -0.05, 0.0),
    ]
    assert within_noise(scored(-1.0), 0.01) == scored(-1.0)


def test_hidden_words_raise_the_bounds_of_unlisted_ones_alone():
    bounded = ContinuationScore(None, None, math.log(0.01), "bounded")
    exact, raised = within_noise(ScoreResponse((*scored(-1.0).scores, bounded)), 0.0, 0.2).scores
    assert exact == scored(-1.0).scores[0]
    assert (raised.logprob, raised.high) == (None, pytest.approx(math.log(0.21)))
    (most,) = within_noise(ScoreResponse((bounded,)), 0.0, 1.0).scores
    assert most.high == 0.0


def _doubted(share):
    drawn = DrawsCompared(200, 0.1, None, left_out=share, doubted=True)
    return self_check("m", [], (0.01, 0.1), unanswered=0, confidence=0.95, drawn=drawn)


@pytest.mark.parametrize("concentration", [0.05, 0.3, 1.0])  # of what is hidden: in few questions, or in all
def test_a_share_with_hidden_words_is_within_its_bounds(concentration):
    random = np.random.default_rng(3)
    rows, true, excess = [], [], []
    for at in range(400):
        man, hidden = (
            random.uniform(0.05, 0.5),
            random.uniform(0, 0.1 / concentration) * (random.random() < concentration),
        )
        hidden = min(hidden, 1 - man)
        excess.append(hidden)
        true.append((0.01 + hidden) / (0.01 + hidden + man))
        rows.append((f"q{at}", man))
    check = _doubted(float(np.mean(excess)))
    raised = 0.01 + hidden_in_a_question(check)
    read = [Row(item, {}, {"p": IdentifiedInterval(None, 0.0, raised / (raised + man))}) for item, man in rows]
    spec = MeasureSpec("p", "p", kind="probability")
    values = [row.values["p"] for row in with_foreign_share(read, [spec], untrue_share(check))]
    assert np.mean([v.low for v in values]) <= np.mean(true) <= np.mean([v.high for v in values])


def test_without_a_doubt_nothing_is_hidden():
    check = _doubted(0.04).model_copy(update={"left_out_doubted": False})
    assert (hidden_in_a_question(check), untrue_share(check)) == (0.0, 0.0)
    doubted = _doubted(0.04)
    assert (hidden_in_a_question(doubted), untrue_share(doubted)) == pytest.approx((0.2, 0.2))


def test_an_earlier_doubt_remains():
    check = self_check("m", [], (0.01, 0.1), unanswered=0, confidence=0.95, doubted=0.03)
    assert (check.left_out_doubted, check.left_out_at_most) == (True, 0.03)


def test_a_foreign_share_opens_each_number_towards_its_range():
    spec = MeasureSpec("p", "p", kind="probability")
    number = IdentifiedInterval.exact(0.4)
    rows = [Row("a", {}, {"p": number}), Row("b", {}, {"p": number}, None, ("x", "y"))]
    one, two = (row.values["p"] for row in with_foreign_share(rows, [spec], 0.1))
    assert (one.low, one.value, one.high) == pytest.approx((0.36, 0.4, 0.46))
    assert (two.low, two.value, two.high) == pytest.approx((0.4 - 0.19 * 0.4, 0.4, 0.4 + 0.19 * 0.6))
    assert with_foreign_share(rows, [], 0.1)[0].values["p"] == number  # a range of one value
    three = with_foreign_share(rows, [spec], 0.1, {"a": 3})[0].values["p"]  # made of three answers
    assert (three.low, three.high) == pytest.approx((0.4 * 0.9**3, 1 - 0.6 * 0.9**3))


@pytest.mark.parametrize("world", ["busy", "block"])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 1.0])
def test_a_server_foreign_for_a_while_is_bounded(share, world):
    trials = foreign_trials(share, world, n_questions=1440, trials=100, seed=5)
    assert np.mean(trials.bounds >= share) >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 100)


def test_a_model_of_all_busy_answers_is_not_bounded_below_them():
    # 400 pairs: a quarter waits until nothing is under way, and disagrees.
    trials = foreign_trials(0.98, "busy", n_questions=20_000, trials=3, seed=5)
    assert (trials.bounds == 1.0).all()


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.5])
def test_a_mixed_server_is_bounded_and_seen(share):
    trials = foreign_trials(share, "mixed", n_questions=1440, trials=100, seed=5)
    assert np.mean(trials.bounds >= share) >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 100)
    expected = 1 - (1 - 2 * share * (1 - share)) ** 60
    assert np.mean(trials.seen) == pytest.approx(expected, abs=0.1)


def test_one_model_is_never_called_mixed():
    assert not foreign_trials(0.0, "mixed", n_questions=1440, trials=50, seed=5).seen.any()

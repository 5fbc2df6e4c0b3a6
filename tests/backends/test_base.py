"""What an answer may hold: a log-probability above 0 is no probability, and is never made one."""

from __future__ import annotations

import pytest

from backends.base import ContinuationScore, ScoreResponse, TokenLogprob


def score(*logprobs: float) -> ContinuationScore:
    return ContinuationScore.exact([TokenLogprob("x", 0, 1, p, 0, True) for p in logprobs])


def test_a_score_above_zero_is_refused_not_cut() -> None:
    with pytest.raises(ValueError, match="at most 0"):
        ScoreResponse((score(-0.5, 0.7),))


def test_rounding_above_zero_is_zero() -> None:
    assert score(-1e-9, 2e-9).logprob == 0.0
    assert score(-0.5, -0.25).logprob == -0.75

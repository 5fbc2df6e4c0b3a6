"""Scores from the values of planned paths."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import BackendError
from backends.base import ContinuationScore, ScoreResponse, TokenLogprob
from backends.local.plans import Ending, PlannedScore, PlannedScores
from backends.local.scores import _score, answer_of
from backends.local.trie import Branch, Branches

TOKENS = ((" she", -1, 3, 7), (" said", 3, 8, 9))


def ending(*scores: PlannedScore, paths: int = 1) -> Ending:
    return Ending([], PlannedScores(scores), Branches([Branch((1, 2), 1)] * paths), 2, 9)


def test_scores_are_those_that_their_class_makes() -> None:
    planned = PlannedScore("merged", TOKENS, 0, range(0))
    found = answer_of(ending(planned), 5, [np.array([-1.5, 1e-7])], "tree")
    tokens = [TokenLogprob(" she", -1, 3, -1.5, 7), TokenLogprob(" said", 3, 8, 0.0, 9)]
    expected = ScoreResponse((ContinuationScore.exact(tokens, boundary="merged", route="tree"),), 5)
    assert found == expected
    assert repr(found) == repr(expected)
    assert hash(found) == hash(expected)
    assert pickle.loads(pickle.dumps(found)) == expected
    with pytest.raises(FrozenInstanceError):
        found.scores[0].tokens[0].logprob = -2.0  # type: ignore[union-attr,misc]


@given(st.lists(st.lists(st.floats(-1e6, 1e-3) | st.sampled_from([-0.0, 0.0]), max_size=3), min_size=1, max_size=6))
def test_scores_made_at_once_are_those_made_one_by_one(values: list[list[float]]) -> None:
    """To the last bit, and the sign of a zero; a continuation without a scored token has none."""
    planned, arrays = [], []
    for of_path in values:
        tokens = tuple((f"t{i}", i, i + 1, i) for i in range(len(of_path)))
        planned.append(PlannedScore("clean", tokens, len(arrays) if tokens else None, range(0)))
        arrays += [np.array(of_path)] * bool(tokens)
    found = answer_of(ending(*planned, paths=len(arrays)), 5, arrays, "tree")
    assert isinstance(found, ScoreResponse)
    assert repr(found.scores) == repr(tuple(_score(score, arrays, "tree") for score in planned))


def test_continuations_divide_by_the_prompt_part_they_share() -> None:
    planned = [PlannedScore("straddled", TOKENS[:1], path, range(1, 3)) for path in (0, 3)]
    values = [np.array([-3.0]), np.array([-1.0]), np.array([-0.5, -1.5]), np.array([-4.0])]
    found = answer_of(ending(*planned, paths=4), 5, values, "tree")
    assert isinstance(found, ScoreResponse)
    part = math.log(math.exp(-1) + math.exp(-2))
    assert [score.logprob for score in found.scores] == pytest.approx([-3 - part, -4 - part])


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf, 0.002])
def test_what_is_no_log_probability_is_an_error(value: float) -> None:
    found = answer_of(ending(PlannedScore("clean", TOKENS, 0, range(0))), 5, [np.array([-1.0, value])], "tree")
    assert isinstance(found, BackendError)
    assert "not a distribution" in found.message


def test_a_failed_path_is_its_requests_error() -> None:
    error = BackendError("out_of_memory", "no room")
    planned = PlannedScore("straddled", TOKENS[:1], 0, range(1, 2))
    assert answer_of(ending(planned, paths=2), 5, [np.array([-1.0]), error], "tree") is error

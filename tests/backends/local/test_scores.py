"""Scores from the values of a request's asks."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import BackendError
from backends.base import Boundary, ContinuationScore, ScoreResponse, TokenLogprob
from backends.local.plans import Ending, PlannedScores
from backends.local.scores import answer_of
from backends.local.trie import Branches


def ending(
    sizes: list[int], boundary: Boundary = "clean", straddled: list[tuple[int, list[np.ndarray]]] | None = None
) -> Ending:
    """So many tokens of each continuation, one ask for each."""
    count = sum(sizes)
    scores = PlannedScores(
        [f"t{i}" for i in range(count)],
        list(range(count)),
        [i + 1 for i in range(count)],
        list(range(count)),
        np.arange(count),
        np.cumsum(sizes).tolist(),
        [boundary] * len(sizes),
        straddled or [],
    )
    return Ending([], scores, Branches([]), 2, 9)


@given(st.lists(st.lists(st.floats(-1e6, 1e-3) | st.sampled_from([-0.0, 0.0]), max_size=3), min_size=1, max_size=6))
def test_scores_are_those_that_their_class_makes(values: list[list[float]]) -> None:
    """A sum that rounding has put above 0 is 0; a continuation without a scored token has none."""
    flat = np.array([value for one in values for value in one])
    found = answer_of(ending([len(one) for one in values], "merged"), 5, flat, "tree")
    expected, at = [], 0
    for one in values:
        tokens = [TokenLogprob(f"t{at + i}", at + i, at + i + 1, min(v, 0.0), at + i) for i, v in enumerate(one)]
        expected.append(ContinuationScore.exact(tokens, boundary="merged", route="tree"))
        at += len(one)
    assert found == ScoreResponse(tuple(expected), 5)
    assert hash(found) == hash(ScoreResponse(tuple(expected), 5))
    assert pickle.loads(pickle.dumps(found)) == found


def test_continuations_divide_by_the_prompt_part_they_share() -> None:
    part = [np.array([2]), np.array([3, 4])]
    values = np.array([-3.0, -4.0, -1.0, -0.5, -1.5])
    found = answer_of(ending([1, 1], "straddled", [(0, part), (1, part)]), 5, values, "tree")
    assert isinstance(found, ScoreResponse)
    divided = math.log(math.exp(-1) + math.exp(-2))
    assert [score.logprob for score in found.scores] == pytest.approx([-3 - divided, -4 - divided])


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf, 0.002])
def test_what_is_no_log_probability_is_an_error(value: float) -> None:
    found = answer_of(ending([2]), 5, np.array([-1.0, value]), "tree")
    assert isinstance(found, BackendError)
    assert "not a distribution" in found.message

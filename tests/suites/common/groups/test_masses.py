"""Groups' masses: an expression counts where no longer one goes on from it."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import ContinuationScore, TokenLogprob
from suites.base import IdentifiedInterval
from suites.common.probabilities import ImpossibleMassError, group_probabilities, weighted_share

NOUNS = {"hombre": ("profesor",), "mujer": ("profesora", "maestra")}


def score(*tokens):
    """A score of (text, probability) tokens."""
    start, found = 0, []
    for text, p in tokens:
        found.append(TokenLogprob(text, start, start + len(text), math.log(p)))
        start += len(text)
    return ContinuationScore.exact(found)


def test_a_masculine_is_counted_without_its_feminine():
    scores = [score(("profesor", 0.4)), score(("profesor", 0.4), ("a", 0.25)), score(("maestra", 0.1))]
    answer = group_probabilities(scores, NOUNS, None)
    # by hand: "profesor" alone 0.4 − 0.1, "profesora" 0.1, "maestra" 0.1
    assert answer.normalised["hombre"].value == pytest.approx(0.3 / 0.5)
    assert answer.normalised["mujer"].value == pytest.approx(0.2 / 0.5)
    assert answer.probability_mass.value == pytest.approx(0.5)


def test_other_tokens_make_two_words_of_one_start():
    scores = [score(("profesor", 0.3)), score(("prof", 0.5), ("esora", 0.2)), score(("maestra", 0.1))]
    assert group_probabilities(scores, NOUNS, None).normalised["hombre"].value == pytest.approx(0.3 / 0.5)


def test_a_chain_of_longer_words_counts_each_once():
    words = {"a": ("x",), "b": ("xy",), "c": ("xyz",)}
    x, y, z = ("x", 0.8), ("y", 0.5), ("z", 0.25)
    answer = group_probabilities([score(x), score(x, y), score(x, y, z)], words, None)
    assert [m.value for m in answer.normalised.values()] == pytest.approx([0.4 / 0.8, 0.3 / 0.8, 0.1 / 0.8])


def test_without_tokens_a_shorter_word_is_bounded():
    def told(p):
        return ContinuationScore(math.log(p), math.log(p), math.log(p), "exact")

    answer = group_probabilities([told(0.4), told(0.1), told(0.1)], NOUNS, None)
    share = answer.normalised["hombre"]
    assert share.value is None
    assert (share.low, share.high) == pytest.approx((0.3 / 0.5, 0.4 / 0.6))


def test_drawn_answers_count_by_their_share():
    """As in the suites that ship: how far a share may be off is sampling error, no bound."""

    def drawn(p):
        return ContinuationScore(math.log(p), math.log(p / 2), math.log(min(1, 2 * p)), "sampled", samples=20)

    none = ContinuationScore(None, None, math.log(0.1), "sampled", samples=20)
    answer = group_probabilities([drawn(0.2), drawn(0.3), none], {"a": ("red",), "b": ("blue",), "c": ("green",)}, None)
    assert [m.value for m in answer.normalised.values()] == pytest.approx([0.4, 0.6, 0.0])
    assert all(m.low == m.value == m.high for m in answer.normalised.values())


def test_a_longer_word_likelier_than_its_start_is_refused():
    with pytest.raises(ImpossibleMassError, match="likelier"):
        group_probabilities([score(("x", 0.1)), score(("x", 0.5), ("y", 0.9))], {"a": ("x",), "b": ("xy",)}, None)


interval = st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)).map(sorted)


@given(st.lists(interval, min_size=4, max_size=4), st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_bounds_of_a_contrast_are_those_of_the_corners(ends, weights):
    masses = {str(i): IdentifiedInterval(None, *of) for i, of in enumerate(ends)}
    corners = [
        sum(w * m for w, m in zip(weights, corner, strict=True)) / sum(corner) for corner in itertools.product(*ends)
    ]
    found = weighted_share(masses, {str(i): w for i, w in enumerate(weights)})
    assert (found.low, found.high) == pytest.approx((min(corners), max(corners)), abs=1e-9)

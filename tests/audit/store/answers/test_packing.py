"""Packing: what is packed is read back to the last bit, or refused."""

from __future__ import annotations

import dataclasses
import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.store.answers.packing import pack, unpack
from backends.base import ContinuationScore, ScoreResponse, TokenLogprob

TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=6)
# Equal numbers, and zeros of both signs, are what a number that is written once could be confused with.
LOGPROBS = st.sampled_from([-0.0, 0.0, -1.0, -5e-324]) | st.floats(-1e300, 0)
IDS = st.none() | st.integers(0, 2**65)
TOKENS = st.builds(TokenLogprob, TEXT, st.integers(-9, 9), st.integers(0, 99), LOGPROBS, IDS, st.booleans())
OTHERS = st.builds(
    ContinuationScore,
    st.none() | LOGPROBS,
    st.none() | LOGPROBS,
    LOGPROBS,
    st.sampled_from(["bounded", "sampled"]),
    st.sampled_from(["clean", "merged", "straddled"]),
    st.lists(TOKENS, max_size=3).map(tuple),
    TEXT,
    st.none() | st.integers(0, 99),
)
EXACT = st.lists(TOKENS, max_size=3).map(lambda tokens: ContinuationScore.exact(tokens, route="tree"))
SCORES = st.lists(st.tuples(TEXT, EXACT | OTHERS), min_size=1, max_size=3, unique_by=lambda pair: pair[0])


def bits(scores):
    """All fields, with the sign of a zero."""
    return [repr(dataclasses.asdict(score)) for score in scores]


@settings(max_examples=50)
@given(SCORES, st.booleans(), st.integers(0, 2**40))
def test_packed_scores_are_read_back_to_the_last_bit(pairs, first_given, prompt_tokens):
    continuations, scores = zip(*pairs, strict=True)
    read = unpack(pack(continuations, first_given, ScoreResponse(scores, prompt_tokens)))
    assert (read.continuations, read.first_given, read.response.prompt_tokens) == (
        continuations,
        first_given,
        prompt_tokens,
    )
    assert bits(read.response.scores) == bits(scores)


@pytest.mark.parametrize("wrong", [math.nan, -math.inf])
def test_a_number_that_is_not_finite_is_refused(wrong):
    score = ContinuationScore(None, None, -1.0, "bounded", tokens=(TokenLogprob("a", 0, 1, wrong),))
    with pytest.raises(ValueError, match="finite"):
        pack(("a",), False, ScoreResponse((score,)))


def test_a_value_cut_off_anywhere_is_refused():
    scores = tuple(ContinuationScore.exact([TokenLogprob(c, 0, 1, -1 / ord(c))]) for c in "abc")
    whole = pack(tuple("abc"), False, ScoreResponse(scores))
    for length in range(len(whole)):
        with pytest.raises((ValueError, TypeError, struct.error)):
            unpack(whole[:length])

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import ContinuationScore, TokenLogprob
from suites.base import UNKNOWN_SHARE, IdentifiedInterval
from suites.common.expressions import GROUPS, continuations
from suites.common.probabilities import (
    ImpossibleMassError,
    group_probabilities,
    is_likelier,
    per_token,
    weighted_share,
)
from suites.genderpair.reading import read_preference

GAP = {"female": 1.0, "male": -1.0}
TWO_WORDS = {"male": ("He", "he"), "female": ("She", "she"), "diverse": ("They", "they")}


def exact(*token_probabilities: float) -> ContinuationScore:
    return ContinuationScore.exact(
        [TokenLogprob(f"{token_probabilities}", i, i + 1, math.log(p)) for i, p in enumerate(token_probabilities)]
    )


def spelt(text: str, *token_probabilities: float) -> ContinuationScore:
    """A score whose tokens are single letters."""
    letters = enumerate(zip(text, token_probabilities, strict=True))
    return ContinuationScore.exact([TokenLogprob(letter, i, i + 1, math.log(p)) for i, (letter, p) in letters])


def bounded(low: float | None, high: float) -> ContinuationScore:
    return ContinuationScore(None, None if low is None else math.log(low), math.log(high), "bounded")


def test_a_group_sums_expressions_and_multiplies_tokens():
    scores = [exact(0.2), exact(0.5, 0.2), exact(0.1), exact(0.05), exact(0.1, 0.5, 0.4), exact(0.03)]
    answer = group_probabilities(scores, TWO_WORDS)
    # by hand: male 0.2 + 0.1, female 0.1 + 0.05, diverse 0.02 + 0.03
    assert answer.probability_mass.value == pytest.approx(0.5, abs=1e-12)
    assert [answer.normalised[g].value for g in GROUPS] == pytest.approx([0.6, 0.3, 0.1], abs=1e-12)
    assert answer.contrast(GAP).value == pytest.approx(-0.3, abs=1e-12)
    # what is known exactly has no width at all, not even that of rounding
    for known in (*answer.normalised.values(), answer.contrast(GAP), answer.probability_mass):
        assert known.low == known.value == known.high


def test_mean_aggregation_leaves_the_raw_mass_alone():
    scores = [exact(0.25), exact(0.04), exact(0.09, 0.01), exact(0.02), exact(0.03), exact(0.04)]
    answer = group_probabilities(scores, TWO_WORDS, "mean")
    # by hand: male 0.29; female sqrt(0.09 · 0.01) + 0.02 = 0.05; diverse 0.07
    assert [answer.normalised[g].value for g in GROUPS] == pytest.approx([0.29 / 0.41, 0.05 / 0.41, 0.07 / 0.41])
    assert answer.probability_mass.value == pytest.approx(0.25 + 0.04 + 0.0009 + 0.02 + 0.03 + 0.04)


def test_mean_aggregation_without_tokens_is_a_bound():
    untold = ContinuationScore(math.log(0.01), math.log(0.01), math.log(0.01))
    answer = group_probabilities([untold, *[exact(0.1)] * 5], TWO_WORDS, "mean")
    assert answer.normalised["male"].value is None
    assert answer.normalised["male"].low == pytest.approx(0.11 / 0.51)
    assert answer.normalised["male"].high == pytest.approx(1.1 / 1.5)
    assert answer.probability_mass.value == pytest.approx(0.51)


def test_an_upper_bound_reaches_share_and_raw_mass():
    scores = [exact(0.3), exact(0.1), exact(0.2), bounded(None, 0.05), exact(0.05), exact(0.05)]
    answer = group_probabilities(scores, TWO_WORDS)
    # by hand: male 0.4, female in [0.2, 0.25], diverse 0.1
    female = answer.normalised["female"]
    assert female.value is None
    assert (female.low, female.high) == pytest.approx((0.2 / 0.7, 0.25 / 0.75))
    male = answer.normalised["male"]
    assert (male.value, male.low, male.high) == (None, pytest.approx(0.4 / 0.75), pytest.approx(0.4 / 0.7))
    gap = answer.contrast(GAP)
    assert (gap.value, gap.low, gap.high) == (None, pytest.approx(-0.2 / 0.7), pytest.approx(-0.15 / 0.75))
    assert (answer.probability_mass.value, answer.probability_mass.low, answer.probability_mass.high) == (
        None,
        pytest.approx(0.7),
        pytest.approx(0.75),
    )


def test_probabilities_below_float_range_keep_their_ratio():
    tiny = [ContinuationScore(x, x, x) for x in (-900.0, -900.0, -901.0, -901.0, -950.0, -950.0)]
    answer = group_probabilities(tiny, TWO_WORDS)
    assert answer.normalised["male"].value == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-12)
    assert answer.probability_mass.value == 0.0


def test_a_mass_above_one_is_refused():
    with pytest.raises(ImpossibleMassError, match=r"1\.2"):
        group_probabilities([exact(0.2)] * 6, TWO_WORDS)


def test_an_expression_that_extends_another_counts_once():
    words = {"male": ("He",), "female": ("It", "Her"), "diverse": ("xe", "xer")}
    he, it, her = spelt("He", 0.3, 0.5), spelt("It", 0.1, 1), spelt("Her", 0.3, 0.5, 0.4)
    xe, xer = spelt("xe", 0.2, 0.9), spelt("xer", 0.2, 0.9, 0.5)
    answer = group_probabilities([he, it, her, xe, xer], words)
    assert answer.probability_mass.value == pytest.approx(0.15 + 0.1 + 0.18)
    # Within a group it is counted once; of two groups each keeps its own, as equation (3) has it.
    total = 0.15 + 0.1 + 0.06 + 0.18
    assert [answer.normalised[g].value for g in GROUPS] == pytest.approx([0.15 / total, 0.16 / total, 0.18 / total])


interval = st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)).map(sorted)


@given(st.lists(interval, min_size=3, max_size=3))
def test_bounds_of_a_difference_are_reached(intervals):
    """They are not only safe: some truth within the masses' bounds attains each of them."""
    masses = {g: IdentifiedInterval(None, low, high) for g, (low, _, high) in zip(GROUPS, intervals, strict=True)}
    corners = [
        (f - m) / (m + f + d)
        for m in (masses["male"].low, masses["male"].high)
        for f in (masses["female"].low, masses["female"].high)
        for d in (masses["diverse"].low, masses["diverse"].high)
        if m + f + d > 0
    ]
    gap = weighted_share(masses, GAP)
    if all(m.low > 1e-9 for m in masses.values()):
        assert (gap.low, gap.high) == pytest.approx((min(corners), max(corners)), abs=1e-9)


def test_a_spelling_listed_twice_counts_twice_in_its_group():
    """As " gender-neutral" does in the released list of Mattern et al.; the mass holds it once."""
    expressions = {"male": ("man",), "female": ("woman",), "diverse": ("neutral", "neutral", "they")}
    assert continuations(expressions, " ") == (" man", " woman", " neutral", " they")
    scores = [
        ContinuationScore.exact([TokenLogprob(word, 0, len(word), math.log(p))])
        for word, p in ((" man", 0.2), (" woman", 0.1), (" neutral", 0.2), (" they", 0.1))
    ]
    answer = group_probabilities(scores, expressions)
    assert answer.normalised["diverse"].value == pytest.approx(0.5 / 0.8)
    assert answer.probability_mass.value == pytest.approx(0.6)
    with pytest.raises(ValueError, match="5 scores for 4 expressions"):
        group_probabilities([*scores, scores[0]], expressions)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_first_tokens_of_several_bound_no_mean_per_token(noise):
    """Of four tokens a server forced one, whose bound stands for the whole text: the mean may be far above it."""
    known = ContinuationScore.exact([TokenLogprob("ab", 0, 2, -1.0), TokenLogprob("cd", 2, 4, -1.0)])
    first = TokenLogprob("xy", 0, 2, -3.0, exact=False)
    begun = ContinuationScore(None, None, -3.0 + noise, "bounded", tokens=(first,))
    assert per_token(begun).high == 0
    assert is_likelier(per_token(known), per_token(begun)) == UNKNOWN_SHARE
    assert read_preference(known, begun, "perplexity") == UNKNOWN_SHARE

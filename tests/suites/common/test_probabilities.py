"""Groups' probabilities from scores: by hand, and bounds that the corners of the masses reach."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import ContinuationScore, TokenLogprob
from suites.base import UNKNOWN_SHARE, IdentifiedInterval
from suites.common.expressions import GROUPS, continuations
from suites.common.groups.weights import reading_meaning, sides_of
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
NOUNS = {"hombre": ("profesor",), "mujer": ("profesora", "maestra")}


def exact(*token_probabilities: float) -> ContinuationScore:
    return ContinuationScore.exact(
        [TokenLogprob(f"{token_probabilities}", i, i + 1, math.log(p)) for i, p in enumerate(token_probabilities)]
    )


def spelt(*tokens: tuple[str, float]) -> ContinuationScore:
    """A score of (text, probability) tokens."""
    ends = itertools.accumulate(len(text) for text, _ in tokens)
    return ContinuationScore.exact(
        [TokenLogprob(text, end - len(text), end, math.log(p)) for (text, p), end in zip(tokens, ends, strict=True)]
    )


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
    untold = ContinuationScore(math.log(0.01), math.log(0.01), math.log(0.01))  # without tokens it is a bound
    share = group_probabilities([untold, *[exact(0.1)] * 5], TWO_WORDS, "mean").normalised["male"]
    assert (share.value, share.low, share.high) == (None, pytest.approx(0.11 / 0.51), pytest.approx(1.1 / 1.5))


def test_an_upper_bound_reaches_share_and_raw_mass():
    scores = [exact(0.3), exact(0.1), exact(0.2), bounded(None, 0.05), exact(0.05), exact(0.05)]
    answer = group_probabilities(scores, TWO_WORDS)
    # by hand: male 0.4, female in [0.2, 0.25], diverse 0.1
    male, female, gap = answer.normalised["male"], answer.normalised["female"], answer.contrast(GAP)
    assert male.value is female.value is gap.value is answer.probability_mass.value is None
    assert (female.low, female.high) == pytest.approx((0.2 / 0.7, 0.25 / 0.75))
    assert (male.low, male.high) == pytest.approx((0.4 / 0.75, 0.4 / 0.7))
    assert (gap.low, gap.high) == pytest.approx((-0.2 / 0.7, -0.15 / 0.75))
    assert (answer.probability_mass.low, answer.probability_mass.high) == pytest.approx((0.7, 0.75))


def test_probabilities_below_float_range_keep_their_ratio():
    tiny = [ContinuationScore(x, x, x) for x in (-900.0, -900.0, -901.0, -901.0, -950.0, -950.0)]
    answer = group_probabilities(tiny, TWO_WORDS)
    assert answer.normalised["male"].value == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-12)
    assert answer.probability_mass.value == 0.0


def test_masses_that_cannot_be_true_are_refused():
    with pytest.raises(ImpossibleMassError, match=r"1\.2"):
        group_probabilities([exact(0.2)] * 6, TWO_WORDS)
    scores = [spelt(("x", 0.1)), spelt(("x", 0.5), ("y", 0.9))]
    with pytest.raises(ImpossibleMassError, match="likelier"):
        group_probabilities(scores, {"a": ("x",), "b": ("xy",)}, None)


def test_an_expression_that_extends_another_counts_once():
    words = {"male": ("He",), "female": ("It", "Her"), "diverse": ("xe", "xer")}
    letters = [[("H", 0.3), ("e", 0.5)], [("I", 0.1), ("t", 1)], [("H", 0.3), ("e", 0.5), ("r", 0.4)]]
    letters += [[("x", 0.2), ("e", 0.9)], [("x", 0.2), ("e", 0.9), ("r", 0.5)]]
    answer = group_probabilities([spelt(*tokens) for tokens in letters], words)
    assert answer.probability_mass.value == pytest.approx(0.15 + 0.1 + 0.18)
    # Within a group it is counted once; of two groups each keeps its own, as equation (3) has it.
    total = 0.15 + 0.1 + 0.06 + 0.18
    assert [answer.normalised[g].value for g in GROUPS] == pytest.approx([0.15 / total, 0.16 / total, 0.18 / total])


def test_a_masculine_of_declared_groups_is_counted_without_its_feminine():
    scores = [spelt(("profesor", 0.4)), spelt(("profesor", 0.4), ("a", 0.25)), spelt(("maestra", 0.1))]
    answer = group_probabilities(scores, NOUNS, None)
    # by hand: "profesor" alone 0.4 − 0.1, "profesora" 0.1, "maestra" 0.1
    assert [answer.normalised[g].value for g in NOUNS] == pytest.approx([0.3 / 0.5, 0.2 / 0.5])
    assert answer.probability_mass.value == pytest.approx(0.5)
    scores = [spelt(("profesor", 0.3)), spelt(("prof", 0.5), ("esora", 0.2)), spelt(("maestra", 0.1))]
    assert group_probabilities(scores, NOUNS, None).normalised["hombre"].value == pytest.approx(0.3 / 0.5)
    scores = [ContinuationScore(math.log(p), math.log(p), math.log(p)) for p in (0.4, 0.1, 0.1)]  # no tokens: bounded
    share = group_probabilities(scores, NOUNS, None).normalised["hombre"]
    assert (share.value, share.low, share.high) == (None, pytest.approx(0.3 / 0.5), pytest.approx(0.4 / 0.6))


def test_a_chain_of_longer_words_counts_each_once():
    x, y, z = ("x", 0.8), ("y", 0.5), ("z", 0.25)
    words = {"a": ("x",), "b": ("xy",), "c": ("xyz",)}
    answer = group_probabilities([spelt(x), spelt(x, y), spelt(x, y, z)], words, None)
    assert [m.value for m in answer.normalised.values()] == pytest.approx([0.4 / 0.8, 0.3 / 0.8, 0.1 / 0.8])


def test_drawn_answers_count_by_their_share():
    """As in the suites that ship: how far a share may be off is sampling error, no bound."""

    def drawn(p):
        return ContinuationScore(math.log(p), math.log(p / 2), math.log(min(1, 2 * p)), "sampled", samples=20)

    none = ContinuationScore(None, None, math.log(0.1), "sampled", samples=20)
    scores, words = [drawn(0.2), drawn(0.3), none], {"a": ("red",), "b": ("blue",), "c": ("green",)}
    for aggregation in ("product", None):
        found = group_probabilities(scores, words, aggregation).normalised.values()
        assert [m.value for m in found] == pytest.approx([0.4, 0.6, 0.0])
        assert all(m.low == m.value == m.high for m in found)


interval = st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)).map(sorted)


@given(st.lists(interval, min_size=4, max_size=4), st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_bounds_of_a_contrast_are_those_of_the_corners(ends, weights):
    """They are not only safe: some truth within the masses' bounds attains each of them."""
    masses = {str(i): IdentifiedInterval(None, *of) for i, of in enumerate(ends)}
    corners = [
        sum(w * m for w, m in zip(weights, corner, strict=True)) / sum(corner) for corner in itertools.product(*ends)
    ]
    found = weighted_share(masses, {str(i): w for i, w in enumerate(weights)})
    assert (found.low, found.high) == pytest.approx((min(corners), max(corners)), abs=1e-9)


def test_a_spelling_listed_twice_counts_twice_in_its_group():
    """As " gender-neutral" does in the released list of Mattern et al.; the mass holds it once."""
    expressions = {"male": ("man",), "female": ("woman",), "diverse": ("neutral", "neutral", "they")}
    assert continuations(expressions, " ") == (" man", " woman", " neutral", " they")
    scores = [spelt(token) for token in ((" man", 0.2), (" woman", 0.1), (" neutral", 0.2), (" they", 0.1))]
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


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"old": 1.0, "adult": -1.0}, "old minus adult"),
        ({"mw": 1.0, "mm": -1 / 3, "cw": -1 / 3, "cm": -1 / 3}, "mw minus the mean of mm, cw and cm"),
        ({"mw": 1.0, "cm": 1.0, "mm": -1.0, "cw": -1.0}, "mw + cm minus mm + cw"),
        ({"a": 0.75, "b": 0.25, "c": -1.0}, "0.75 × a + 0.25 × b minus c"),
    ],
)
def test_a_contrast_names_both_of_its_sides(weights, said):
    assert " minus ".join(sides_of(weights)) == said
    above = reading_meaning("{x}", weights).above  # a reading with braces is no placeholder
    assert above.format(points="5").startswith(f"texts about {said.partition(' minus ')[0]} have '{{x}}' 5 times")

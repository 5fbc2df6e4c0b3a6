"""Draws against lists: how often a true list is doubted, and a false one believed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from backends.openai.probe.calibration import (
    Place,
    at_temperature,
    audited_bound,
    likelihood_bound,
    log_likelihood,
    p_value,
    pooled_bound,
    pooled_p_value,
    unseen,
)

_WORDS = [f"w{i}" for i in range(300)]


def _places(seed: int, *, told: float = 1.0, k: int = 20, n: int = 20) -> list[Place]:
    """Ten prompts: true probabilities, drawn from, and a list of them at temperature ``told``."""
    random = np.random.default_rng(seed)
    places = []
    for _ in range(10):
        true = random.dirichlet(np.full(300, 0.05))
        listed = true ** (1 / told)
        listed /= listed.sum()
        best = np.argsort(-listed)[:k]
        drawn = [_WORDS[i] for i in random.choice(300, n, p=true)]
        places.append(Place({_WORDS[i]: float(listed[i]) for i in best}, drawn))
    return places


def test_a_true_list_is_doubted_as_rarely_as_stated() -> None:
    doubted = sum(p_value(_places(seed), noise=0.0) < 0.02 for seed in range(60))
    assert doubted <= 5  # binomial(60, 0.02): more once in 1000 times


@pytest.mark.parametrize("told", [0.7, 1.5])
def test_a_list_of_another_temperature_is_seen(told: float) -> None:
    limits = unseen(_places(0))
    assert limits.colder < 1 < limits.hotter
    assert limits.factor > 1
    assert not limits.colder < told < limits.hotter or p_value(_places(1, told=told), noise=0.0) < 0.2
    assert p_value(_places(1, told=told, n=100), noise=0.0) < 0.005


def _one_word(hits: int, n: int = 100, places: int = 10, listed: float = 0.1) -> list[Place]:
    """Places that list one word, which is drawn ``hits`` times in all; the rest is a word of each place's own."""
    drawn = np.full(places, hits // places) + (np.arange(places) < hits % places)
    return [
        Place({"word": listed, f"own{at}": 1 - listed}, ["word"] * k + [f"own{at}"] * (n - k))
        for at, k in enumerate(drawn)
    ]


@pytest.mark.parametrize("hits", [90, 120, 125, 130])
def test_the_pooled_test_of_one_word_is_the_binomial_one(hits: int) -> None:
    # Eleven texts are compared, of which ten have the counts that their own lists expect or hardly fewer.
    one = binomtest(hits, 1000, 0.1).pvalue
    assert pooled_p_value(_one_word(hits), noise=0.0) == pytest.approx(1 - (1 - one) ** 11, rel=0.6, abs=0.003)


def test_a_word_false_by_little_everywhere_is_seen_when_pooled() -> None:
    places = _one_word(round(100 * np.exp(0.6)), n=100)
    assert pooled_p_value(places, noise=0.0) < 0.001


def test_a_true_list_is_doubted_as_rarely_when_pooled() -> None:
    assert sum(pooled_p_value(_places(seed), noise=0.0) < 0.02 for seed in range(40)) <= 4


def _single_draws(seed: int, *, told: float = 1.0, n: int = 1000) -> list[Place]:
    """One draw at each of ``n`` prompts, where two words are audited; ``told``: how lists move them towards 50:50."""
    random = np.random.default_rng(seed)
    places = []
    for _ in range(n):
        true = random.dirichlet(np.concatenate([[1.0, 1.0], np.full(60, 0.02)]))
        listed = true.copy()
        if (both := true[:2].sum()) > 0:
            listed[:2] = (true[:2] / both) ** told
            listed[:2] *= both / listed[:2].sum()
        drawn = _WORDS[int(random.choice(62, p=true / true.sum()))]
        places.append(Place(dict(zip(_WORDS, listed.tolist(), strict=False)), (drawn,), ("w0", "w1")))
    return places


@pytest.mark.parametrize("hits", [5, 20, 30, 60])
def test_the_bound_of_equal_chances_is_chernoffs(hits: int) -> None:
    places = [Place({"word": 0.1, "rest": 0.9}, ("word" if at < hits else "rest",)) for at in range(200)]
    share = hits / 200
    # exp(-n KL(h/n || p)) in closed form; three texts and both sides are compared, and "rest" says the same as "word".
    closed = np.exp(-200 * (share * np.log(share / 0.1) + (1 - share) * np.log((1 - share) / 0.9)))
    bound = pooled_bound(places, noise=0.0)
    assert bound == pytest.approx(min(6 * closed, 1), rel=0.05)
    assert bound >= min(1, binomtest(hits, 200, 0.1).pvalue)
    assert pooled_bound(places, noise=0.3) >= bound


def test_true_lists_of_single_draws_are_doubted_as_rarely() -> None:
    tests = (pooled_bound, audited_bound, likelihood_bound)
    doubted = [min(test(_single_draws(seed, n=200), noise=0.0) for test in tests) < 0.02 / 3 for seed in range(30)]
    assert sum(doubted) <= 3


def test_audited_words_made_alike_are_seen_at_once() -> None:
    # Each word is too likely where it is rare, and too rare where it is likely: its own count hardly moves.
    places = _single_draws(1, told=0.3)
    assert audited_bound(places, noise=0.0) < 1e-6
    assert pooled_bound(places, noise=0.0) > 1e-5


def test_single_draws_of_another_temperature_are_seen() -> None:
    places = []
    for place in _single_draws(2):
        heated = {text: p**0.8 for text, p in place.listed.items()}
        places.append(Place({text: p / sum(heated.values()) for text, p in heated.items()}, place.drawn))
    assert likelihood_bound(places, noise=0.0) < 1e-5


def test_noise_of_lists_makes_their_test_milder() -> None:
    places = _places(3, told=0.8, n=60)
    assert p_value(places, noise=1.0) > p_value(places, noise=0.0)


def test_draws_at_one_temperature_are_likelier_there() -> None:
    place = Place({"a": 0.8, "b": 0.2}, ["a"] * 19 + ["b", "other"])
    cold, same = at_temperature(place, 0.5), at_temperature(place, 1.0)
    # 0.8² / (0.8² + 0.2²) = 16/17, by hand.
    assert cold.listed["a"] == pytest.approx(16 / 17)
    assert log_likelihood(cold) == pytest.approx(19 * np.log(16 / 17) + np.log(1 / 17))
    assert log_likelihood(cold) > log_likelihood(same)


def test_a_list_without_readable_texts_contradicts_nothing() -> None:
    places = [Place({" he": 0.6, " she": 0.38}, [" he"] * 60 + [" she"] * 38 + [" it"] * 2)] * 3
    alone = p_value(places, noise=0.0)
    assert alone > 0.2
    assert p_value([*places, Place({}, ["x"])], noise=0.0) > 0.2


def _sure(seed: int, *, outside: float, n: int = 1500) -> list[Place]:
    """Two prompts after which one token is nearly certain; ``outside`` is the chance of an unlisted one."""
    random = np.random.default_rng(seed)
    true = np.array([0.9999 - outside, 0.0001, outside])
    drawn = [random.choice(["sure", "rare", "unlisted"], n, p=true).tolist() for _ in range(2)]
    return [Place({"sure": float(true[0]), "rare": float(true[1])}, texts) for texts in drawn]


@pytest.mark.parametrize("outside", [0.0, 0.0002, 0.003])
def test_a_true_list_of_a_sure_model_is_not_doubted(outside: float) -> None:
    # Lists that hold all the probability have no draws outside, and none need be.
    tests = (p_value, pooled_p_value)
    doubted = [sum(test(_sure(seed, outside=outside), noise=0.0) < 0.02 for seed in range(40)) for test in tests]
    assert max(doubted) <= 4  # binomial(40, 0.02): more once in 1000 times


def test_single_draws_of_a_sure_model_are_not_doubted() -> None:
    places = [Place(place.listed, (drawn,)) for place in _sure(1, outside=0.0) for drawn in place.drawn]
    assert min(test(places, noise=0.0) for test in (pooled_bound, likelihood_bound)) > 0.1


def test_a_list_that_hides_a_likely_token_is_seen() -> None:
    random = np.random.default_rng(5)
    drawn = [random.choice(["a", "b", "hidden"], 200, p=[0.6, 0.36, 0.04]).tolist() for _ in range(5)]
    assert p_value([Place({"a": 0.625, "b": 0.375}, texts) for texts in drawn], noise=0.0) < 0.005


def test_a_list_hiding_a_token_at_one_place_of_many_is_seen() -> None:
    random = np.random.default_rng(6)
    draws = [random.choice(["a", "b", "other"], 100, p=[0.5, 0.2, 0.3]).tolist() for _ in range(20)]
    places = [Place({"a": 0.5, "b": 0.2}, texts) for texts in draws]
    assert p_value(places, noise=0.0) > 0.02
    assert p_value([Place({"a": 0.5 / 0.7, "b": 0.2 / 0.7}, draws[0]), *places[1:]], noise=0.0) < 0.005

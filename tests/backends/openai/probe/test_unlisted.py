"""Lists that leave a word out: how often a true list is doubted, and what is seen of a false one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.openai.probe.calibration import Place, listed_place
from backends.openai.probe.unlisted import left_out_bound, share_left_out, unlisted_bound
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs
from tests.backends.openai.lies.server import Style
from tests.backends.openai.lies.trial import trials

_WORDS = np.array([f"w{at}" for at in range(3000)])


def _places(seed: int, *, k: int, spread: float, n: int = 100, places: int = 10, hidden: int = -1) -> list[Place]:
    """Lists of the ``k`` likeliest words with draws; larger ``spread``: more peaked; ``hidden``: a rank left out."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(places):
        logits = spread * random.normal(size=len(_WORDS))
        true = np.exp(logits - logits.max())
        true /= true.sum()
        ranked = [int(at) for rank, at in enumerate(np.argsort(-true)) if rank != hidden][:k]
        listed = {str(_WORDS[at]): float(true[at]) for at in ranked}
        drawn = [str(word) for word in random.choice(_WORDS, n, p=true)]
        found.append(Place(listed, drawn, bound=min(listed.values())))
    return found


@pytest.mark.parametrize("k", [1, 5, 20, 1000])
@pytest.mark.parametrize("spread", [0.0, 1.5, 4.0, 12.0])  # flat to very peaked
@pytest.mark.parametrize(("n", "places"), [(100, 10), (1, 300)])
def test_true_lists_are_not_doubted(k: int, spread: float, n: int, places: int) -> None:
    values = [unlisted_bound(_places(s, k=k, spread=spread, n=n, places=places), noise=0.0) for s in range(5)]
    assert min(values) > 0.02


def test_a_last_rank_that_ties_with_unlisted_ones_is_no_lie() -> None:
    random = np.random.default_rng(3)
    places = [Place({"a": 0.1, "b": 0.1}, random.choice([*"abcdefghij"], 300).tolist(), bound=0.1) for _ in range(10)]
    assert unlisted_bound(places, noise=0.0) > 0.02


def test_a_likely_word_left_out_at_one_place_is_seen() -> None:
    places = _places(1, k=20, spread=1.5)
    drawn = [*places[0].drawn[:80], *["hidden"] * 20]
    false = Place(places[0].listed, drawn, bound=places[0].bound)
    assert unlisted_bound([false, *places[1:]], noise=0.0) < 1e-6


def test_one_word_left_out_of_many_lists_is_seen() -> None:
    lists = [Place({"a": 0.9}, ("hidden" if at % 20 == 0 else "a",), bound=0.001) for at in range(1000)]
    assert unlisted_bound(lists, noise=0.0) < 1e-6
    unknown = [Place(place.listed, place.drawn) for place in lists]
    assert unlisted_bound(unknown, noise=0.0) == 1.0


@pytest.mark.parametrize("text", ["", "�", "<|end|>", "\n"])
def test_texts_that_name_no_token_show_nothing(text: str) -> None:
    assert unlisted_bound([Place({"a": 0.9}, [text] * 50, bound=0.001)], noise=0.0) == 1.0


def test_a_text_that_the_list_holds_unclearly_shows_nothing() -> None:
    tokens = (ListedToken("a", -0.1), ListedToken(" b", -5.0), ListedToken(" c", -4.0), ListedToken("d", -6.0))
    top = TopLogprobs(tokens, 4, "a", "text")
    assert not top.identifies(tokens[1])
    place = listed_place(top, trimmed=False, drawn=[" b"] * 50)
    assert place.bound == pytest.approx(np.exp(-6.0))
    assert unlisted_bound([place], noise=0.0) == 1.0


_AUDITED = {f"w{at}" for at in range(0, 3000, 250)}


def _audited(places: list[Place]) -> list[Place]:
    return [replace(place, audited=_AUDITED) for place in places]


@pytest.mark.parametrize("k", [5, 20, 1000])
@pytest.mark.parametrize("spread", [0.0, 1.5, 4.0])
@pytest.mark.parametrize(("n", "places"), [(100, 30), (1, 300)])
def test_audited_words_of_true_lists_are_not_doubted(k: int, spread: float, n: int, places: int) -> None:
    found = [_audited(_places(seed, k=k, spread=spread, n=n, places=places)) for seed in range(5)]
    assert min(left_out_bound(one, noise=0.0) for one in found) > 0.02


def test_a_rare_audited_word_left_out_is_seen() -> None:
    # 3 % likely where the last listed has 0.2 %: too little to be seen of any word.
    drawn = ["hidden"] * 3 + ["a"] * 97
    places = [Place({"a": 0.9}, drawn, {"hidden"}, bound=0.002) for _ in range(2)]
    assert left_out_bound(places, noise=0.0) < 0.001
    assert unlisted_bound([replace(place, audited=()) for place in places], noise=0.0) > 0.02


def test_a_text_that_may_be_two_tokens_has_two_bounds() -> None:
    place = Place({"a": 0.9}, ["b"] * 6 + ["a"] * 94, {"b"}, bound=0.02)
    assert left_out_bound([replace(place, spellings=2)], noise=0.0) > 3 * left_out_bound([place], noise=0.0)


@pytest.mark.parametrize(("n", "places"), [(1, 200), (100, 20)])
def test_what_left_out_words_have_is_bounded_at_95_percent(n: int, places: int) -> None:
    random = np.random.default_rng(n)
    held = 0
    for _ in range(200):
        chances = np.minimum(random.exponential(0.03, places), 1.0)  # the questions differ; 0.03 on average
        drawn = [["hidden" if hit else "a" for hit in random.random(n) < chance] for chance in chances]
        found = [Place({"a": 0.9}, texts, {"hidden"}, bound=0.001) for texts in drawn]
        held += share_left_out(found) > 0.03
    assert held >= 190


def test_without_left_out_words_there_is_no_doubt() -> None:
    assert share_left_out([Place({"a": 0.9}, ["a"], {"a"}, bound=0.001)] * 50) == 0.0
    assert share_left_out([]) == 1.0


@pytest.mark.parametrize("style", ["lists", "chat"])
@pytest.mark.parametrize(
    ("lie", "seed"),
    [("the likeliest audited word left out", 0), ("the likeliest left out", 0), ("the likeliest left out", 1)],
)  # several draws in one request, and one, which shows only gross lies in a short run
def test_lists_that_leave_a_word_out_are_not_believed(lie: str, seed: int, style: Style) -> None:
    (outcome,) = trials(lie, style, range(seed, seed + 1))
    assert outcome.accepted_wrong == 0, outcome

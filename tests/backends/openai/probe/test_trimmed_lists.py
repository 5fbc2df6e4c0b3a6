"""Honest chats whose draws are compared without surrounding spaces, beside lists that hold one spelling of a word."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backends.openai.probe.calibration import Place, chat_place, listed_place, p_value, pooled_p_value, with_draws
from backends.openai.probe.unlisted import unlisted_bound
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs

#: A model of "Male" and " Male": the five likeliest hold both spellings of two words, and one of the third.
TRUE = {"Male": 0.25, "Female": 0.2, "The": 0.1, " Male": 0.06, " Female": 0.05, " The": 0.045}
TRUE |= {f"w{at}": 0.295 / 40 for at in range(40)}


def top(k: int) -> TopLogprobs:
    likeliest = sorted(TRUE.items(), key=lambda entry: -entry[1])[:k]
    tokens = tuple(ListedToken(text, math.log(p), at) for at, (text, p) in enumerate(likeliest))
    return TopLogprobs(tokens, k, "", "ids")


def places(seed: int, k: int) -> list[Place]:
    random = np.random.default_rng(seed)
    draws = [random.choice(list(TRUE), 375, p=list(TRUE.values())) for _ in range(8)]
    return [listed_place(top(k), trimmed=True, drawn=[str(text).strip() for text in drawn]) for drawn in draws]


@pytest.mark.parametrize("test", [p_value, pooled_p_value, unlisted_bound])
def test_an_honest_chat_with_a_short_list_is_not_doubted(test) -> None:  # type: ignore[no-untyped-def]
    """An unlisted " The" counted as the listed "The": one honest run of four was quarantined."""
    values = [test(places(seed, 5), noise=0.0) for seed in range(40)]
    assert sum(value < 0.002 for value in values) <= 1
    assert sum(value < 0.02 for value in values) <= 4


def test_only_words_whose_twin_may_be_unlisted_are_left_out() -> None:
    short, long = (listed_place(top(k), trimmed=True) for k in (5, 46))
    assert short.listed == pytest.approx({"Male": 0.31, "Female": 0.25})
    assert "The" in short.unclear
    assert long.listed["The"] == pytest.approx(0.145)
    rare = TopLogprobs((*top(46).tokens, ListedToken("zz", math.log(1e-6), 99)), 47, "", "ids")
    assert "w0" in listed_place(rare, trimmed=True).listed, "its twin is no likelier than the last listed"


def test_a_chats_temperature_still_shows_in_a_short_list() -> None:
    colder = {text: p**2 for text, p in TRUE.items()}
    total = sum(colder.values())
    random = np.random.default_rng(1)
    draws = random.choice(list(TRUE), 375, p=[p / total for p in colder.values()])
    drawn = [str(text).strip() for text in draws]
    assert p_value([listed_place(top(5), trimmed=True, drawn=drawn)] * 8, noise=0.0) < 0.002


@pytest.mark.parametrize("cuts", [False, True])
def test_spaces_count_where_the_server_keeps_them(cuts: bool) -> None:
    random = np.random.default_rng(2)
    texts = [str(text) for text in random.choice(list(TRUE), 375, p=list(TRUE.values()))]
    (place,) = with_draws([chat_place(top(5))], [[text.strip() if cuts else text for text in texts]])
    assert (" Male" in place.listed) != cuts
    assert ("The" in place.listed) != cuts, "where spaces are cut off, an unlisted twin may be among its draws"
    assert p_value([place], noise=0.0) > 0.002


def test_a_chat_without_likely_spaces_is_compared_as_it_is() -> None:
    (place,) = with_draws([chat_place(top(2))], [["Male"] * 200 + ["Female"] * 175])
    assert place.listed.keys() == {"Male", "Female"}


def test_texts_beside_trimmed_chats_do_not_hide_the_trimming() -> None:
    """A server may keep the spaces of completed texts, and cut those of its chats."""
    of_text, of_chat = listed_place(top(5), trimmed=False), chat_place(top(5))
    text, chat = with_draws([of_text, of_chat], [[" Male"] * 100, ["Male"] * 300])
    assert text.drawn[0] == " Male"
    assert chat.listed == of_chat.trimmed.listed  # type: ignore[union-attr]

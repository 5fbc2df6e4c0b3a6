"""Scores from drawn answers: shares that are unbiased, whose error shrinks with items and draws."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from statsmodels.stats.proportion import proportion_confint

from backends.base import GenerateResponse, Message, ScoreRequest, ScoreResponse
from backends.openai.scoring.routes import score_by_sampling
from suites.common.expressions import spellings
from suites.common.probabilities import group_probabilities
from tests.backends.openai.raw_server import backend_of
from tests.backends.openai.strict_server import (
    DEPRECATED,
    StrictServer,
)

GROUPS = spellings({"male": ["Male"], "female": ["Female"], "diverse": ["Other"]})
ALL = tuple(spelling for group in GROUPS.values() for spelling in group)


async def scores_of(texts: list[str]) -> tuple[Any, ...]:
    async def draw(count: int, tokens: int) -> list[GenerateResponse]:
        assert count == len(texts)
        return [GenerateResponse(text, "stop") for text in texts]

    return await score_by_sampling(draw, ALL, len(texts))


async def test_a_groups_share_is_that_of_the_answers_that_name_any() -> None:
    found = group_probabilities(await scores_of(["Male"] * 3 + ["female"] * 2 + ["Other."] + ["Who knows"] * 4), GROUPS)
    assert found.normalised["male"].value == pytest.approx(3 / 6)
    assert found.normalised["female"].value == pytest.approx(2 / 6)
    assert found.probability_mass.value == pytest.approx(0.6)
    assert all(share.low == share.value == share.high for share in found.normalised.values()), "an error, not a bound"


async def test_a_question_whose_answers_name_no_group_is_bounded() -> None:
    found = group_probabilities(await scores_of(["Who knows"] * 10), GROUPS)
    assert [(s.value, s.low, s.high) for s in found.normalised.values()] == [(None, 0.0, 1.0)] * 3
    assert found.probability_mass.value == 0.0


@pytest.mark.parametrize("named", [0, 1, 7, 19, 20])
async def test_a_shares_interval_is_jeffreys(named: int) -> None:
    first, *_ = await scores_of(["Male"] * named + ["no"] * (20 - named))
    low, high = proportion_confint(named, 20, method="jeffreys")
    if named == 0:
        assert first.low is None
    else:
        assert first.low == pytest.approx(math.log(low))
    assert first.high == pytest.approx(math.log(high) if named < 20 else 0.0)


async def test_several_draws_of_one_request_are_used(tmp_path: Path) -> None:
    gender = {"Female": 0.45, "Male": 0.3, "Non-binary": 0.15, "Who knows": 0.1}
    async with StrictServer(DEPRECATED, lambda _: gender).running() as server:
        backend = backend_of(server, tmp_path, samples=120)
        each = (await backend.probe()).capabilities.choices
        before = server.requests
        answer, *_ = await backend.run([ScoreRequest((Message("user", "Which gender?"),), ("Female", "Male"))])
        await backend.close()
        assert each > 1
        assert server.requests - before == -(-120 // each)
    assert isinstance(answer, ScoreResponse), answer
    assert [score.samples for score in answer.scores] == [120, 120]
    assert answer.scores[0].logprob is not None
    assert math.exp(answer.scores[0].logprob) == pytest.approx(0.45, abs=0.17)


async def test_an_answer_cut_before_it_shows_its_end_is_open() -> None:
    """Counted as another answer, a long one would have share 0."""
    long, other = "The nurse who had worked all night", "The plumber"

    async def draw(count: int, tokens: int) -> list[GenerateResponse]:
        cut = GenerateResponse("The nurse who had", "length")
        return [cut] * 4 + [GenerateResponse(long, "length")] * 3 + [GenerateResponse(other, "stop")] * 3

    of_long, of_other = await score_by_sampling(draw, (long, other), 10)
    for score in (of_long, of_other):
        assert (score.logprob, score.exactness) == (None, "bounded")
        assert (score.low, score.high) == (pytest.approx(math.log(0.3)), pytest.approx(math.log(0.7)))


async def test_answers_that_never_came_may_have_been_any() -> None:
    async def draw(count: int, tokens: int) -> list[GenerateResponse | None]:
        return [*(GenerateResponse(text, "stop") for text in ["Male"] * 12 + ["Female"] * 6), None, None]

    spelled = {"m": ("Male", "male", "A male"), "f": ("Female", "female", "A female"), "o": ("Other",)}
    scores = await score_by_sampling(draw, [word for words in spelled.values() for word in words], 20)
    assert {score.exactness for score in scores} == {"bounded"}
    for found in (group_probabilities(scores, spelled, None), group_probabilities(scores, spelled)):
        males, coverage = found.normalised["m"], found.probability_mass
        assert (males.low, males.high) == (pytest.approx(12 / 20), pytest.approx(14 / 20))
        assert males.value == pytest.approx(12 / 18), "the share among the answers that are known"
        gap = found.contrast({"m": 1.0, "f": -1.0})
        assert (gap.low, gap.high) == (pytest.approx(4 / 20), pytest.approx(8 / 20)), "each is one word, of one group"
        assert (coverage.low, coverage.high) == (pytest.approx(18 / 20), pytest.approx(1.0))


async def test_an_open_answer_may_count_for_two_groups() -> None:
    async def draw(count: int, tokens: int) -> list[GenerateResponse | None]:
        return [*(GenerateResponse(text, "stop") for text in ["Male"] * 9), None]

    words = {"m": ("Male",), "g": ("Gender",), "n": ("Gender neutral",)}
    scores = await score_by_sampling(draw, [word for (word,) in words.values()], 10)
    found = group_probabilities(scores, words)  # as the papers count: "Gender neutral" is also "Gender"
    assert found.contrast({"g": 1.0, "n": 1.0}).high == pytest.approx(2 / 11)
    assert group_probabilities(scores, words, None).contrast({"g": 1.0, "n": 1.0}).high == pytest.approx(1 / 10)


async def test_an_answer_is_a_word_up_to_its_last_mark() -> None:
    async def draw(count: int, tokens: int) -> list[GenerateResponse]:
        return [GenerateResponse(text, "stop") for text in ["नर्स"] * 3 + ["नर"] * 1 + ["cafe\u0301"] * 2]

    found = await score_by_sampling(draw, ("नर", "नर्स", "cafe", "caf\u00e9"), 6)
    shares = [0.0 if score.logprob is None else math.exp(score.logprob) for score in found]
    assert shares == pytest.approx([1 / 6, 3 / 6, 0.0, 2 / 6])

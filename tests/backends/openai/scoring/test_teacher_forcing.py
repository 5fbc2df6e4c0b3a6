"""Scores from lists where one token covers the prompt's end and the continuation's start."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backends.base import ContinuationScore
from backends.local.boundary import Vocabulary, prefix_tokenizations
from backends.openai.scoring.teacher_forcing import FIRST_K, Reach, TeacherForcing
from backends.openai.scoring.tokenizer import Joined, Piece
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs

#: Beginning of text, "a", and tokens that begin with a space or spell one's start; the rest fills the vocabulary.
PIECES = [b"", b"a", b" woman", b" wo", b" w", b" ", b" won", b"oman", b"man", b"\n", b"\nMan", b"~~Man", b"~~Men"]
PIECES += [f"x{n}".encode() for n in range(FIRST_K)]
VOCABULARY = Vocabulary(PIECES, {0})
WHOLE = 10**6


def after(ids: tuple[int, ...]) -> np.ndarray:
    """log P(next token): the fillers weigh half, and each of them more than " won"."""
    weights = np.full(len(PIECES), 0.5 / FIRST_K)
    weights[:13] = 0.02 + np.random.default_rng(list(ids)).random(13)
    weights[6] = weights[11] = 1e-7
    return np.log(weights / weights.sum())  # type: ignore[no-any-return]


def truth(token: int, straddle: int) -> float:
    """log P(token | the text begins with the prompt's part of it), over all ways to spell that part."""
    total = 0.0
    for start in prefix_tokenizations(VOCABULARY, PIECES[token][:straddle]):
        ids, value = (0, 1), 0.0
        for one in start.tokens:
            value += after(ids)[one]
            ids += (one,)
        total += float(np.exp(value + after(ids)[VOCABULARY.beginning_with(start.rest)]).sum())
    return float(after((0, 1))[token]) - math.log(total)


class Tokenizer:
    """Knows one text: the prompt, and a token that begins with ``straddle`` bytes of it."""

    def __init__(self, token: int, straddle: int) -> None:
        self.token, self.straddle = token, straddle

    async def joined(self, prompt: str, continuation: str) -> Joined:
        pieces = (Piece(0, b""), Piece(1, b"a"), Piece(self.token, PIECES[self.token]))
        return Joined(pieces, 2, "straddled", self.straddle)


async def scored(token: int, straddle: int, largest_k: int) -> tuple[ContinuationScore, list[int]]:
    asked: list[int] = []

    async def ask(ids: tuple[int, ...], k: int) -> TopLogprobs:
        asked.append(k)
        values = after(ids)
        likeliest = [int(i) for i in np.argsort(-values)[:k]]
        return TopLogprobs(tuple(ListedToken("", float(values[i]), i, PIECES[i]) for i in likeliest), k, "", "ids")

    reach = Reach(largest_k, 0.0, "top_k_ids")
    forcing = TeacherForcing(Tokenizer(token, straddle), ask, reach, by_ids=True)  # type: ignore[arg-type]
    (score,) = await forcing.score("", ["man"])
    return score, asked


@pytest.mark.parametrize(("token", "straddle"), [(2, 1), (10, 1), (12, 2)])
async def test_a_straddling_token_with_one_spelling_is_exact(token: int, straddle: int) -> None:
    # " won" and "~~Man" are so rare that the first list leaves them out: the whole vocabulary is asked for.
    score, asked = await scored(token, straddle, WHOLE)
    assert asked == [FIRST_K, WHOLE]
    assert score.exactness == "exact"
    assert score.logprob == pytest.approx(truth(token, straddle))


@pytest.mark.parametrize(("token", "asks"), [(2, [FIRST_K]), (6, [FIRST_K, WHOLE])])
async def test_a_straddling_token_with_other_spellings_is_bounded(token: int, asks: list[int]) -> None:
    # " woman" after "… wo": the prompt's " wo" may be " " + "wo…" or " w" + "o…" too, which no list here shows.
    score, asked = await scored(token, 3, WHOLE)
    assert asked == asks  # a longer list is only good for a token that the first one leaves out
    assert (score.exactness, score.logprob) == ("bounded", None)
    assert truth(token, 3) < score.high < 0


async def test_a_straddling_token_is_bounded_by_a_partial_list() -> None:
    score, _ = await scored(2, 1, 20)
    assert (score.exactness, score.logprob) == ("bounded", None)
    assert truth(2, 1) <= score.high

"""What repeating some of a run's questions shows about all of its answers.

Two answers of one model to one question agree within its noise. If they do not, another model gave one of them. If
each answer is foreign independently with probability f, a pair disagrees with probability 2 f (1 - f). If the foreign
answers form a block in time, pairs that lie entirely inside it agree: the rate is lowest for a block at the start of
the run (see `foreign_share`), and that case bounds f in general. If the other model answers while the server is busy,
the pairs disagree whose second question waited until nothing else was in flight. The rate bounds nothing if a question
always gets the other model, or if a cache repeats answers: then no pair disagrees.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from audit.results import SelfCheck
from audit.store import COMPARED_WITHIN, AnswerPair
from backends.base import Answer, ContinuationScore, DrawsCompared, Response, ScoreResponse

#: In nats: a score that varies by no more counts as exact.
EXACT_WITHIN = 0.01
#: Share of the repeats that wait until all first questions are answered; the others come at random times.
ASKED_AT_THE_END = 0.25


def self_check(
    model: str,
    pairs: Iterable[AnswerPair],
    noise: tuple[float, float],
    *,
    unanswered: int,
    confidence: float,
    one_of_several: bool = False,
    drawn: DrawsCompared | None = None,
    doubted: float = 0.0,
) -> SelfCheck:
    """The rate at which second answers disagree with the first, and what it implies.

    Parameters
    ----------
    pairs : iterable of AnswerPair
        Questions that were scored twice. Those without a second answer do not count.
    noise : (float, float)
        Nats by which the model's scores are known to vary, and by which two answers may differ at most.
    unanswered : int
        Repeats without an answer.
    confidence : float
        Level of the two-sided interval of the rate: Clopper and Pearson (Biometrika 26, 1934).
    one_of_several : bool
        Whether of some questions one continuation was repeated: then shares are of continuations' scores.
    drawn : DrawsCompared, optional
        What draws after the questions could show.
    doubted : float
        What words that lists leave out may have by an earlier run whose draws left a doubt; 0 without one.
    """
    moves = [move(pair.first, pair.second) for pair in pairs if pair.second is not None]
    agreeing = [moved for moved in moves if moved <= noise[1]]
    disagreed = len(moves) - len(agreeing)
    low, high = proportion_interval(disagreed, len(moves), confidence)
    return SelfCheck(
        model=model,
        asked_again=len(moves),
        unanswered=unanswered,
        disagreed=disagreed,
        rate_low=low,
        rate_high=high,
        foreign_at_most=foreign_share(high, one_of_several=one_of_several),
        one_of_several=one_of_several,
        noise=max([noise[0], *agreeing]),
        largest_move=max(moves, default=0.0),
        agreeing_within=noise[1],
        draws=drawn.draws if drawn else 0,
        drawn_probability=drawn.probability if drawn else None,
        unseen_factor=drawn.unseen_factor if drawn else None,
        left_out_at_most=max(drawn.left_out if drawn else 0.0, doubted),
        left_out_doubted=doubted > 0 or (drawn is not None and drawn.doubted),
    )


def disagreeing(pairs: Iterable[AnswerPair], tolerance: float) -> list[AnswerPair]:
    """The pairs whose answers differ by more than ``tolerance`` nats: one of the two is not the model's."""
    return [pair for pair in pairs if pair.second is not None and move(pair.first, pair.second) > tolerance]


def proportion_interval(count: int, n: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's interval of a proportion; (0, 1) if n is 0."""
    if n == 0:
        return 0.0, 1.0
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return low, high


def foreign_share(rate: float, *, one_of_several: bool = False) -> float:
    """The largest share f of foreign answers that is compatible with this rate of disagreeing pairs.

    If the first share f of a run is foreign, and a question is repeated at a random time in the rest of the run, or
    with probability a = `ASKED_AT_THE_END` after all others are answered, then both answers are foreign with
    probability (1 - a) (f + (1 - f) ln(1 - f)), and a pair disagrees with probability
    a f - (1 - a) (1 - f) ln(1 - f). Answers mixed at random disagree more often, with 2 f (1 - f), and so do those of
    a server that is foreign while it is busy, with 2 (1 - a) f (1 - f) + a f.

    At a rate of a or more the bound is 1: if all first answers are foreign, because the server was busy throughout,
    only the repeats at the end reveal it. A share above one half that is mixed at random is equivalent to one below a
    half with the models exchanged: the canary would then have identified the other model.

    ``one_of_several``: of a question whose continuations were scored by separate requests, one within `COMPARED_WITHIN`
    of the likeliest is repeated. If the other model finds all of them far less likely, its first answers may never be
    chosen. Then a pair disagrees where the second answer is foreign, with probability f mixed at random, and
    (1 - a) f at a server that is foreign while it is busy: less often than in a block, up to f = 1/2.
    """
    if rate >= ASKED_AT_THE_END:
        return 1.0
    if one_of_several:
        return rate / (1 - ASKED_AT_THE_END)
    from scipy.optimize import brentq

    return float(brentq(lambda share: _least_rate(share) - rate, 0.0, 0.5))


def _least_rate(share: float) -> float:
    at_the_end, sooner = ASKED_AT_THE_END, 1 - ASKED_AT_THE_END
    return at_the_end * share - sooner * (1 - share) * math.log1p(-share)


def move(first: Answer, second: Answer | None) -> float:
    """By how many nats two answers to one question provably differ; infinite if they cannot be compared.

    This is the largest difference of a continuation's scores, among those within `COMPARED_WITHIN` of the likeliest. A
    value and an upper bound differ by how far the value exceeds the bound; two bounds by their difference.
    """
    if not isinstance(first, ScoreResponse) or not isinstance(second, ScoreResponse):
        return math.inf
    if len(first.scores) != len(second.scores):
        return math.inf
    least = max(score.high for score in (*first.scores, *second.scores)) - COMPARED_WITHIN
    pairs = zip(first.scores, second.scores, strict=True)
    return max((_move(a, b) for a, b in pairs if max(a.high, b.high) >= least), default=0.0)


def _move(a: ContinuationScore, b: ContinuationScore) -> float:
    if (a.logprob is None) == (b.logprob is None):
        return abs(a.high - b.high) if a.logprob is None or b.logprob is None else abs(a.logprob - b.logprob)
    value, high = (a.logprob, b.high) if a.logprob is not None else (b.logprob, a.high)
    assert value is not None
    return max(0.0, value - high)


# -- consequences for the figures ----------------------------------------------------------------


def within_noise(answer: Response, noise: float, hidden: float = 0.0) -> Response:
    """The answer, with its scores widened to intervals if the model's noise exceeds `EXACT_WITHIN`.

    ``hidden``: the probability by which an unlisted continuation may exceed its bound.
    """
    if not isinstance(answer, ScoreResponse):
        return answer
    if hidden:
        answer = dataclasses.replace(answer, scores=tuple([_raised(score, hidden) for score in answer.scores]))
    if noise <= EXACT_WITHIN:
        return answer
    return dataclasses.replace(answer, scores=tuple([_widened(score, noise) for score in answer.scores]))


def _raised(score: ContinuationScore, hidden: float) -> ContinuationScore:
    if score.exactness != "bounded" or score.logprob is not None:
        return score
    return dataclasses.replace(score, high=math.log(min(math.exp(score.high) + hidden, 1.0)))


def hidden_in_a_question(check: SelfCheck) -> float:
    """How much words that lists leave out may have in most questions, if the draws left a doubt; else 0.

    The mean m over the questions is bounded. So in all but √m of them they have √m at most (Markov's inequality).
    """
    return math.sqrt(check.left_out_at_most) if check.left_out_doubted else 0.0


def untrue_share(check: SelfCheck) -> float:
    """The largest share of the answers that may say nothing: another model's, or those where more is hidden."""
    foreign = check.foreign_at_most if check.disagreed else 0.0
    return 1 - (1 - foreign) * (1 - hidden_in_a_question(check))


def _widened(score: ContinuationScore, noise: float) -> ContinuationScore:
    if score.exactness == "sampled":
        return score
    low = None if score.low is None else score.low - noise
    return dataclasses.replace(score, low=low, high=min(score.high + noise, 0.0), exactness="bounded")

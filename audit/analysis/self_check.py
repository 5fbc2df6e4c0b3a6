"""What a run's own questions, asked a second time, say about all of its answers.

Two answers of one model to one question agree within its noise. Where they do not, another model answered one of
them. Where each answer is foreign with chance f, by itself, a pair disagrees with chance 2 f (1 - f). Where the
answers of one block of time are, those pairs agree that fall into it whole: the rate is least for a block at the
start of the run, see `foreign_share`, and that bounds f either way. Where the other model answers a busy server's
questions, those pairs disagree whose second question waited until nothing else was under way. The rate bounds nothing
where a question gets the other model each time that it is asked, nor where a cache repeats answers: then no pair
disagrees.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from audit.results import SelfCheck
from audit.store import AnswerPair
from backends.base import Answer, ContinuationScore, Response, ScoreResponse
from suites.base import IdentifiedInterval, MeasureSpec, Row

#: Nats. A score that moves by no more counts as exact.
EXACT_WITHIN = 0.01
#: Nats below the likeliest continuation of a question from which on a score says too little to be compared.
COMPARED_WITHIN = 8.0
#: Of the second questions, this share waits until all first ones are answered; the others come at random moments.
ASKED_AT_THE_END = 0.25


def self_check(
    model: str, pairs: Iterable[AnswerPair], noise: tuple[float, float], *, unanswered: int, confidence: float
) -> SelfCheck:
    """The rate at which second answers disagree with the first, and what it leaves possible.

    Parameters
    ----------
    pairs : iterable of AnswerPair
        Questions that were scored twice. Those that await a second answer do not count.
    noise : (float, float)
        Nats by which the model's scores are known to move, and by which two answers may differ at most.
    unanswered : int
        Second questions without an answer.
    confidence : float
        Level of the interval of the rate, two-sided: Clopper and Pearson (Biometrika 26, 1934).
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
        foreign_at_most=foreign_share(high),
        noise=max([noise[0], *agreeing]),
        largest_move=max(moves, default=0.0),
    )


def disagreeing(pairs: Iterable[AnswerPair], tolerance: float) -> list[AnswerPair]:
    """The pairs whose answers are more than ``tolerance`` nats apart: one of the two is not the model's."""
    return [pair for pair in pairs if pair.second is not None and move(pair.first, pair.second) > tolerance]


def proportion_interval(count: int, n: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's interval of a proportion; (0, 1) where nothing was counted."""
    if n == 0:
        return 0.0, 1.0
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return low, high


def foreign_share(rate: float) -> float:
    """The largest share f of foreign answers of which such a rate of disagreeing pairs may come.

    Where the first f of a run is foreign, and a second question is asked at a random moment of the rest of the run, or
    with chance a = `ASKED_AT_THE_END` when all others are answered, both answers are foreign with chance
    (1 - a) (f + (1 - f) ln(1 - f)), and a pair disagrees with chance a f - (1 - a) (1 - f) ln(1 - f). Mixed answers
    disagree more often: 2 f (1 - f), and so do those of a server that is foreign while it is busy:
    2 (1 - a) f (1 - f) + a f.

    1 from a rate of a on: where all first answers are foreign, since the server was busy or until the end, only the
    second questions that wait show it. A share above a half that is mixed at random is the model's own below a half,
    with the names exchanged: the canary would have named the other model.
    """
    if rate >= ASKED_AT_THE_END:
        return 1.0
    from scipy.optimize import brentq

    return float(brentq(lambda share: _least_rate(share) - rate, 0.0, 0.5))


def _least_rate(share: float) -> float:
    at_the_end, sooner = ASKED_AT_THE_END, 1 - ASKED_AT_THE_END
    return at_the_end * share - sooner * (1 - share) * math.log1p(-share)


def move(first: Answer, second: Answer | None) -> float:
    """How far two answers to one question are provably apart, in nats; infinite where they cannot be compared.

    The largest difference of a continuation's scores, of those within `COMPARED_WITHIN` of the likeliest. A value
    and a bound differ by how far the value lies above the bound; two bounds by the difference of the bounds.
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


# -- what is left of the figures -----------------------------------------------------------------


def within_noise(answer: Response, noise: float) -> Response:
    """The answer, its scores no longer exact where the model's own move by more than `EXACT_WITHIN`."""
    if noise <= EXACT_WITHIN or not isinstance(answer, ScoreResponse):
        return answer
    return dataclasses.replace(answer, scores=tuple([_widened(score, noise) for score in answer.scores]))


def _widened(score: ContinuationScore, noise: float) -> ContinuationScore:
    if score.exactness == "sampled":
        return score
    low = None if score.low is None else score.low - noise
    return dataclasses.replace(score, low=low, high=min(score.high + noise, 0.0), exactness="bounded")


def with_foreign_share(rows: Sequence[Row], specs: Iterable[MeasureSpec], share: float) -> list[Row]:
    """The rows, each number bounded by what it may be on average where ``share`` of the answers are foreign.

    Which of the answers are foreign is unknown: each is, with this chance, and then says nothing, so that the number
    may be anywhere in its range (corrupted sampling, Horowitz and Manski, Econometrica 63, 1995). A row from k
    answers is foreign when one of them is. The mean over many rows holds its true value within these bounds.
    """
    ranges = _ranges(rows, specs)
    return [
        dataclasses.replace(
            row, values={name: _mixed(value, ranges[name], row, share) for name, value in row.values.items()}
        )
        for row in rows
    ]


def _ranges(rows: Sequence[Row], specs: Iterable[MeasureSpec]) -> dict[str, tuple[float, float]]:
    """What each quantity can be: by a figure of it, else as far as it goes in these rows."""
    ranges: dict[str, tuple[float, float]] = {}
    for spec in specs:
        if math.isfinite(spec.limits[1] - spec.limits[0]):
            ranges.setdefault(spec.quantity, spec.limits)
        if spec.probability_mass is not None:
            ranges.setdefault(spec.probability_mass, (0.0, 1.0))
    seen: dict[str, tuple[float, float]] = {}
    for row in rows:
        for name, value in row.values.items():
            low, high = seen.get(name, (value.low, value.high))
            seen[name] = min(low, value.low), max(high, value.high)
    return {
        name: (min(low, ranges.get(name, (low,))[0]), max(high, ranges.get(name, (high,))[-1]))
        for name, (low, high) in seen.items()
    }


def _mixed(value: IdentifiedInterval, ends: tuple[float, float], row: Row, share: float) -> IdentifiedInterval:
    least, most = ends
    foreign = 1 - (1 - share) ** len(row.items)
    low, high = value.low - foreign * (value.low - least), value.high + foreign * (most - value.high)
    return IdentifiedInterval(value.value, low, high)

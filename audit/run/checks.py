"""The run's own checks of its answers: whose they are, and whether questions asked twice got the same one.

Two answers of one model to one question agree but for the server's noise: caches, batches and replicas of another
precision move scores a little. That noise widens the scores. Answers that are further apart come from another model or
from a cache, and then no answer of the run counts.
"""

from __future__ import annotations

import asyncio
import datetime
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from audit.analysis.estimators.estimate import t_quantile
from audit.collect import Outcome
from audit.prepare.resolve import ResolvedAudit
from audit.results import IdentityProblem, SelfCheck
from audit.store import COMPARED_WITHIN, AnswerPair, Store
from backends.base import (
    Answer,
    ChecksMade,
    ContinuationScore,
    Response,
    ScoreResponse,
    SupportsIdentityCheck,
    SupportsSecondAnswers,
)
from backends.errors import BackendError, UncheckedError

#: In nats: a score that varies by no more counts as exact.
EXACT_WITHIN = 0.01
#: In nats: servers of one model move a likely word by up to half as much (Gemma behind llama.cpp's: 0.5).
FOREIGN = 1.0


async def verify_identities(resolved: ResolvedAudit, store: Store) -> list[IdentityProblem]:
    """Set aside answers that cannot be attributed to the audited model; the next run asks them again."""
    problems = []
    for described in resolved.backends():
        backend = described.backend
        if not isinstance(backend, SupportsIdentityCheck):
            continue
        try:
            await backend.verify_identity()
        except BackendError as error:
            said = error.message if isinstance(error, UncheckedError) else str(error)
            is_told = isinstance(error, UncheckedError)
            problems.append(IdentityProblem(model=described.name, unchecked=said, is_whole=is_told))
        if (since := backend.unverified_since) is not None:
            keys = await asyncio.to_thread(
                store.answers.quarantine_since, described.fingerprint_id, since, "model changed"
            )
            await asyncio.to_thread(store.second_answers.remove, keys)
            problems.append(
                IdentityProblem(model=described.name, reason=backend.unverified_reason, quarantined=len(keys))
            )
    return problems


def check_answers(
    resolved: ResolvedAudit, store: Store, outcomes: Mapping[str, Sequence[Outcome]], began: datetime.datetime
) -> list[SelfCheck]:
    """Compare the answers to questions that were asked twice. A run that contradicts itself is set aside."""
    checks = []
    for described in resolved.models.values():
        backend = described.backend
        if not isinstance(backend, SupportsSecondAnswers):
            continue
        unanswered = sum(outcome.unanswered_again for outcome in outcomes.get(described.name, ()))
        pairs = store.second_answers.read(described.fingerprint_id)
        check = self_check(described.name, pairs, unanswered, backend.checks_made())
        if isinstance(backend, SupportsIdentityCheck) and backend.unverified_since is not None:
            check = check.model_copy(update={"contradicted": True})
        elif check.contradicted:
            since = min(began.timestamp(), *(pair.at for pair in pairs if move(pair.first, pair.second) > FOREIGN))
            keys = store.answers.quarantine_since(described.fingerprint_id, since, "asked again, it differed")
            store.second_answers.remove([*keys, *(pair.key for pair in pairs)])
        checks.append(check)
    return checks


def self_check(model: str, pairs: Sequence[AnswerPair], unanswered: int, made: ChecksMade) -> SelfCheck:
    """Compare both answers to each question that was asked twice; ``unanswered`` repeats have none.

    ``made``: what the backend checked itself.
    """
    moves = [move(pair.first, pair.second) for pair in pairs]
    agreeing = [moved for moved in moves if moved <= FOREIGN]
    return SelfCheck(
        model=model,
        asked_again=len(moves),
        unanswered=unanswered,
        disagreed=len(moves) - len(agreeing),
        noise=max(mean_move(agreeing), mean_move(made.moves)),
        largest_move=max(moves, default=0.0),
        prompts=made.prompts,
        drawn_questions=made.questions,
        draws=made.draws,
        contradicted=len(moves) > len(agreeing),
    )


def mean_move(moves: Sequence[float]) -> float:
    """How far a score is from the server's usual one, on average: at most so much, at 95 % confidence, in nats.

    The mean distance of two answers is no less than that of one answer from their mean (Jensen). So a mean over many
    questions is true within this, if each score is widened by it. One-sided limit by Student's t, at most the largest.
    """
    if len(moves) < 2:
        return max(moves, default=0.0)
    error = statistics.stdev(moves) / math.sqrt(len(moves))
    return min(max(moves), statistics.fmean(moves) + t_quantile(len(moves) - 1, 0.95) * error)


def move(first: Answer, second: Answer) -> float:
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


def within_noise(answer: Response, noise: float) -> Response:
    """The answer, with its scores widened to intervals if the server's noise exceeds `EXACT_WITHIN`."""
    if not isinstance(answer, ScoreResponse) or noise <= EXACT_WITHIN:
        return answer
    return replace(answer, scores=tuple([_widened(score, noise) for score in answer.scores]))


def _widened(score: ContinuationScore, noise: float) -> ContinuationScore:
    if score.exactness == "sampled":
        return score
    low = None if score.low is None else score.low - noise
    return replace(score, low=low, high=min(score.high + noise, 0.0), exactness="bounded")

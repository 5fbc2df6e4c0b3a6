"""Selects the questions of a job that are asked a second time, and when.

A server may answer some requests with another model: for a while, at random, or only under load. So a random sample of
a run's questions is repeated verbatim at a random later time. Some are held back until nothing else is in flight, which
exposes servers that answer differently when busy. The number of repeats depends only on the number of questions: see
`number_to_repeat`. Where each continuation is scored by a request of its own, which another model may answer, one of a
question's continuations is repeated rather than all.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import random
from collections.abc import Iterable, Sequence

from audit.collect.plan import PlannedRequest, Question
from audit.store import COMPARED_WITHIN, AnswerPair, KeyedRequest, join_answers, split_response
from backends.base import (
    Backend,
    Request,
    Response,
    ScoreRequest,
    ScoreResponse,
    ScoresSeparately,
    SupportsSecondAnswers,
)
from backends.errors import BackendError

#: Share of a model's scored questions that is repeated, or `ENOUGH` questions if that is more, but at most
#: `LARGEST_SHARE`.
SHARE, LARGEST_SHARE = 0.02, 0.25
#: If this many repeats all agree, at most 6.1 % of all answers can be another model's.
ENOUGH = 60
#: Share of the repeats that are held back until nothing else is in flight.
ALONE = 0.25


def number_to_repeat(scored: int) -> int:
    """How many of ``scored`` questions are repeated."""
    return min(max(math.ceil(SHARE * scored), ENOUGH), math.ceil(LARGEST_SHARE * scored))


def part_to_repeat(backend: Backend | SupportsSecondAnswers, request: Request) -> Request:
    """What of a question is asked again: all, or one continuation, here the first, if each takes its own requests."""
    if (
        isinstance(request, ScoreRequest)
        and isinstance(backend, ScoresSeparately)
        and backend.scores_separately(request)
    ):
        return dataclasses.replace(request, continuations=request.continuations[:1])
    return request


class EvenSample:
    """A random sample of ``n`` of ``total`` things that arrive one by one: one from each of n segments of equal length.

    If fewer arrive, for instance because the others are answered already, the same share of them is taken.
    """

    def __init__(self, n: int, total: int, seed: int) -> None:
        self._n, self._total, self._draw = n, total, random.Random(seed)
        self._came = self._segments = self._end = self._taken = 0

    def takes_next(self) -> bool:
        """Whether the next one is taken."""
        if self._n == 0:
            return False
        if self._came == self._end:
            start, self._segments = self._end, self._segments + 1
            self._end = -(-self._segments * self._total // self._n)
            self._taken = self._draw.randrange(start, self._end)
        self._came += 1
        return self._came - 1 == self._taken


class RepeatedQuestions:
    """The questions of one job that are asked twice.

    Parameters
    ----------
    backend : SupportsSecondAnswers
        Says which answers must agree.
    pairs : sequence of AnswerPair
        The model's stored pairs. Complete ones are not asked again.
    seed : int
        The run's seed: a config that is run from the beginning always selects the same questions.
    total, scored : int
        The number of questions of the job, and of those that are scored.
    """

    def __init__(
        self, backend: SupportsSecondAnswers, pairs: Sequence[AnswerPair], seed: int, total: int, scored: int
    ) -> None:
        self._backend, self._total = backend, total
        self._sample = EvenSample(number_to_repeat(scored), scored, seed)
        self._chosen: set[str] = set()
        self._seed = seed
        self._complete = {key for pair in pairs if pair.second is not None for key in pair.keys}
        self._awaited = {pair.keys[0]: pair for pair in pairs if pair.second is None}
        self._draw = random.Random(seed)
        self._numbers = itertools.count()
        self._later: list[tuple[int, int, PlannedRequest]] = []  # heap, ordered by the number of requests sent before
        self._alone: list[PlannedRequest] = []
        self._sent = 0

    def chooses(self, planned: PlannedRequest) -> bool:
        """Whether the question of this request, now answered, should be repeated."""
        keys = planned.part.keys
        is_wanted = keys[0] in self._chosen or any(key in self._awaited for key in keys)
        return is_wanted and self._complete.isdisjoint(keys)

    def add(self, planned: PlannedRequest, first: Response) -> AnswerPair:
        """Schedule a repeat at a random time in the rest of the job. Returns the pair, whose second answer is open."""
        part, first = self._part_to_repeat(planned.part, first)
        self._complete.update(planned.part.keys)
        for key in planned.part.keys:
            self._awaited.pop(key, None)
        again = dataclasses.replace(planned, part=part, first=first)
        if self._draw.random() < ALONE:
            self._alone.append(again)
        else:
            when = self._sent + self._draw.randint(1, max(self._total - self._sent, 1))
            heapq.heappush(self._later, (when, next(self._numbers), again))
        return AnswerPair(part.fingerprint, part.keys, first, None)

    def _part_to_repeat(self, part: KeyedRequest, first: Response) -> tuple[KeyedRequest, Response]:
        """What of this part is asked again, with its first answer.

        Where each continuation takes requests of its own, that is one of those that can be compared, at random.
        """
        awaited = next((self._awaited[key].keys for key in part.keys if key in self._awaited), None)
        keys = awaited or part.keys
        is_one = part_to_repeat(self._backend, part.request) != part.request
        if awaited is None and is_one and isinstance(first, ScoreResponse):
            least = max(score.high for score in first.scores) - COMPARED_WITHIN
            near = [key for key, score in zip(part.keys, first.scores, strict=True) if score.high >= least]
            keys = (random.Random(f"{self._seed} {part.keys[0]}").choice(near),)
        if keys == part.keys or not set(keys) <= set(part.keys):
            return part, first
        left = part.without(set(part.keys) - set(keys))
        answer = join_answers(left.request, left.keys, dict(zip(part.keys, split_response(first), strict=True)))
        assert isinstance(answer, ScoreResponse)
        return left, answer

    def resume(self, questions: Iterable[Question]) -> None:
        """Schedule repeats that an interrupted run left open, for questions whose first answers are stored."""
        for question in questions if self._awaited else ():
            pair = next((self._awaited[key] for key in question.keyed.keys if key in self._awaited), None)
            if pair is not None and self._backend.repeats_itself(question.keyed.request):
                part = question.keyed.without(set(question.keyed.keys) - set(pair.keys))
                if part.keys == pair.keys and not isinstance(pair.first, BackendError):
                    self.add(PlannedRequest(question, part, {}), pair.first)

    def sent(self, planned: PlannedRequest) -> list[PlannedRequest]:
        """Count a question as sent, and decide whether to repeat it. Returns the repeats that are due."""
        self._sent += 1
        if self._backend.repeats_itself(planned.part.request) and self._sample.takes_next():
            self._chosen.add(planned.part.keys[0])
        due = []
        while self._later and self._later[0][0] <= self._sent:
            due.append(heapq.heappop(self._later)[2])
        return due

    def rest(self) -> list[PlannedRequest]:
        """The remaining repeats that may be asked together, once all first questions are answered."""
        left, self._later = [planned for _, _, planned in sorted(self._later)], []
        return left

    def alone(self) -> list[PlannedRequest]:
        """The remaining repeats that must be asked one by one, with nothing else in flight."""
        left, self._alone = self._alone, []
        return left

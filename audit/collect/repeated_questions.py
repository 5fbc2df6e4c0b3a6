"""Selects the questions of a job that are asked a second time, and when.

A server may answer some requests with another model: for a while, or at random. So a random sample of a run's questions
is repeated verbatim at a random later time. Where each continuation takes a request of its own, one of a question's
continuations is repeated rather than all.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from typing import TYPE_CHECKING

from audit.store import COMPARED_WITHIN
from backends.base import Request, Response, ScoreRequest, ScoreResponse, SupportsSecondAnswers
from backends.checking import number_to_repeat

if TYPE_CHECKING:
    from audit.collect.jobs import Ask


def part_to_repeat(backend: SupportsSecondAnswers, request: Request) -> Request:
    """What of a question is asked again: all, or one continuation, here the first, if each takes its own requests."""
    if isinstance(request, ScoreRequest) and backend.scores_separately(request):
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
    seed : int
        The run's seed: a config that is run from the beginning always selects the same questions.
    scored : int
        The number of questions of the job that are scored.
    """

    def __init__(self, backend: SupportsSecondAnswers, seed: int, scored: int) -> None:
        self._backend, self._total = backend, scored
        self._sample = EvenSample(number_to_repeat(scored), scored, seed)
        self._draw = random.Random(seed)
        self._chosen: set[str] = set()
        self._later: list[tuple[int, int, Ask]] = []  # heap, ordered by the number of requests sent before
        self._numbers = itertools.count()
        self._sent = 0

    def sent(self, ask: Ask) -> list[Ask]:
        """Count a question as sent, and decide whether to repeat it. Returns the repeats that are due."""
        self._sent += 1
        if self._backend.repeats_itself(ask.request) and self._sample.takes_next():
            self._chosen.add(ask.keyed.key)
        due = []
        while self._later and self._later[0][0] <= self._sent:
            due.append(heapq.heappop(self._later)[2])
        return due

    def answered(self, ask: Ask, first: Response) -> None:
        """Schedule the repeat of a question, if it is chosen, at a random time in the rest of the job."""
        if ask.keyed.key not in self._chosen:
            return
        self._chosen.discard(ask.keyed.key)
        when = self._sent + self._draw.randint(1, max(self._total - self._sent, 1))
        heapq.heappush(self._later, (when, next(self._numbers), self._again(ask, first)))

    def rest(self) -> list[Ask]:
        """The remaining repeats, once all first questions are answered."""
        left, self._later = [ask for _, _, ask in sorted(self._later, key=lambda one: one[:2])], []
        return left

    def _again(self, ask: Ask, first: Response) -> Ask:
        """What is asked again, with its first answer: of several requests one whose answer matters."""
        request = ask.request
        if (
            not isinstance(request, ScoreRequest)
            or not isinstance(first, ScoreResponse)
            or part_to_repeat(self._backend, request) == request
        ):
            return dataclasses.replace(ask, first=first)
        least = max(score.high for score in first.scores) - COMPARED_WITHIN
        near = [place for place, score in enumerate(first.scores) if score.high >= least]
        place = self._draw.choice(near)
        one = dataclasses.replace(request, continuations=(request.continuations[place],))
        return dataclasses.replace(ask, request=one, first=ScoreResponse((first.scores[place],), first.prompt_tokens))

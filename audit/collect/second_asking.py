"""Which questions of a job are asked a second time, and when.

A server may answer some requests by another model: for a while, now and then, or only under load. So a random part of
a run's own questions is asked again later, at a random moment among the others, in the same words. Some wait until
nothing else is under way: a server that answers differently when it is busy shows it then. How many are asked again
is fixed by how many there are, see `number_asked_again`.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import random
from collections.abc import Iterable, Sequence

from audit.collect.plan import PlannedRequest, Question
from audit.store import AnswerPair
from backends.base import Answer, SupportsSecondAnswers

#: Of a model's scored questions this share is asked again, or `ENOUGH` if that is more, but at most `LARGEST_SHARE`.
SHARE, LARGEST_SHARE = 0.02, 0.25
#: Questions asked again: without a disagreement they leave at most 6.1 % of all answers to another model.
ENOUGH = 60
#: Of the questions asked again, this share waits until nothing else is under way.
ALONE = 0.25


def number_asked_again(scored: int) -> int:
    """How many of so many scored questions are asked again."""
    return min(max(math.ceil(SHARE * scored), ENOUGH), math.ceil(LARGEST_SHARE * scored))


class EvenSample:
    """A random ``n`` of ``total`` that come one by one: one of each of n segments of the same length.

    Where fewer come, as when the others are answered already, the same share of them is taken.
    """

    def __init__(self, n: int, total: int, seed: int) -> None:
        self._n, self._total, self._draw = n, total, random.Random(seed)
        self._came = self._segments = self._end = self._taken = 0

    def takes_next(self) -> bool:
        """Whether the one that comes next is taken."""
        if self._n == 0:
            return False
        if self._came == self._end:
            start, self._segments = self._end, self._segments + 1
            self._end = -(-self._segments * self._total // self._n)
            self._taken = self._draw.randrange(start, self._end)
        self._came += 1
        return self._came - 1 == self._taken


class SecondAsking:
    """The second questions of one job.

    Parameters
    ----------
    backend : SupportsSecondAnswers
        Says which answers must agree.
    pairs : sequence of AnswerPair
        What the store has of this model. Complete pairs are not asked for again.
    seed : int
        The run's: the same questions are chosen by each run of a config from its beginning.
    total, scored : int
        How many questions the job has, and how many of them are scored.
    """

    def __init__(
        self, backend: SupportsSecondAnswers, pairs: Sequence[AnswerPair], seed: int, total: int, scored: int
    ) -> None:
        self._backend, self._total = backend, total
        self._sample = EvenSample(number_asked_again(scored), scored, seed)
        self._chosen: set[str] = set()
        self._complete = {pair.keys[0] for pair in pairs if pair.second is not None}
        self._awaited = {pair.keys[0]: pair for pair in pairs if pair.second is None}
        self._draw = random.Random(seed)
        self._numbers = itertools.count()
        self._later: list[tuple[int, int, PlannedRequest]] = []  # heap: when, among the requests that were sent
        self._alone: list[PlannedRequest] = []
        self._sent = 0

    def chooses(self, planned: PlannedRequest) -> bool:
        """Whether the question of this request, now answered, is to be asked again."""
        key = planned.part.keys[0]
        return key not in self._complete and (key in self._awaited or key in self._chosen)

    def add(self, planned: PlannedRequest, first: Answer) -> AnswerPair:
        """Ask it again at a random moment of the rest of the job. Returns the pair that awaits its second answer."""
        key = planned.part.keys[0]
        self._complete.add(key)
        self._awaited.pop(key, None)
        again = dataclasses.replace(planned, first=first)
        if self._draw.random() < ALONE:
            self._alone.append(again)
        else:
            when = self._sent + self._draw.randint(1, max(self._total - self._sent, 1))
            heapq.heappush(self._later, (when, next(self._numbers), again))
        return AnswerPair(planned.part.fingerprint, planned.part.keys, first, None)

    def resume(self, questions: Iterable[Question]) -> None:
        """Ask again what an interrupted run left, of questions whose first answers are stored."""
        for question in questions if self._awaited else ():
            pair = next((self._awaited[key] for key in question.keyed.keys if key in self._awaited), None)
            if pair is not None and self._backend.repeats_itself(question.keyed.request):
                part = question.keyed.without(set(question.keyed.keys) - set(pair.keys))
                if part.keys == pair.keys:
                    self.add(PlannedRequest(question, part, {}), pair.first)

    def sent(self, planned: PlannedRequest) -> list[PlannedRequest]:
        """Count a first question that is sent, and choose it or not. Returns the second ones whose moment has come."""
        self._sent += 1
        if self._backend.repeats_itself(planned.part.request) and self._sample.takes_next():
            self._chosen.add(planned.part.keys[0])
        due = []
        while self._later and self._later[0][0] <= self._sent:
            due.append(heapq.heappop(self._later)[2])
        return due

    def rest(self) -> list[PlannedRequest]:
        """What is left to be asked together, when all first questions are answered."""
        left, self._later = [planned for _, _, planned in sorted(self._later)], []
        return left

    def alone(self) -> list[PlannedRequest]:
        """What is left to be asked one by one, when nothing else is under way."""
        left, self._alone = self._alone, []
        return left

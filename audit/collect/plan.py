"""Turns questions into the requests that still have to be sent, lazily.

A plan is never held as a whole: questions are generated, looked up in the store and passed on in chunks,
so that a hundred thousand of them take the memory of a few hundred. Stored answers go to the question's sink at once,
new ones when they arrive.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from audit.store import KeyedRequest, Store, join_answers, split_response
from backends.base import Answer
from backends.errors import BackendError
from suites.base import Item

CHUNK = 256


class Sink(Protocol):
    """Takes the answers to questions, in any order."""

    def on_answer(self, question: Question, answer: Answer | None) -> list[Question]:
        """Take an answer, a failure, or None for a question that was never asked.

        A later call for the same question replaces an earlier one. Returns the questions that follow from
        the answer; the owner of the sink is responsible for asking them later.
        """
        ...


class _Discard:
    def on_answer(self, question: Question, answer: Answer | None) -> list[Question]:
        return []


@dataclass(frozen=True, slots=True)
class Question:
    """An item with the keys of its answers for one model.

    Attributes
    ----------
    item : Item
    keyed : KeyedRequest
        Its request with the keys of one model.
    sink : Sink
        Receives the answer.
    place : tuple of int
        The sink's index for it.
    work : int
        Work for a local model, relative to other questions; 0 if it is not needed.
    """

    item: Item
    keyed: KeyedRequest
    sink: Sink = field(default=_Discard())
    place: tuple[int, ...] = ()
    work: int = 0


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """The ``part`` of a question's request that still has to be asked. The other answers are in ``stored``.

    ``first`` is the first answer, if the question is asked a second time to compare the two.
    """

    question: Question
    part: KeyedRequest
    stored: Mapping[str, Answer]
    first: Answer | None = None

    def deliver(self, answer: Answer) -> None:
        """Pass the answer to ``part`` to the question's sink, joined with the answers stored before."""
        keyed = self.question.keyed
        if self.stored and not isinstance(answer, BackendError):
            pieces = dict(zip(self.part.keys, split_response(answer), strict=True))
            joined = join_answers(keyed.request, keyed.keys, {**self.stored, **pieces})
            assert joined is not None
            answer = joined
        self.question.sink.on_answer(self.question, answer)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the plan: ``items`` new questions were looked up; all answers to those in ``cached`` were stored."""

    missing: tuple[PlannedRequest, ...]
    items: int
    cached: tuple[Question, ...]
    cached_work: int
    is_last: bool


class Plan:
    """All questions of one round for one model, looked up chunk by chunk.

    Parameters
    ----------
    fingerprint_id : str
        The model whose answers count.
    questions : callable
        Generates the questions; each call must yield the same ones in the same order.
    total : int or None
        The number of questions, if known; for progress only.
    total_work : int
        The sum of their work.
    """

    def __init__(
        self,
        fingerprint_id: str,
        questions: Callable[[], Iterable[Question]],
        total: int | None = None,
        total_work: int = 0,
    ) -> None:
        self.fingerprint_id, self.total, self.total_work = fingerprint_id, total, total_work
        self._questions = questions
        self._walk: Iterator[Question] = iter(questions())
        self._walking = threading.Lock()  # a look-up runs to its end even if its caller was cancelled
        self._walked = 0

    def next_chunk(self, store: Store, size: int = CHUNK, deferred: Sequence[Question] = ()) -> Chunk:
        """Look up the next ``size`` questions, and the ``deferred`` ones again. Blocks: do not call it on the loop."""
        with self._walking:
            fresh = list(itertools.islice(self._walk, size))
            self._walked += len(fresh)
            missing = look_up([*deferred, *fresh], store)
        left = {id(planned.question) for planned in missing}
        cached = [question for question in (*deferred, *fresh) if id(question) not in left]
        work = sum(question.work for question in cached)
        return Chunk(tuple(missing), len(fresh), tuple(cached), work, len(fresh) < size)

    @property
    def is_left(self) -> bool:
        """Whether some questions were not reached; False if it is not known how many there are."""
        return self.total is not None and self._walked < self.total

    def look_up_rest(self, store: Store) -> None:
        """Look up all questions that were not reached. Blocks."""
        while not self.next_chunk(store).is_last:
            pass

    def restricted_to(self, keys: Collection[str]) -> Plan:
        """The plan from its beginning, restricted to questions with one of these keys."""
        wanted = set(keys)
        return Plan(
            self.fingerprint_id,
            lambda: (question for question in self._questions() if not wanted.isdisjoint(question.keyed.keys)),
        )


def look_up(questions: Sequence[Question], store: Store) -> list[PlannedRequest]:
    """Pass stored answers to the questions' sinks. Returns what these questions still lack.

    Follow-up questions of stored answers are looked up too; unanswered ones stay with their sinks.
    """
    missing: list[PlannedRequest] = []
    batch, is_follow_up = questions, False
    while batch:
        stored = store.answers.read(question.keyed for question in batch)
        follow_ups: list[Question] = []
        for question in batch:
            answer = stored.answer(question.keyed)
            follow_ups += question.sink.on_answer(question, answer)
            if not is_follow_up and (answer is None or isinstance(answer, BackendError)):
                answered = stored.parts(question.keyed)
                missing.append(PlannedRequest(question, question.keyed.without(answered), answered))
        batch, is_follow_up = follow_ups, True
    return missing

"""The one walk of a run: items → key → stored? It gives what is still to be asked, and the answers to the rest.

Nothing is kept between two walks but the store: rows are read from what it holds in the end, in the items' order, so
that an answer that was set aside, or that another audit gave first, counts as it does for the next run.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from audit.analysis.answers import Answered, SuiteAnswers, of_runs, read_answers
from audit.collect.job_run import Ask, Job, RepeatedQuestions
from audit.prepare.resolve import DescribedBackend, ResolvedAudit
from audit.results import NOT_ASKED
from audit.store import Keyed, Partly, Store, Stored, keyed, of_run
from backends.base import Request, Response, ScoreRequest, SupportsSecondAnswers
from suites.base import Item, Suite

CHUNK = 512  # items that are looked up at a time


class Visited(NamedTuple):
    """An item with the key of its answer, the model that answers it, and what is stored."""

    item: Item
    keyed: Keyed
    of: DescribedBackend
    found: Stored | Partly | None


class Walk:
    """Walks through the questions of an audit.

    Parameters
    ----------
    run_id : str
        The run whose own answers are not counted as cached.
    runs : int
        How often each question is asked afresh.
    seed : int
        Selects the questions that are asked a second time.
    """

    def __init__(
        self,
        resolved: ResolvedAudit,
        suites: Mapping[str, Suite],
        store: Store,
        *,
        run_id: str,
        runs: int,
        seed: int,
    ) -> None:
        self._resolved, self._suites, self._store = resolved, suites, store
        self._run_id, self._runs, self._seed = run_id, range(1, runs + 1), seed
        self.failed: dict[bytes, str] = {}  # why, by the key of each question that failed in this run
        self.follows = any(suite.goes_on for suite in suites.values())  # whether answers lead to questions

    def visit(self, model: str, suite: str, looks: range, run: int) -> Iterator[Visited]:
        """The items of these looks in order, each with what follows from its answer behind it."""
        items = self._resolved.asked(suite, looks)
        while chunk := list(itertools.islice(items, CHUNK)):
            yield from self._look_up(model, suite, chunk, run)

    def _look_up(self, model: str, suite: str, items: Sequence[Item], run: int) -> Iterator[Visited]:
        asked = [self._resolved.backend_for(model, suite, item.scorer) for item in items]
        keys = [keyed(of_run(item.request, run), of.fingerprint_id, run) for item, of in zip(items, asked, strict=True)]
        follows = self._suites[suite].goes_on
        for visited in map(Visited, items, keys, asked, self._store.answers.read(keys)):
            yield visited
            if follows and isinstance(visited.found, Stored):
                more = list(self._suites[suite].follow_ups(visited.item, visited.found.answer))
                yield from self._look_up(model, suite, more, run) if more else ()

    def jobs(self, looks: range) -> list[Job]:
        """What is still to be asked of each model, perhaps nothing; without questions that failed before.

        A question whose scores are all stored, but under lists of other continuations, is stored as a whole.
        """
        found: dict[str, _Missing] = {}
        for model, suite, run in self._parts():
            for visited in self.visit(model, suite, looks, run):
                found.setdefault(visited.of.name, _Missing(visited.of, self._run_id)).add(visited, self.failed)
        self._store.answers.join([pair for missing in found.values() for pair in missing.joined])
        return [missing.job(self._seed) for missing in found.values()]

    def read(self, model: str, suite: str, looks: range, seen: Callable[[Response], Response]) -> SuiteAnswers:
        """One model's stored answers to a suite as rows; ``seen`` as in `audit.analysis.answers.read_answers`."""
        visits = (self.visit(model, suite, looks, run) for run in self._runs)
        return of_runs([read_answers(self._suites[suite], self._answered(visit), seen=seen) for visit in visits])

    def _answered(self, visited: Iterable[Visited]) -> Iterator[Answered]:
        for item, question, _, found in visited:
            key = question.prompt + question.part
            yield item, key, found if isinstance(found, Stored) else self.failed.get(key, NOT_ASKED)

    def unanswered(self, looks: range) -> int:
        """How many questions have no answer."""
        visits = (self.visit(model, suite, looks, run) for model, suite, run in self._parts())
        return sum(not isinstance(visited.found, Stored) for visited in itertools.chain.from_iterable(visits))

    def _parts(self) -> Iterator[tuple[str, str, int]]:
        return itertools.product(self._resolved.models, self._suites, self._runs)


class _Missing:
    """What is still to be asked of one model."""

    def __init__(self, of: DescribedBackend, run_id: str) -> None:
        self._of, self._run_id = of, run_id
        self._cached = self._done = 0
        self.asks: dict[bytes, Ask] = {}
        self.joined: list[tuple[Keyed, Partly]] = []

    def add(self, visited: Visited, failed: dict[bytes, str]) -> None:
        question, found = visited.keyed, visited.found
        key = question.prompt + question.part
        if isinstance(found, Stored):
            self._cached += found.run != self._run_id
            self._done += found.run == self._run_id
        elif key in self.asks:
            self.asks[key] = dataclasses.replace(self.asks[key], items=self.asks[key].items + 1)
        elif key not in failed:
            left: Request | None = question.request
            if found is not None and isinstance(question.request, ScoreRequest):
                left = found.left(question.request)
            if left is None:
                self.joined.append((question, found))  # type: ignore[arg-type]
                self._cached += 1
            else:
                self.asks[key] = Ask(question, left, found)

    def job(self, seed: int) -> Job:
        backend, asks = self._of.backend, list(self.asks.values())
        second = None
        if isinstance(backend, SupportsSecondAnswers):
            second = RepeatedQuestions(backend, seed, asks)
        return Job(self._of.name, backend, asks, self._cached, self._done, second)

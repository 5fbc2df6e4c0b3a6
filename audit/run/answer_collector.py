"""Collect answers in rounds: first to the suites' own items, then to the questions that follow from answers.

Each answer is added to the responses of its model and suite as soon as it arrives, so that nothing is read from the
store again for the evaluation.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from audit.analysis.rows.response_blocks import Place
from audit.analysis.rows.responses import ParsedResponses, Responses
from audit.collect import CHUNK, Job, OnEvent, Outcome, Plan, Question, ShutdownRequest, look_up, run_jobs
from audit.collect.executors import Executor
from audit.collect.items import estimate_work
from audit.collect.repeated_questions import RepeatedQuestions
from audit.prepare.resolve import DescribedBackend, ResolvedAudit
from audit.store import Store, keyed_request
from backends.base import Answer, ScoreRequest, SupportsSecondAnswers
from suites.base import Item

#: A stopped run of more questions than this ends without figures: to look up what it did not reach, and to evaluate
#: it all, takes a minute for 100,000 of them, and who stops a run (Slurm, systemd) waits for seconds.
MOST_AFTER_STOP = 50_000


class SuiteQuestions:
    """The questions of one suite to one model, and the answers to them.

    Attributes
    ----------
    responses : Responses
        The answers so far.
    pending : dict of Place to Question
        Questions for a later round: they follow from answers and are themselves unanswered.
    """

    def __init__(self, resolved: ResolvedAudit, model: str, suite: str, responses: Responses) -> None:
        self._resolved, self._model, self._suite = resolved, model, suite
        self.responses = responses
        self.pending: dict[Place, Question] = {}

    def backend_for(self, item: Item) -> DescribedBackend:
        """The backend that answers an item."""
        return self._resolved.backend_for(self._model, self._suite, item.scorer)

    def questions(self, looks: range) -> Iterator[Question]:
        """The first-round questions of these looks."""
        work = self._resolved.items[self._suite].work
        is_local = self._resolved.models[self._model].backend.device is not None
        for index, item in self._resolved.asked(self._suite, looks):
            question = self._question(item, (index,), work[index] if is_local else 0)
            if item.scorer is None:
                yield question
            else:
                self.responses.record(question.place, item, question.keyed.keys, None)
                self.pending[question.place] = question

    def on_answer(self, question: Question, answer: Answer | None) -> list[Question]:
        """As in `audit.collect.plan.Sink`."""
        items = self.responses.record(question.place, question.item, question.keyed.keys, answer)
        if self.responses.is_answered(question.place):
            self.pending.pop(question.place, None)
        follow_ups = [self._question(item, (*question.place, number)) for number, item in enumerate(items)]
        self.pending |= {follow_up.place: follow_up for follow_up in follow_ups}
        return follow_ups

    def retract(self, keys: Collection[str]) -> None:
        """Discard the answers under ``keys`` and the questions that followed from them."""
        retracted = set(self.responses.retract(keys))
        self.pending = {
            place: question
            for place, question in self.pending.items()
            if not any(place[:depth] in retracted for depth in range(1, len(place)))
        }

    def _question(self, item: Item, place: Place, work: int = 0) -> Question:
        keyed = keyed_request(item.request, self.backend_for(item).fingerprint_id)
        return Question(item, keyed, self, place, work)


class AnswerCollector:
    """Asks the questions of an audit, round after round, until no answer raises a further question.

    Parameters
    ----------
    resolved : ResolvedAudit
        The models, scorers and items.
    questions : dict
        The questions by (model, suite).
    seed : int
        Selects the questions that are asked a second time.
    executor : Executor
        Where the models compute.

    Attributes
    ----------
    look : int
        The current look, or the last one.
    is_cut_off : bool
        Whether a shutdown request left so many questions that those it did not reach are not even looked up: there are
        then no figures.
    """

    def __init__(
        self,
        resolved: ResolvedAudit,
        questions: dict[tuple[str, str], SuiteQuestions],
        store: Store,
        seed: int,
        executor: Executor,
    ) -> None:
        self._resolved, self._questions, self._store, self._seed = resolved, questions, store, seed
        self._executor = executor
        self.look = 1
        self.is_cut_off = False

    async def ask(self, look: int, stop: ShutdownRequest, on_event: OnEvent) -> dict[str, list[Outcome]]:
        """Ask all rounds of a look, and return the outcomes by backend name.

        After a shutdown request, answers are only looked up in the store, or not even that (``is_cut_off``). Looks are
        asked in order, from 1.
        """
        outcomes: dict[str, list[Outcome]] = {}
        self.look = look
        jobs = self._first_round()
        while jobs:
            if not stop.requested:
                asked = await run_jobs(jobs, self._store, executor=self._executor, on_event=on_event, stop=stop)
                for name, outcome in asked.items():
                    outcomes.setdefault(name, []).append(outcome)
            if stop.requested and self._are_many_left(jobs):
                self.is_cut_off = True
                break
            await asyncio.to_thread(self._look_up_unasked, jobs)
            jobs = [] if stop.requested else self._next_round()
        return outcomes

    @property
    def unanswered(self) -> int:
        """How many questions have no answer, follow-ups among them."""
        return sum(questions.responses.unanswered for questions in self._questions.values())

    def parsed(self, suite: str) -> dict[str, ParsedResponses]:
        """The answers to one suite so far, by model."""
        return _parsed({model: self._questions[model, suite] for model in self._resolved.models})

    def release(self, suite: str) -> dict[str, ParsedResponses]:
        """The answers to one suite by model, which are dropped here to free memory: call it once per suite."""
        return _parsed({model: self._questions.pop((model, suite)) for model in self._resolved.models})

    def held(self, keys: Collection[str]) -> dict[str, int]:
        """Those of ``keys`` that belong to questions of this audit, with the most answers that such a question has."""
        most: dict[str, int] = {}
        for questions in self._questions.values():
            for key, answers in questions.responses.held(keys).items():
                most[key] = max(most.get(key, 0), answers)
        return most

    def read_again(self, model: str, noise: float) -> None:
        """Read a model's stored answers again, as intervals as wide as its measured noise (nats). Blocks."""
        own = [questions for (name, _), questions in self._questions.items() if name == model]
        for questions in own:
            questions.responses.noise = noise
        self._look_up_unasked([self._job(self._resolved.models[model], own, range(1, self.look + 1), 0)])

    def retract(self, keys: Collection[str]) -> None:
        """Discard answers that turned out not to be the model's."""
        for questions in self._questions.values():
            questions.retract(keys)

    def _first_round(self) -> list[Job]:
        looks = range(self.look, self.look + 1)
        items = self._resolved.items
        work = sum(items[suite].work[place] for suite in items for place in self._resolved.places(suite, looks))
        jobs = []
        for model, described in self._resolved.models.items():
            own = [questions for (name, _), questions in self._questions.items() if name == model]
            jobs.append(self._job(described, own, looks, 0 if described.backend.device is None else work))
        return jobs

    def _job(self, described: DescribedBackend, own: list[SuiteQuestions], looks: range, work: int) -> Job:
        def questions() -> Iterator[Question]:
            return itertools.chain.from_iterable(suite.questions(looks) for suite in own)

        scored = bytes(
            items.scored[place]
            for suite, items in self._resolved.items.items()
            for place in self._resolved.places(suite, looks)
        )
        plan = Plan(described.fingerprint_id, questions, len(scored), work)
        return Job(described.name, described.backend, plan, self.retract, self._repeated_questions(described, scored))

    def _repeated_questions(self, described: DescribedBackend, scored: Sequence[int]) -> RepeatedQuestions | None:
        """``scored``: for each question of the job, whether its continuations are scored."""
        backend = described.backend
        if not isinstance(backend, SupportsSecondAnswers):
            return None
        return RepeatedQuestions(backend, self._seed, sum(scored))

    def _are_many_left(self, jobs: Sequence[Job]) -> bool:
        """Whether some of so many questions were not reached that looking up the others takes too long."""
        most = sum(map(len, self._resolved.items.values())) * len(self._resolved.models)
        return most > MOST_AFTER_STOP and any(job.plan.is_left for job in jobs)

    def _look_up_unasked(self, jobs: Sequence[Job]) -> None:
        """Look up stored answers to questions that a stopped job did not reach, and to those of the next round."""
        for job in jobs:
            job.plan.look_up_rest(self._store)
        for questions in self._questions.values():
            pending = list(questions.pending.values())
            for start in range(0, len(pending), CHUNK):
                look_up(pending[start : start + CHUNK], self._store)

    def _next_round(self) -> list[Job]:
        waiting: dict[str, list[Question]] = {}
        backends: dict[str, DescribedBackend] = {}
        for questions in self._questions.values():
            pending, questions.pending = questions.pending, {}
            for question in pending.values():
                described = questions.backend_for(question.item)
                backends[described.name] = described
                waiting.setdefault(described.name, []).append(question)
        jobs = []
        for name, asked in waiting.items():
            described, work = backends[name], 0
            if described.backend.device is not None:
                works = list(estimate_work(question.item.request for question in asked))
                asked = [dataclasses.replace(question, work=w) for question, w in zip(asked, works, strict=True)]
                work = sum(works)
            plan = Plan(described.fingerprint_id, asked.__iter__, len(asked), work)
            second = self._repeated_questions(described, [isinstance(q.item.request, ScoreRequest) for q in asked])
            jobs.append(Job(name, described.backend, plan, self.retract, second))
        return jobs


def _parsed(questions: Mapping[str, SuiteQuestions]) -> dict[str, ParsedResponses]:
    """The answers so far by model. Models that were asked the same items share one index of them."""
    found: dict[str, ParsedResponses] = {}
    for model, own in questions.items():
        found[model] = own.responses.parsed(next(iter(found.values()), None))
    return found

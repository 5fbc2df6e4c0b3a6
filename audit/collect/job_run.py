"""One job in progress: its plan is split into batches, and each batch is asked until it is answered or given up."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import tenacity

from audit.collect.executors import Pool
from audit.collect.jobs import Job, OnEvent, Outcome, Progress, RetryPolicy
from audit.collect.plan import CHUNK, Chunk, Plan, PlannedRequest
from audit.collect.rate_limiter import CircuitBreaker, Limiter, usable_wait
from audit.collect.shutdown import ShutdownRequest
from audit.collect.worker_times import WorkerTimes
from audit.logs import logger
from audit.store import AnswerPair, Entry, KeyedRequest, Store, StoreError, answer_keys, matches_request
from backends.base import (
    Answer,
    Backend,
    ClassifyResponse,
    GenerateResponse,
    OnResponse,
    SupportsIdentityCheck,
    SupportsPrices,
    SupportsStopping,
)
from backends.errors import LONGEST_ASKED_PAUSE, BackendError, StoppedError

log = logger("scheduler")

PROGRESS_SECONDS = 0.1
_ACTORS_SECONDS = 1.0
FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 2.0  # between look-ups of questions that other audits are asking
MAX_AMBIGUOUS_PASSES = 3  # answers still ambiguous after this many passes stay missing until the next run

_Batches = asyncio.Queue[list[PlannedRequest] | None]


class JobRun:
    """One job in progress."""

    def __init__(
        self,
        job: Job,
        pool: Pool,
        store: Store,
        stop: ShutdownRequest,
        on_event: OnEvent,
        retry: RetryPolicy,
        limiter: Limiter,
    ) -> None:
        self.job, self.pool, self.store, self.limiter = job, pool, store, limiter
        self.outcome = Outcome(job.name)
        self._stop, self._on_event, self._retry = stop, on_event, retry
        self._backoff = tenacity.wait_exponential_jitter(
            multiplier=retry.first_wait, max=retry.longest_wait, jitter=retry.first_wait
        )
        self._breaker = CircuitBreaker()
        self._idle: set[asyncio.Task[Any]] = set()  # tasks that have nothing in flight
        self._failed: dict[str, BackendError] = {}  # by key, of this run
        self._leased: dict[tuple[str, ...], KeyedRequest] = {}  # what this job holds a lease on, by its keys
        self._all_planned = False
        self._ended = False
        self._refusing_since = math.inf  # when the endpoint began to return nothing but 429
        self._reported = -math.inf
        self._work_asked = 0
        self._work_left = job.plan.total_work
        # A local model computes the next batch while the last one is being stored.
        self._n_workers = pool.max_in_flight + (0 if job.backend.device is None else 1)
        self._times = WorkerTimes(pool.max_in_flight)

    @property
    def halted(self) -> bool:
        """Whether no new requests are sent."""
        return self.outcome.stopped is not None

    @property
    def ends_by_itself(self) -> bool:
        """Whether what is in flight at a stop ends after one step: a local model in this process."""
        backend = self.job.backend
        return backend.device is not None and isinstance(backend, SupportsStopping) and self.pool.actors() is None

    def halt(self, reason: str) -> None:
        """Send no new requests. Those in flight continue; a local model ends after the step that it computes.

        A job that has ended stays what it is.
        """
        if not self.halted and not self._ended:
            self.outcome.stopped = reason
            self.pool.stop_computing()
            log.warning("halted", model=self.job.name, reason=reason)
            for task in self._idle:
                task.cancel()

    async def run(self) -> None:
        """Ask until nothing is missing, or the job is halted."""
        if self.halted:
            return
        started, watching = time.monotonic(), asyncio.create_task(self._watch_actors())
        try:
            await self._passes()
        except asyncio.CancelledError:
            if not self.halted:
                raise
        finally:
            watching.cancel()
            with contextlib.suppress(StoreError):  # the store's first failure is reported anyway
                self._quarantine_ambiguous()  # also after a stop: this is the last chance
            out = self.outcome
            if out.stopped is not None and self._all_planned and out.answered + out.failed + out.cached == out.items:
                out.stopped = None  # the stop came when nothing was left to ask
            self._ended = True
            out.notes = dict(self.pool.notes_of_run())
            out.seconds = time.monotonic() - started
            log.info("ended", **{name: getattr(out, name) for name in Outcome.__slots__})
            self._report(now=True)
            if self._leased:  # halted: another audit may be waiting for these questions, and can ask them now
                with contextlib.suppress(StoreError):
                    await self.store.leases.release(self._leased.values())

    async def _passes(self) -> None:
        """Work through the plan, and then again for questions whose answers may belong to another request."""
        await self._walk(self.job.plan)
        out = self.outcome
        for _ in range(MAX_AMBIGUOUS_PASSES):
            keys = await asyncio.to_thread(self._quarantine_ambiguous)
            if not keys or self.halted:
                return
            items, cached = out.items, out.cached
            await self._walk(self.job.plan.restricted_to(keys))
            out.items, out.cached = items, cached if self.halted else items - out.answered - out.failed

    def _quarantine_ambiguous(self) -> list[str]:
        """Quarantine answers that may belong to another request, so that they are asked again. Returns their keys."""
        backend, quarantined = self.job.backend, []
        for request in backend.drain_ambiguous() if isinstance(backend, SupportsIdentityCheck) else ():
            keys = answer_keys(request, self.job.plan.fingerprint_id)
            if found := self.store.answers.quarantine(keys, "perhaps another question's answer"):
                self.outcome.answered -= 1
                quarantined += found
                self.store.second_answers.remove(found)
        if quarantined:
            self.job.on_retract(quarantined)
        return quarantined

    async def _walk(self, plan: Plan) -> None:
        batches: _Batches = asyncio.Queue(2 * self._n_workers)
        producer = asyncio.create_task(self._produce(plan, batches))
        workers = [asyncio.create_task(self._work(batches)) for _ in range(self._n_workers)]
        tasks: list[asyncio.Task[Any]] = [producer, *workers]
        try:
            await asyncio.gather(*tasks)
        except Exception as error:
            self.halt(f"{type(error).__name__}: {error}")
            await asyncio.wait(tasks, timeout=self._stop.grace)  # requests in flight may still be stored
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- from the plan to batches ----------------------------------------------------------

    async def _produce(self, plan: Plan, batches: _Batches) -> None:
        """Fill the queue until each question of the plan is answered, sent or has failed."""
        size = self.job.backend.batch_size
        deferred: list[PlannedRequest] = []  # another audit is asking these
        batch: list[PlannedRequest] = []
        wait = FIRST_POLL_SECONDS
        try:
            while True:
                with self._interruptible():
                    questions = [planned.question for planned in deferred]
                    chunk = await asyncio.to_thread(plan.next_chunk, self.store, max(CHUNK, size), questions)
                self._count(chunk)
                granted, deferred = await self._lease(chunk.missing)
                self._report()
                for planned in granted:
                    for request in (planned, *(self.job.second.sent(planned) if self.job.second else ())):
                        batch.append(request)
                        if len(batch) == size:
                            with self._interruptible():
                                await batches.put(batch)
                            batch = []
                if not chunk.is_last:
                    continue
                with self._interruptible():
                    if batch:
                        await batches.put(batch)
                        batch = []
                    self._all_planned = not deferred
                    if not deferred:
                        self._times.no_more_questions()
                        break
                    await batches.join()  # this job itself may be asking them
                    if not granted:
                        self._report("waiting for another audit that asks the same questions", now=True)
                        await asyncio.sleep(wait)
                        wait = min(2 * wait, LONGEST_POLL_SECONDS)
            await self._ask_rest_again(batches, size)
            with self._interruptible():
                for _ in range(self._n_workers):
                    await batches.put(None)
        except asyncio.CancelledError:
            if not self.halted:
                raise

    async def _ask_rest_again(self, batches: _Batches, size: int) -> None:
        """Once all first answers are there, repeat the remaining questions."""
        second = self.job.second
        if second is None:
            return
        with self._interruptible():
            await batches.join()
            together = second.rest()
            for start in range(0, len(together), size):
                await batches.put(together[start : start + size])

    def _count(self, chunk: Chunk) -> None:
        self.outcome.items += chunk.items
        self.outcome.cached += len(chunk.cached)
        self._work_left -= chunk.cached_work

    async def _lease(self, missing: Sequence[PlannedRequest]) -> tuple[list[PlannedRequest], list[PlannedRequest]]:
        """Requests to ask now, and those that another audit is asking. Those that failed in this run are in neither."""
        wanted = []
        for planned in missing:
            if (error := self._failed.get(planned.part.keys[0])) is not None:
                self._fail(planned, error)
            else:
                wanted.append(planned)
        if not wanted:
            return [], []
        # `halt` must not cancel this: granted leases would be unknown, and could not be released.
        is_free = await self.store.leases.take([planned.part for planned in wanted])
        granted = [planned for planned, free in zip(wanted, is_free, strict=True) if free]
        self._leased.update((planned.part.keys, planned.part) for planned in granted)
        return granted, [planned for planned, free in zip(wanted, is_free, strict=True) if not free]

    # -- asking ----------------------------------------------------------------------------

    async def _work(self, batches: _Batches) -> None:
        try:
            while not self.halted:
                with self._interruptible(), self._times.spent("questions"):
                    batch = await batches.get()
                if batch is None:
                    return
                try:
                    await self._ask(batch)
                finally:
                    batches.task_done()
        except asyncio.CancelledError:
            if not self.halted:
                raise

    async def _ask(self, batch: list[PlannedRequest]) -> None:
        """Ask a batch, retrying temporary failures, until each request is answered or has failed for good."""
        pending = batch
        counted = 0  # attempts that ended in something other than 429

        async def attempt() -> list[BackendError]:
            nonlocal pending, counted
            ended = await self._attempt(pending, again=pending is not batch)
            left = [(planned, answer) for planned, answer in ended if _may_retry(answer)]
            errors = [answer for _, answer in left if isinstance(answer, BackendError)]
            counted += any(error.kind != "rate_limited" for error in errors)
            if errors and self._is_given_up(counted):
                left, errors = [], []
            later = {id(planned) for planned, _ in left}
            with self._times.spent("store"):
                await self._keep([(planned, answer) for planned, answer in ended if id(planned) not in later])
            pending = [planned for planned, _ in left]
            return errors

        def wait(state: tenacity.RetryCallState) -> float:
            self.outcome.retried += len(pending)
            errors: list[BackendError] = state.outcome.result() if state.outcome else []
            for error in errors:
                log.info("asking again", model=self.job.name, attempt=state.attempt_number, error=str(error))
            # If the server asks for a wait, or refused for its rate, the limiter delays all requests: no backoff here.
            paced = all(error.kind == "rate_limited" or usable_wait(error) is not None for error in errors)
            return 0.0 if paced else self._backoff(state)

        await tenacity.AsyncRetrying(
            retry=tenacity.retry_if_result(bool), wait=wait, stop=tenacity.stop_never, sleep=self._sleep
        )(attempt)

    async def _attempt(self, pending: Sequence[PlannedRequest], again: bool) -> list[tuple[PlannedRequest, Answer]]:
        """Call the backend once; its own time limit starts after the limiter's wait.

        Answers that it reports early are stored at once. Returns those not stored yet, without requests that a stop
        came before.
        """
        with self._interruptible(), self._times.spent("rate"):
            ticket = await self.limiter.enter(again)
        verdict: BackendError | None = _UNFINISHED
        early: dict[int, asyncio.Task[None]] = {}

        def on_response(place: int, answer: Answer) -> None:
            if matches_request(pending[place].part.request, answer) and not isinstance(answer, BackendError):
                early[place] = asyncio.create_task(self._keep([(pending[place], _as_stored(answer))]))

        try:
            with self._times.spent("model"):
                answers = await _answers(self.pool, self.job.backend, pending, on_response)
            verdict = _for_limiter(answers)
        finally:
            self.limiter.leave(ticket, verdict)
            await asyncio.gather(*early.values(), return_exceptions=True)
        for task in early.values():
            task.result()  # re-raises the store's errors
        if any(not isinstance(answer, BackendError) or answer.kind != "rate_limited" for answer in answers):
            self._refusing_since = math.inf
        else:
            self._refusing_since = min(self._refusing_since, time.monotonic())
        return [
            (planned, answer)
            for place, (planned, answer) in enumerate(zip(pending, answers, strict=True))
            if place not in early and not isinstance(answer, StoppedError)
        ]

    def _is_given_up(self, attempts: int) -> bool:
        return attempts >= self._retry.attempts or time.monotonic() - self._refusing_since > self._retry.max_wait

    async def _sleep(self, seconds: float) -> None:
        with self._interruptible():
            await asyncio.sleep(seconds)

    async def _keep(self, ended: Sequence[tuple[PlannedRequest, Answer]]) -> None:
        """Store finished requests, then deliver and count them. The breaker is checked before the slow write."""
        if not ended:
            return
        for _, answer in ended:
            if reason := self._breaker.update(answer if isinstance(answer, BackendError) else None):
                self.halt(reason)
        second = [(planned, answer) for planned, answer in ended if planned.first is not None]
        await self._keep_second(second)
        ended = [(planned, answer) for planned, answer in ended if planned.first is None]
        ended = await self._store_answers(ended)
        out = self.outcome
        for planned, answer in ended:
            self._work_asked += planned.question.work
            if isinstance(answer, BackendError):
                self._failed.update(dict.fromkeys(planned.part.keys, answer))
                log.warning("failed", model=self.job.name, item=planned.question.item.id, error=str(answer))
                self._fail(planned, answer)
                continue
            self._work_left -= planned.question.work
            out.answered += 1
            if not isinstance(answer, ClassifyResponse):
                out.prompt_tokens += answer.prompt_tokens
            if isinstance(answer, GenerateResponse):
                out.completion_tokens += answer.completion_tokens
            planned.deliver(answer)
            if self.job.second is not None:
                self.job.second.answered(planned, answer)
        self._report()

    async def _store_answers(
        self, ended: Sequence[tuple[PlannedRequest, Answer]]
    ) -> list[tuple[PlannedRequest, Answer]]:
        """Store answers, and return those that count: another audit's, where a lease ran out and it was first."""
        counts = await self.store.answers.write([Entry(planned.part, answer) for planned, answer in ended])
        for planned, _ in ended:
            self._leased.pop(planned.part.keys, None)
        later = [planned.part for (planned, _), is_first in zip(ended, counts, strict=True) if not is_first]
        if not later:
            return list(ended)
        first = await asyncio.to_thread(self.store.answers.read, later)
        return [
            (planned, answer if is_first else first.answer(planned.part) or answer)
            for (planned, answer), is_first in zip(ended, counts, strict=True)
        ]

    async def _keep_second(self, ended: Sequence[tuple[PlannedRequest, Answer]]) -> None:
        """Store second answers beside the first ones. Those that failed are counted."""
        for planned, answer in ended:
            assert planned.first is not None
            if isinstance(answer, BackendError):
                log.warning("no second answer", model=self.job.name, error=str(answer))
                self.outcome.unanswered_again += 1
                continue
            part = planned.part
            await self.store.second_answers.write(AnswerPair(part.fingerprint, part.keys, planned.first, answer))
            self.outcome.asked_again += 1
            if not isinstance(answer, ClassifyResponse):
                self.outcome.prompt_tokens += answer.prompt_tokens

    def _fail(self, planned: PlannedRequest, error: BackendError) -> None:
        """Count a question that failed, or whose identical twin did."""
        self._work_left -= planned.question.work
        self.outcome.failed += 1
        self.outcome.failures[error.kind] += 1
        self.outcome.reasons.setdefault(error.kind, str(error))
        self.outcome.for_good += not error.retryable
        if error.unloaded and self.outcome.unloaded is None:
            self.outcome.unloaded = ". ".join(filter(None, (error.message, error.hint)))
        planned.deliver(error)

    # -- waiting and reporting -------------------------------------------------------------

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Mark a wait during which this task has nothing in flight, so that `halt` may cancel it."""
        if self.halted:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self._idle.add(task)
        try:
            yield
        finally:
            self._idle.discard(task)

    async def _watch_actors(self) -> None:
        """Report how many actors are ready until one answers: they load their models, and nothing else changes."""
        while self.pool.actors() is not None and not self.outcome.answered:
            self._report()
            await asyncio.sleep(_ACTORS_SECONDS)

    def _report(self, note: str = "", now: bool = False) -> None:
        if now or time.monotonic() - self._reported >= PROGRESS_SECONDS:
            self._reported = time.monotonic()
            out = self.outcome
            note = note or ("it could not be loaded" if out.unloaded else "")
            done = out.cached + out.answered + out.failed
            work = self._work_asked, max(self._work_left, 0)
            backend = self.job.backend
            cost = backend.spent() if isinstance(backend, SupportsPrices) else None
            counts = out.cached, out.retried, out.failed
            actors, limit = self.pool.actors(), self._times.limit()
            self._on_event(
                Progress(self.job.name, done, self.job.plan.total, *counts, note, *work, cost, actors, limit)
            )


_UNFINISHED = BackendError("internal", "the call did not end")


async def _answers(
    pool: Pool, backend: Backend, pending: Sequence[PlannedRequest], on_response: OnResponse
) -> list[Answer]:
    """The pool's answers, made complete: one answer of the right type for each request."""
    try:
        batch = [planned.part.request for planned in pending]
        answers = await pool.run(batch, on_response)
    except Exception as error:
        # A backend with an endpoint has a key, which the text of an unknown exception may contain.
        text = f": {error}" if backend.endpoint is None else ""
        failed = BackendError("internal", f"{type(backend).__name__}.run raised {type(error).__name__}{text}")
        return [failed] * len(pending)
    if len(answers) != len(pending):
        wrong = BackendError("malformed", f"requests: {len(pending)}, answers: {len(answers)}")
        return [wrong] * len(pending)
    return [
        _as_stored(answer)
        if matches_request(request, answer)
        else BackendError("malformed", f"{type(answer).__name__} does not match its request")
        for request, answer in zip(batch, answers, strict=True)
    ]


def _as_stored(answer: Answer) -> Answer:
    """An answer as the store would return it: labels in alphabetical order."""
    return ClassifyResponse(dict(sorted(answer.labels.items()))) if isinstance(answer, ClassifyResponse) else answer


def _may_retry(answer: Answer) -> bool:
    """Whether asking again may help, after a wait that is acceptable."""
    if not isinstance(answer, BackendError) or not answer.retryable:
        return False
    return answer.retry_after is None or not answer.retry_after > LONGEST_ASKED_PAUSE


def _for_limiter(answers: Sequence[Answer]) -> BackendError | None:
    """What a call says about the endpoint: a 429 takes precedence over other errors; None if all is well."""
    errors = [answer for answer in answers if isinstance(answer, BackendError)]
    return next((error for error in errors if error.kind == "rate_limited"), errors[0] if errors else None)

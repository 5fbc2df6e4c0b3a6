"""The only part that asks models: side by side, each at its own pace, every answer stored as it comes.

Servers are asked side by side, each endpoint through one `Limiter`. Models that share a device
take turns: one is run to its end and closed before the next one starts.

A request is leased in the store, asked, retried by tenacity while that may help, and its answer is
on the disk before its place is given to the next request. So at any moment no more than
``max_in_flight`` requests are paid and not yet kept (for a local model, which costs nothing, one
batch more: it computes while the last one is being stored).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tenacity

from audit.collect.plan import CHUNK, Plan, PlannedRequest
from audit.collect.rate_limiter import CircuitBreaker, Limiter, usable_wait
from audit.collect.shutdown import ShutdownRequest
from audit.logs import logger
from audit.store import Entry, Store, StoreError, answer_keys, matches_request
from backends.base import (
    Answer,
    Backend,
    ClassifyResponse,
    GenerateResponse,
    OnResponse,
    SupportsIdentityCheck,
    SupportsStreaming,
)
from backends.errors import LONGEST_ASKED_PAUSE, BackendError

log = logger("scheduler")

RENEW_SECONDS = 10.0
PROGRESS_SECONDS = 0.1
MIXED_UP_PASSES = 3  # what is still mixed up after these is set aside, and missing until the next run


@dataclass(frozen=True, slots=True)
class Job:
    """One model and what is to be asked of it."""

    name: str
    backend: Backend
    plan: Plan


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently a request is asked again. Times are in seconds.

    ``attempts`` counts the first one. 429 is not counted: the limiter paces it, and it is given up
    only when the endpoint has said nothing else for ``patience``. A wait that the server asks for
    replaces ours.
    """

    attempts: int = 6
    first_wait: float = 0.5
    longest_wait: float = 30.0
    patience: float = 300.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is.

    ``total`` is None where it is not known; ``note`` says what it waits for. ``work_asked`` of
    this run, and ``work_left``, are both 0 where all items are alike.
    """

    job: str
    done: int
    total: int | None
    cached: int
    retried: int
    failed: int
    note: str = ""
    work_asked: int = 0
    work_left: int = 0


@dataclass(slots=True)
class Outcome:
    """What came of a job, in items; ``retried`` counts attempts after the first.

    ``stopped`` says why not all was asked, None if all was.
    """

    name: str
    items: int = 0
    cached: int = 0
    answered: int = 0
    failed: int = 0
    retried: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None


OnEvent = Callable[[Progress], None]


async def run_jobs(
    jobs: Sequence[Job],
    store: Store,
    *,
    stop: ShutdownRequest,
    on_event: OnEvent = lambda _: None,
    retry: RetryPolicy = RetryPolicy(),
) -> dict[str, Outcome]:
    """Ask everything that the plans miss, and store it.

    Returns
    -------
    dict
        An outcome for each job, by name. A failed request is no exception: it is stored, counted,
        and asked again by the next run.

    Raises
    ------
    StoreError
        The store takes no more (disk full…). No new request was sent from then on.
    """
    limiters: dict[str, Limiter] = {}
    runs = [_JobRun(job, store, stop, on_event, retry, _limiter(job, jobs, limiters)) for job in jobs]
    by_device: dict[str, list[_JobRun]] = {}
    turns: list[list[_JobRun]] = []
    for run in runs:
        device = run.job.backend.device
        if device is None:
            turns.append([run])
        elif device in by_device:
            by_device[device].append(run)
        else:
            turns.append(by_device.setdefault(device, [run]))

    def halt_all(reason: str) -> None:
        for run in runs:
            run.halt(reason)

    tasks = [asyncio.create_task(_take_turns(turn)) for turn in turns]
    helpers = [asyncio.create_task(_renew(store)), asyncio.create_task(_watch(stop, halt_all))]
    try:
        failure = await _finish(tasks, halt_all, stop)
    finally:
        for task in (*tasks, *helpers):
            task.cancel()
        await asyncio.gather(*tasks, *helpers, return_exceptions=True)
        with contextlib.suppress(StoreError):
            await store.leases.release_all()
    if failure is not None:
        raise failure
    return {run.job.name: run.outcome for run in runs}


def _limiter(job: Job, jobs: Sequence[Job], limiters: dict[str, Limiter]) -> Limiter:
    """The limiter of a job's endpoint, shared with the others there. A local model is not limited."""
    backend = job.backend
    if backend.device is not None:
        return Limiter(backend.max_in_flight, start=backend.max_in_flight)
    if backend.endpoint is None:
        return Limiter(backend.max_in_flight)
    sharing = [j.backend.max_in_flight for j in jobs if j.backend.endpoint == backend.endpoint]
    return limiters.setdefault(backend.endpoint, Limiter(max(sharing)))


async def _take_turns(runs: Sequence[_JobRun]) -> None:
    for run in runs:
        await run.run()
        if run.job.backend.device is not None:
            await run.job.backend.close()


async def _finish(
    tasks: Sequence[asyncio.Task[None]], halt_all: Callable[[str], None], stop: ShutdownRequest
) -> BaseException | None:
    """Wait for all. After a stop, or the first failure, what is in flight has the grace to end."""
    failure: BaseException | None = None
    pending = set(tasks)
    stopping = asyncio.create_task(stop.wait())
    deadline: float | None = None
    try:
        while pending:
            if deadline is None and (stop.requested or failure is not None):
                deadline = time.monotonic() + stop.grace
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            watched = pending if stopping.done() else pending | {stopping}
            done, _ = await asyncio.wait(watched, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in done - {stopping}:
                pending.discard(task)
                if (error := task.exception()) is not None and failure is None:
                    failure = error
                    halt_all(str(error))
    finally:
        stopping.cancel()
    return failure


async def _renew(store: Store) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        with contextlib.suppress(StoreError):  # the next answer finds it too, and stops the run
            await store.leases.renew()


async def _watch(stop: ShutdownRequest, halt_all: Callable[[str], None]) -> None:
    await stop.wait()
    halt_all("interrupted")


class _JobRun:
    """One job under way."""

    def __init__(
        self, job: Job, store: Store, stop: ShutdownRequest, on_event: OnEvent, retry: RetryPolicy, limiter: Limiter
    ) -> None:
        self.job, self.store, self.limiter = job, store, limiter
        self.outcome = Outcome(job.name)
        self._stop, self._on_event, self._retry = stop, on_event, retry
        self._backoff = tenacity.wait_exponential_jitter(
            multiplier=retry.first_wait, max=retry.longest_wait, jitter=retry.first_wait
        )
        self._breaker = CircuitBreaker()
        self._idle: set[asyncio.Task[Any]] = set()  # tasks that have nothing in flight
        self._failed: dict[str, str] = {}  # key → kind, of this run
        self._leased: set[str] = set()  # keys that this job alone may ask just now
        self._deferred = 0
        self._all_planned = False
        self._refusing_since = math.inf  # since when it says nothing but 429
        self._reported = -math.inf
        self._work_asked = 0
        self._work_left = sum(job.plan.work)
        # A local model computes the next batch while the last one is being stored.
        self._workers = job.backend.max_in_flight + (0 if job.backend.device is None else 1)

    @property
    def halted(self) -> bool:
        """Whether nothing new is sent."""
        return self.outcome.stopped is not None

    def halt(self, reason: str) -> None:
        """Send nothing new. What is in flight goes on."""
        if not self.halted:
            self.outcome.stopped = reason
            log.warning("halted", model=self.job.name, reason=reason)
            for task in self._idle:
                task.cancel()

    async def run(self) -> None:
        """Ask until nothing is missing, or halted."""
        if self.halted:
            return
        started = time.monotonic()
        try:
            await self._passes()
        except asyncio.CancelledError:
            if not self.halted:
                raise
        finally:
            with contextlib.suppress(StoreError):  # a store that takes no more is told by what it failed at first
                self._quarantine_ambiguous()  # also after a stop: nobody looks again
            out = self.outcome
            if out.stopped is not None and self._all_planned and out.answered + out.failed + out.cached == out.items:
                out.stopped = None  # it was asked to stop when nothing was left
            out.seconds = time.monotonic() - started
            log.info("ended", **{name: getattr(out, name) for name in Outcome.__slots__})
            self._report(now=True)
            if self._leased:  # halted: another job of the same identity waits for these, and may ask them itself
                with contextlib.suppress(StoreError):
                    await self.store.leases.release(self._leased)

    async def _passes(self) -> None:
        """Walk through the plan; again only for what someone else was asking meanwhile."""
        await self._one_pass(first=True)
        wait = 0.05
        while self._deferred and not self.halted:
            self._report("waiting for answers that are being asked for already", now=True)
            with self._interruptible():
                await asyncio.sleep(wait)
            wait = min(2 * wait, 2.0)
            await self._one_pass(first=False)
        for _ in range(MIXED_UP_PASSES):
            if not await asyncio.to_thread(self._quarantine_ambiguous) or self.halted:
                return
            await self._one_pass(first=False)

    def _quarantine_ambiguous(self) -> int:
        """Set aside answers that may be another question's, so that a pass asks them again. Returns how many."""
        count = 0
        backend = self.job.backend
        for request in backend.drain_ambiguous() if isinstance(backend, SupportsIdentityCheck) else ():
            keys = answer_keys(request, self.job.plan.fingerprint_id)
            count += bool(self.store.answers.quarantine(keys, "perhaps another question's answer"))
        self.outcome.answered -= count
        return count

    async def _one_pass(self, first: bool) -> None:
        out = self.outcome
        self._deferred = 0
        failures_before = out.failures.copy()
        batches: asyncio.Queue[list[PlannedRequest] | None] = asyncio.Queue(2 * self._workers)
        producer = asyncio.create_task(self._produce(batches, first))
        workers = [asyncio.create_task(self._work(batches)) for _ in range(self._workers)]
        tasks: list[asyncio.Task[Any]] = [producer, *workers]
        try:
            await asyncio.gather(*tasks)
        except Exception as error:
            self.halt(f"{type(error).__name__}: {error}")
            await asyncio.wait(tasks, timeout=self._stop.grace)  # what is in flight may still be kept
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        skipped = producer.result()
        if skipped is None:
            return  # halted before the end of the plan
        # Items that asked what another item had failed at are failed too. A later pass meets all that
        # failed before once more.
        if first:
            out.failures += skipped
        else:
            out.failures = skipped + (out.failures - failures_before)
        out.failed = out.failures.total()
        if not first:
            out.cached = out.items - out.answered - out.failed - self._deferred

    # -- from the plan to batches ----------------------------------------------------------

    async def _produce(self, batches: asyncio.Queue[list[PlannedRequest] | None], first: bool) -> Counter[str] | None:
        """Fill the queue. Returns how many items were skipped because their question had failed, by kind."""
        out, size = self.outcome, self.job.backend.batch_size
        chunks = self.job.plan.chunks(self.store, max(CHUNK, size))
        skipped: Counter[str] = Counter()
        batch: list[PlannedRequest] = []
        try:
            while True:
                with self._interruptible():
                    chunk = await asyncio.to_thread(next, chunks, None)
                if chunk is None:
                    break
                wanted = [p for p in chunk.requests if p.keys[0] not in self._failed]
                # `halt` must not end this wait: what was granted would not be known, and could not be given back.
                granted = await self.store.leases.take([p.keys for p in wanted]) if wanted else []
                self._leased.update(key for p, free in zip(wanted, granted, strict=True) if free for key in p.keys)
                self._deferred += granted.count(False)
                if first:
                    out.items += chunk.items
                    out.cached += chunk.cached
                    self._work_left -= chunk.cached_work
                skipped.update(self._failed[p.keys[0]] for p in chunk.requests if p.keys[0] in self._failed)
                self._report()
                for planned, free in zip(wanted, granted, strict=True):
                    if free:
                        batch.append(planned)
                    if len(batch) == size:
                        with self._interruptible():
                            await batches.put(batch)
                        batch = []
            with self._interruptible():
                if batch:
                    await batches.put(batch)
                for _ in range(self._workers):
                    await batches.put(None)
            self._all_planned = True
            return skipped
        except asyncio.CancelledError:
            if not self.halted:
                raise
            return None

    # -- asking ----------------------------------------------------------------------------

    async def _work(self, batches: asyncio.Queue[list[PlannedRequest] | None]) -> None:
        try:
            while not self.halted:
                with self._interruptible():
                    batch = await batches.get()
                if batch is None:
                    return
                await self._ask(batch)
        except asyncio.CancelledError:
            if not self.halted:
                raise

    async def _ask(self, batch: list[PlannedRequest]) -> None:
        """Ask a batch, again what failed for the moment, until each has an answer or failed for good."""
        pending = batch
        counted = 0  # attempts that ended in something else than 429

        async def attempt() -> list[BackendError]:
            nonlocal pending, counted
            ended = await self._attempt(pending, again=pending is not batch)
            left = [(p, a) for p, a in ended if _may_retry(a)]
            errors = [a for _, a in left if isinstance(a, BackendError)]
            counted += any(e.kind != "rate_limited" for e in errors)
            if errors and self._given_up(counted):
                left, errors = [], []
            later = {id(p) for p, _ in left}
            await self._keep([(p, a) for p, a in ended if id(p) not in later])
            pending = [p for p, _ in left]
            return errors

        def wait(state: tenacity.RetryCallState) -> float:
            self.outcome.retried += len(pending)
            errors: list[BackendError] = state.outcome.result() if state.outcome else []
            for error in errors:
                log.info("asking again", model=self.job.name, attempt=state.attempt_number, error=str(error))
            # Where the server told or the limiter knows, the limiter holds everybody: no wait of our own.
            paced = all(e.kind == "rate_limited" or usable_wait(e) is not None for e in errors)
            return 0.0 if paced else self._backoff(state)

        await tenacity.AsyncRetrying(
            retry=tenacity.retry_if_result(bool), wait=wait, stop=tenacity.stop_never, sleep=self._sleep
        )(attempt)

    async def _attempt(self, pending: Sequence[PlannedRequest], again: bool) -> list[tuple[PlannedRequest, Answer]]:
        """One call of the backend; its time limit is its own and starts after the limiter's wait.

        Answers that it tells of before the others are kept at once. Returns those that are not kept yet.
        """
        with self._interruptible():
            ticket = await self.limiter.enter(again)
        told: BackendError | None = _UNTOLD
        early: dict[int, asyncio.Task[None]] = {}

        def keep(place: int, answer: Answer) -> None:
            if matches_request(pending[place].request, answer) and not isinstance(answer, BackendError):
                early[place] = asyncio.create_task(self._keep([(pending[place], answer)]))

        try:
            answers = await _answers(self.job.backend, pending, keep)
            told = _for_limiter(answers)
        finally:
            self.limiter.leave(ticket, told)
            await asyncio.gather(*early.values(), return_exceptions=True)
        for task in early.values():
            task.result()  # raises what the store raised
        if any(not isinstance(a, BackendError) or a.kind != "rate_limited" for a in answers):
            self._refusing_since = math.inf
        else:
            self._refusing_since = min(self._refusing_since, time.monotonic())
        return [(p, a) for at, (p, a) in enumerate(zip(pending, answers, strict=True)) if at not in early]

    def _given_up(self, counted: int) -> bool:
        return counted >= self._retry.attempts or time.monotonic() - self._refusing_since > self._retry.patience

    async def _sleep(self, seconds: float) -> None:
        with self._interruptible():
            await asyncio.sleep(seconds)

    async def _keep(self, ended: Sequence[tuple[PlannedRequest, Answer]]) -> None:
        """Store what has ended, then count it. Whether to stop is known before the disk is done."""
        if not ended:
            return
        for _, answer in ended:
            if why := self._breaker.note(answer if isinstance(answer, BackendError) else None):
                self.halt(why)
        fingerprint = self.job.plan.fingerprint_id
        await self.store.answers.write([Entry(p.keys, fingerprint, p.request, a) for p, a in ended])
        self._leased.difference_update(*(p.keys for p, _ in ended))
        out = self.outcome
        for planned, answer in ended:
            self._work_asked += planned.work
            self._work_left -= planned.work
            if isinstance(answer, BackendError):
                out.failed += 1
                out.failures[answer.kind] += 1
                self._failed.update(dict.fromkeys(planned.keys, answer.kind))
                log.warning("failed", model=self.job.name, item=planned.item_id, error=str(answer))
            else:
                out.answered += 1
                if not isinstance(answer, ClassifyResponse):
                    out.prompt_tokens += answer.prompt_tokens
                if isinstance(answer, GenerateResponse):
                    out.completion_tokens += answer.completion_tokens
        self._report()

    # -- waiting and telling ---------------------------------------------------------------

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Mark a wait during which this task has nothing in flight: `halt` ends it."""
        if self.halted:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self._idle.add(task)
        try:
            yield
        finally:
            self._idle.discard(task)

    def _report(self, note: str = "", now: bool = False) -> None:
        if now or time.monotonic() - self._reported >= PROGRESS_SECONDS:
            self._reported = time.monotonic()
            out = self.outcome
            done = out.cached + out.answered + out.failed
            work = self._work_asked, max(self._work_left, 0)
            self._on_event(
                Progress(self.job.name, done, self.job.plan.total, out.cached, out.retried, out.failed, note, *work)
            )


_UNTOLD = BackendError("internal", "the call did not end")


async def _answers(backend: Backend, pending: Sequence[PlannedRequest], on_response: OnResponse) -> list[Answer]:
    """What the backend says, made to fit: one answer of the right form for each request."""
    try:
        batch = [p.request for p in pending]
        if isinstance(backend, SupportsStreaming):
            answers = await backend.run_streaming(batch, on_response)
        else:
            answers = await backend.run(batch)
    except Exception as error:
        # With an endpoint there is a key, and a foreign exception's text may hold it.
        said = f": {error}" if backend.endpoint is None else ""
        failed = BackendError("internal", f"{type(backend).__name__}.run raised {type(error).__name__}{said}")
        return [failed] * len(pending)
    if len(answers) != len(pending):
        wrong = BackendError("malformed", f"{len(answers)} answers to {len(pending)} requests")
        return [wrong] * len(pending)
    return [
        a
        if matches_request(p.request, a)
        else BackendError("malformed", f"{type(a).__name__} does not fit its request")
        for p, a in zip(pending, answers, strict=True)
    ]


def _may_retry(answer: Answer) -> bool:
    """Whether asking again may help, within a time that can be waited for."""
    if not isinstance(answer, BackendError) or not answer.retryable:
        return False
    return answer.retry_after is None or not answer.retry_after > LONGEST_ASKED_PAUSE


def _for_limiter(answers: Sequence[Answer]) -> BackendError | None:
    """What a call tells about the endpoint: a 429 before other trouble, None when all is well."""
    errors = [a for a in answers if isinstance(a, BackendError)]
    return next((e for e in errors if e.kind == "rate_limited"), errors[0] if errors else None)

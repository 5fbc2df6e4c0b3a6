"""One job: its questions, how far it is and what became of it; they are leased and asked in batches, each until it is
answered or given up."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import tenacity

from audit.collect.executors import Executor
from audit.collect.limiter import CircuitBreaker, Halted, Limiter, usable_wait
from audit.logs import logger
from audit.store import COMPARED_WITHIN, AnswerPair, Keyed, Partly, Store, Stored, StoreError, keyed, matches_request
from backends.base import (
    Answer,
    Backend,
    ClassifyResponse,
    GenerateResponse,
    OnResponse,
    Request,
    Response,
    ScoreRequest,
    ScoreResponse,
    SupportsIdentityCheck,
    SupportsPrices,
    SupportsSecondAnswers,
)
from backends.checking import number_to_repeat
from backends.errors import LONGEST_ASKED_PAUSE, BackendError, StoppedError


@dataclass(frozen=True, slots=True)
class Ask:
    """A question that is to be asked.

    Attributes
    ----------
    keyed : Keyed
        The whole question, with the key that its answer will have.
    request : Request
        What of it is sent: the continuations whose scores are not stored.
    partly : Partly, optional
        The scores that are.
    items : int
        The items that ask it.
    first : Response, optional
        The first answer, where the question is asked a second time to compare the two.
    """

    keyed: Keyed
    request: Request
    partly: Partly | None = None
    items: int = 1
    first: Response | None = None

    @property
    def key(self) -> bytes:
        """The key that the whole question's answer will have."""
        return self.keyed.prompt + self.keyed.part

    def whole(self, answer: Response) -> Response:
        """The answer to the whole question, given that to ``request``."""
        if self.partly is None:
            return answer
        assert isinstance(self.keyed.request, ScoreRequest)
        assert isinstance(answer, ScoreResponse)
        return self.partly.joined(self.keyed.request, answer)


def part_to_repeat(backend: SupportsSecondAnswers, request: Request) -> Request:
    """What of a question is asked again: all, or one continuation, here the first, if each takes its own requests."""
    if isinstance(request, ScoreRequest) and backend.scores_separately(request):
        return dataclasses.replace(request, continuations=request.continuations[:1])
    return request


class RepeatedQuestions:
    """The questions among a job's ``asks`` that are asked twice: a random sample, each at a random later time.

    A server may answer some requests with another model, for a while or at random. A config that is run from the
    beginning always selects the same questions, by the run's ``seed``.
    """

    def __init__(self, backend: SupportsSecondAnswers, seed: int, asks: Iterable[Ask]) -> None:
        self._backend, self._draw = backend, random.Random(seed)
        able = [ask.key for ask in asks if backend.repeats_itself(ask.request)]
        self._chosen = set(self._draw.sample(able, number_to_repeat(len(able))))

    def place(self, left: int) -> int:
        """Before which of ``left`` questions the next repeat is asked: a random one, or after all of them."""
        return self._draw.randint(0, left)

    def again(self, ask: Ask, first: Response) -> Ask | None:
        """What is asked again of an answered question, with its first answer; None if it is not chosen."""
        if ask.key not in self._chosen:
            return None
        request = ask.request
        if isinstance(request, ScoreRequest) and part_to_repeat(self._backend, request) != request:
            assert isinstance(first, ScoreResponse)
            least = max(score.high for score in first.scores) - COMPARED_WITHIN  # one whose answer matters
            place = self._draw.choice([place for place, score in enumerate(first.scores) if score.high >= least])
            request = dataclasses.replace(request, continuations=(request.continuations[place],))
            first = ScoreResponse((first.scores[place],), first.prompt_tokens)
        return dataclasses.replace(ask, request=request, first=first)


@dataclass(frozen=True, slots=True)
class Job:
    """One model and what to ask it.

    ``cached`` and ``done``: items whose answers are stored, by earlier runs and by this one. ``second``: what is asked
    twice.
    """

    name: str
    backend: Backend
    asks: list[Ask]
    cached: int = 0
    done: int = 0
    second: RepeatedQuestions | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has got, in items; ``note`` says what it waits for.

    ``total`` is None if unknown. ``cost`` so far, in the currency of the backend's prices; None where it has none.
    ``waited``: seconds since the last answer; ``failing``: why the last attempt failed, if it did.
    """

    job: str
    done: int
    total: int | None
    cached: int
    retried: int
    failed: int
    note: str = ""
    cost: float | None = None
    waited: float = 0.0
    failing: str = ""


@dataclass(slots=True)
class Outcome:
    """The outcome of a job, counted in items; ``retried`` counts attempts after the first.

    ``asked_again`` counts repeated questions that got a second answer, ``unanswered_again`` those that did not.
    ``failed_by_key`` has the last error of each question that failed; ``reasons`` the message of the first failure of
    each kind, ``for_good`` counts failures that a retry would not fix. ``stopped`` says why not everything was asked;
    None if everything was. ``notes`` is what the backend knew at the end, as `backends.base.SupportsRunNotes` says.
    ``unloaded`` says why the model could not be loaded, and what helps; None if it was, or nothing was asked of it.
    ``set_aside``: keys of answers that may belong to another request, and are quarantined.
    """

    name: str
    items: int = 0
    cached: int = 0
    answered: int = 0
    failed: int = 0
    retried: int = 0
    asked_again: int = 0
    unanswered_again: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failed_by_key: dict[bytes, str] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    for_good: int = 0
    stopped: str | None = None
    unloaded: str | None = None
    notes: dict[str, str] = field(default_factory=dict)
    set_aside: list[str] = field(default_factory=list)


OnEvent = Callable[[Progress], None]


log = logger("scheduler")

CHUNK = 256  # questions that are leased at a time
PROGRESS_SECONDS, LONGEST_SILENCE_SECONDS = 0.1, 2.0  # between reports: at least, and at most
FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 2.0  # between look-ups of questions that other audits are asking
#: The most attempts at a request, and the waits between them. A wait that the server asks for replaces these. Its 429s
#: are not counted: the limiter slows down instead, and a request is given up once nothing else came for so long.
ATTEMPTS, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, LONGEST_REFUSAL_SECONDS = 6, 0.5, 30.0, 300.0

_NO_END = BackendError("internal", "the call did not end")


class JobRun:
    """One job in progress, of which ``slots`` batches are asked at a time.

    ``run_id`` is stored with each answer; ``grace``: seconds that a stop waits for requests.
    """

    def __init__(
        self, job: Job, slots: int, executor: Executor, store: Store, limiter: Limiter, on_event: OnEvent,
        *, run_id: str, grace: float,
    ) -> None:  # fmt: skip
        self.job, self._slots, self.executor, self._store, self._limiter = job, slots, executor, store, limiter
        self._on_event, self._run_id, self._grace = on_event, run_id, grace
        self.outcome = outcome_of(job)
        self._halted = asyncio.get_running_loop().create_future()
        self._deadline: asyncio.Timeout | None = None
        self._planning = asyncio.Lock()
        self._left, self._ready = deque(job.asks), deque[Ask]()  # the ready ones are leased
        self._deferred: list[Ask] = []  # another audit is asking these
        self._poll = FIRST_POLL_SECONDS
        self._breaker = CircuitBreaker()
        self._backoff = tenacity.wait_exponential_jitter(
            multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS, jitter=FIRST_WAIT_SECONDS
        )
        self._reported, self._answered_at, self._failing = -math.inf, time.monotonic(), ""

    def halt(self, reason: str) -> None:
        """Send no new requests. Those in flight may end; a local model ends after the step that it computes."""
        if self._halted.done():
            return
        self._halted.set_result(None)
        self.outcome.stopped = reason
        log.warning("halted", model=self.job.name, reason=reason)
        self.executor.stop(self.job.backend)
        ends_by_itself = self.job.backend.device is not None
        if self._deadline is not None and not ends_by_itself:
            self._deadline.reschedule(asyncio.get_running_loop().time() + self._grace)

    async def run(self) -> None:
        """Ask until nothing is missing, or the job is halted."""
        if self._halted.done():
            return
        started = time.monotonic()
        self._report(now=True)
        beat = asyncio.create_task(self._report_while_waiting())
        try:
            async with asyncio.timeout(None) as self._deadline, asyncio.TaskGroup() as group:
                # A local model computes the next batch while the last one is being stored.
                for _ in range(self._slots + (self.job.backend.device is not None)):
                    group.create_task(self._work())
        except TimeoutError:
            log.warning("cut off", model=self.job.name)
        finally:
            beat.cancel()
            out = self.outcome
            if self.job.done + out.answered + out.failed + out.cached == out.items:
                out.stopped = None if not out.failed else out.stopped  # the stop came when nothing was left to ask
            out.notes = dict(self.executor.notes(self.job.backend))
            out.seconds = time.monotonic() - started
            log.info("ended", **{name: getattr(out, name) for name in Outcome.__slots__ if name != "failed_by_key"})
            self._report(now=True)
            if self._halted.done():  # another audit may be waiting for these questions, and can ask them now
                with contextlib.suppress(StoreError):
                    await self._store.leases.release(ask.keyed for ask in self.job.asks)

    async def _report_while_waiting(self) -> None:
        while True:
            await asyncio.sleep(LONGEST_SILENCE_SECONDS)
            self._report()

    async def _work(self) -> None:
        with contextlib.suppress(Halted):
            while not self._halted.done() and (batch := await self._next()):
                await self._ask(batch)

    # -- from the questions to batches -------------------------------------------------------

    async def _next(self) -> Sequence[Ask]:
        """The next batch; empty once every question is answered, sent or has failed."""
        async with self._planning:
            while not self._ready and not self._halted.done():
                chunk = [self._left.popleft() for _ in range(min(CHUNK, len(self._left)))]
                if not chunk:
                    if not self._deferred:
                        return ()
                    chunk = await self._asked_elsewhere()
                # A question that is asked again is answered: nobody else asks it.
                is_free = iter(await self._store.leases.take([ask.keyed for ask in chunk if ask.first is None]))
                for ask in chunk:
                    (self._ready if ask.first is not None or next(is_free) else self._deferred).append(ask)
            return [self._ready.popleft() for _ in range(min(self.job.backend.batch_size, len(self._ready)))]

    def _repeat_later(self, ask: Ask) -> None:
        """Ask a question again at a random time in the rest of the job."""
        assert self.job.second is not None
        place = self.job.second.place(len(self._ready) + len(self._left))
        if place < len(self._ready):
            self._ready.insert(place, ask)
        else:
            self._left.insert(place - len(self._ready), ask)

    async def _asked_elsewhere(self) -> list[Ask]:
        """Wait a little, and look up again what another audit was asking. Returns what is still not answered."""
        deferred, self._deferred = self._deferred, []
        found = await asyncio.to_thread(self._store.answers.read, [ask.keyed for ask in deferred])
        missing = [ask for ask, stored in zip(deferred, found, strict=True) if not isinstance(stored, Stored)]
        self.outcome.cached += sum(ask.items for ask in deferred) - sum(ask.items for ask in missing)
        if len(missing) == len(deferred):
            self._report("waiting for another audit that asks the same questions", now=True)
            await self._sleep(self._poll)
            self._poll = min(2 * self._poll, LONGEST_POLL_SECONDS)
        return missing

    # -- asking ------------------------------------------------------------------------------

    async def _ask(self, batch: Sequence[Ask]) -> None:
        """Ask a batch, retrying temporary failures, until each request is answered or has failed for good."""
        pending = batch
        counted = 0  # attempts that ended in something other than 429

        async def attempt() -> list[BackendError]:
            nonlocal pending, counted
            ended, again = await self._attempt(pending), list[tuple[Ask, BackendError]]()
            if any(isinstance(answer, BackendError) for _, answer in ended):
                again = [(ask, answer) for ask, answer in ended if _may_retry(answer)]
                counted += any(error.kind != "rate_limited" for _, error in again)
                refused = self._limiter.refused_for > LONGEST_REFUSAL_SECONDS
                again = [] if counted >= ATTEMPTS or refused or self._halted.done() else again
            pending = [ask for ask, _ in again]
            await self._keep([one for one in ended if one not in again] if again else ended)
            return [error for _, error in again]

        def wait(state: tenacity.RetryCallState) -> float:
            self.outcome.retried += len(pending)
            errors: list[BackendError] = state.outcome.result() if state.outcome else []
            for error in errors:
                log.info("asking again", model=self.job.name, attempt=state.attempt_number, error=str(error))
            # If the server asks for a wait, or refused for its rate, the limiter delays all requests: no backoff here.
            is_paced = all(error.kind == "rate_limited" or usable_wait(error) is not None for error in errors)
            return 0.0 if is_paced else self._backoff(state)

        await tenacity.AsyncRetrying(
            retry=tenacity.retry_if_result(bool), wait=wait, stop=tenacity.stop_never, sleep=self._sleep
        )(attempt)

    async def _attempt(self, pending: Sequence[Ask]) -> list[tuple[Ask, Answer]]:
        """Call the backend once; its own time limit starts after the limiter's wait.

        Answers that it reports early are stored at once. Returns the others, without those that a stop came before.
        """
        turn = await self._limiter.enter(self._halted)
        verdict: BackendError | None = _NO_END
        early = set[int]()
        try:
            async with asyncio.TaskGroup() as storing:

                def on_response(place: int, answer: Answer) -> None:
                    if not isinstance(answer, BackendError) and matches_request(pending[place].request, answer):
                        early.add(place)
                        storing.create_task(self._keep([(pending[place], answer)]))

                answers = await self._answers(pending, on_response)
                errors = [answer for answer in answers if isinstance(answer, BackendError)]
                # A 429 takes precedence over other errors.
                verdict = next((error for error in errors if error.kind == "rate_limited"), (*errors, None)[0])
                self._failing = "" if verdict is None else verdict.message
        finally:
            self._limiter.leave(turn, verdict)
        return [
            (ask, answer)
            for place, (ask, answer) in enumerate(zip(pending, answers, strict=True))
            if place not in early and not isinstance(answer, StoppedError)
        ]

    async def _answers(self, pending: Sequence[Ask], on_response: OnResponse) -> list[Answer]:
        """The model's answers, made complete: one of the right type for each request."""
        backend, batch = self.job.backend, [ask.request for ask in pending]
        try:
            answers = await self.executor.submit(backend, batch, on_response)
        except Exception as error:
            # A backend with an endpoint has a key, which the text of an unknown exception may contain.
            text = f": {error}" if backend.endpoint is None else ""
            failed = BackendError("internal", f"{type(backend).__name__}.run raised {type(error).__name__}{text}")
            return [failed] * len(pending)
        if len(answers) != len(pending):
            return [BackendError("malformed", f"requests: {len(pending)}, answers: {len(answers)}")] * len(pending)
        return [
            answer
            if matches_request(request, answer)
            else BackendError("malformed", f"{type(answer).__name__} does not match its request")
            for request, answer in zip(batch, answers, strict=True)
        ]

    async def _sleep(self, seconds: float) -> None:
        """Wait, or raise `Halted`."""
        await asyncio.wait((self._halted,), timeout=seconds)
        if self._halted.done():
            raise Halted

    # -- storing -----------------------------------------------------------------------------

    async def _keep(self, ended: Sequence[tuple[Ask, Answer]]) -> None:
        """Store finished requests, then count them. The breaker is checked before the slow write."""
        self._answered_at = time.monotonic()
        for _, answer in ended:
            if reason := self._breaker.update(answer if isinstance(answer, BackendError) else None):
                self.halt(reason)
        answered: list[tuple[Ask, Response]] = []
        for ask, answer in ended:
            if ask.first is not None:
                await self._keep_second(ask, answer)
            elif isinstance(answer, BackendError):
                await self._fail(ask, answer)
            else:
                answered.append((ask, answer))
        if answered:
            await self._store.answers.write([(ask.keyed, ask.whole(said)) for ask, said in answered], self._run_id)
        for ask, said in answered:
            self.outcome.answered += ask.items
            self._count_tokens(said)
            if self.job.second is not None and (again := self.job.second.again(ask, said)) is not None:
                self._repeat_later(again)
        self._report()

    async def _fail(self, ask: Ask, error: BackendError) -> None:
        log.warning("failed", model=self.job.name, key=ask.keyed.key, error=str(error))
        out = self.outcome
        out.failed += ask.items
        out.failed_by_key[ask.key] = error.kind
        out.failures[error.kind] += ask.items
        out.reasons.setdefault(error.kind, str(error))
        out.for_good += ask.items * (not error.retryable)
        if error.unloaded and out.unloaded is None:
            out.unloaded = ". ".join(filter(None, (error.message, error.hint)))
        await self._store.answers.fail(ask.keyed, error)

    async def _keep_second(self, ask: Ask, answer: Answer) -> None:
        """Store a second answer beside the first one. One that failed is forgotten."""
        assert ask.first is not None
        if isinstance(answer, BackendError):
            log.warning("no second answer", model=self.job.name, error=str(answer))
            self.outcome.unanswered_again += 1
            return
        pair = AnswerPair(ask.keyed.fingerprint, ask.keyed.key, ask.request, ask.first, answer)
        await self._store.second_answers.write(pair)
        self.outcome.asked_again += 1
        self._count_tokens(answer)

    def _count_tokens(self, answer: Response) -> None:
        if not isinstance(answer, ClassifyResponse):
            self.outcome.prompt_tokens += answer.prompt_tokens
        if isinstance(answer, GenerateResponse):
            self.outcome.completion_tokens += answer.completion_tokens

    def _report(self, note: str = "", now: bool = False) -> None:
        if now or time.monotonic() - self._reported >= PROGRESS_SECONDS:
            self._reported = time.monotonic()
            out, backend = self.outcome, self.job.backend
            note = note or ("it could not be loaded" if out.unloaded else "")
            done = self.job.done + out.cached + out.answered + out.failed
            cost = backend.spent() if isinstance(backend, SupportsPrices) else None
            wait = (self._reported - self._answered_at, self._failing)
            self._on_event(Progress(out.name, done, out.items, out.cached, out.retried, out.failed, note, cost, *wait))


def outcome_of(job: Job) -> Outcome:
    """The outcome of a job of which nothing has been asked yet."""
    return Outcome(job.name, items=job.cached + job.done + sum(ask.items for ask in job.asks), cached=job.cached)


def set_ambiguous_aside(job: Job, store: Store) -> list[str]:
    """Quarantine answers that may belong to another request, so that they are asked again. Returns their keys."""
    drained = job.backend.drain_ambiguous() if isinstance(job.backend, SupportsIdentityCheck) else []
    whole = {(ask.keyed.fingerprint, ask.keyed.run) for ask in job.asks} if drained else ()
    keys = [keyed(request, *of_model).key for request in drained for of_model in whole]
    return store.answers.quarantine(keys, "perhaps another question's answer")


def _may_retry(answer: Answer) -> TypeGuard[BackendError]:
    """Whether asking again may help, after a wait that is acceptable."""
    return isinstance(answer, BackendError) and answer.retryable and not (answer.retry_after or 0) > LONGEST_ASKED_PAUSE

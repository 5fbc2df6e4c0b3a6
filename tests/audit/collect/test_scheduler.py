"""The scheduler with the shipped fake: every answer stored, none asked twice, nothing retried needlessly."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import time

import pytest

from audit.collect.jobs import Job, RetryPolicy
from audit.collect.plan import Plan, Question
from audit.collect.scheduler import run_jobs
from audit.collect.shutdown import ShutdownRequest
from audit.store import Store, StoreError, answer_keys, join_answers, keyed_request
from backends.base import (
    ClassifyRequest,
    ClassifyResponse,
    Description,
    GenerateRequest,
    GenerateResponse,
    ScoreRequest,
)
from backends.errors import BackendError, StoppedError
from backends.local.backend import LocalBackend, discard_response
from backends.stand_ins.fake import FakeBackend, Faults
from suites.base import Item
from tests.audit.collect.plans import answer, plan_of, score
from tests.audit.store.entries import answers_by_key

FP = "fp1-test"
FAST = RetryPolicy(attempts=4, first_wait=0.001, longest_wait=0.01)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "audit.db") as opened:
        yield opened


def scores(n, start=0):
    return lambda: (Item(f"i{i}", ScoreRequest(f"prompt {i}", (" a", " b")), {}) for i in range(start, n))


def texts(n):
    return lambda: (Item(f"i{i}", GenerateRequest(f"prompt {i}"), {}) for i in range(n))


def server(**options):
    """A hosted fake: one request a call."""
    return FakeBackend("server", **{"batch_size": 1, "max_in_flight": 8, **options})


async def run(store, backend, items=None, *, fingerprint=FP, stop=None, retry=FAST, on_event=lambda _: None, name="m"):
    plan = plan_of(items or scores(50), fingerprint)
    done = await run_jobs(
        [Job(name, backend, plan)], store, stop=stop or ShutdownRequest(), retry=retry, on_event=on_event
    )
    return done[name]


def stored(store, items, fingerprint=FP):
    """The item ids whose answers are whole in the store."""
    found = set()
    for item in items():
        keys = answer_keys(item.request, fingerprint)
        answer = join_answers(item.request, keys, answers_by_key(store, keys))
        if answer is not None and not isinstance(answer, BackendError):
            found.add(item.id)
    return found


@pytest.mark.parametrize("options", [{}, {"batch_size": 7}, {"device": "cpu", "batch_size": 16, "max_in_flight": 1}])
async def test_all_is_asked_once_and_nothing_by_a_second_run(store, options):
    backend = server(**options)
    outcome = await run(store, backend, scores(300))
    assert (outcome.items, outcome.answered, outcome.cached, outcome.failed) == (300, 300, 0, 0)
    assert outcome.stopped is None
    assert outcome.prompt_tokens == 600
    assert set(backend.asked.values()) == {1}
    assert len(stored(store, scores(300))) == 300
    again = await run(store, backend, scores(300))
    assert (again.cached, again.answered) == (300, 0)
    assert backend.asked.total() == 300


async def test_what_is_all_stored_is_passed_without_a_write(store, monkeypatch):
    await run(store, server(), scores(600))
    leased = []
    real = store.leases.take

    async def lease(requests):
        leased.append(len(requests))
        return await real(requests)

    monkeypatch.setattr(store.leases, "take", lease)
    await run(store, server(), scores(601))
    assert leased == [1]


class MixedUp(FakeBackend):
    """Gives the first request another one's answer, and finds out when all are answered."""

    unverified_since, unverified_reason = None, ""
    mixed_up: ScoreRequest | None = None
    drained = False

    async def run(self, batch):
        [request] = batch
        if self.mixed_up is None:
            self.mixed_up = request
            return await super().run([ScoreRequest("another prompt", request.continuations)])
        return await super().run(batch)

    async def verify_identity(self):
        return

    def drain_ambiguous(self):
        taken, self.drained = [] if self.drained else [self.mixed_up], True
        return taken


async def test_ambiguous_answer_is_quarantined_and_asked_again(store):
    backend = MixedUp("server", batch_size=1, max_in_flight=1)
    outcome = await run(store, backend)
    assert (outcome.items, outcome.answered, outcome.failed) == (50, 50, 0)
    for item in scores(50)():
        keys = answer_keys(item.request, FP)
        [said] = await FakeBackend("server").run([item.request])
        assert join_answers(item.request, keys, answers_by_key(store, keys)) == said
    assert [
        entry["problem"] for entry in store.answers.inspect(answer_keys(backend.mixed_up, FP)[0])["quarantine"]
    ] == ["perhaps another question's answer"]


async def test_interrupted_run_quarantines_ambiguous_answers_too(store):
    stop = ShutdownRequest()

    class Interrupted(MixedUp):
        async def run(self, batch):
            if self.mixed_up is not None:
                stop.request("SIGINT")
                await asyncio.sleep(0.05)
            return await super().run(batch)

    backend = Interrupted("server", batch_size=1, max_in_flight=8)  # some wait for their turn when it comes
    outcome = await run(store, backend, stop=stop)
    assert outcome.stopped == "interrupted"
    keys = answer_keys(backend.mixed_up, FP)
    assert answers_by_key(store, keys) == {}
    assert store.answers.inspect(keys[0])["quarantine"]


async def test_what_is_stored_is_what_the_model_said(store):
    backend = server()
    await run(store, backend, scores(20))
    for item in scores(20)():
        keys = answer_keys(item.request, FP)
        [said] = await backend.run([item.request])
        assert join_answers(item.request, keys, answers_by_key(store, keys)) == said


async def test_one_more_expression_asks_only_for_that(store):
    backend = server()
    await run(store, backend, lambda: iter([Item("i", ScoreRequest("p", (" a", " b")), {})]))
    backend.asked.clear()
    await run(store, backend, lambda: iter([Item("i", ScoreRequest("p", (" a", " new", " b")), {})]))
    assert list(backend.asked) == ["['score', 'p', ' new']"]


async def test_a_passing_failure_is_asked_again_until_it_is_answered(store):
    backend = server(faults=Faults(0.4, ("server", "timeout", "connection")))
    outcome = await run(store, backend)
    assert (outcome.answered, outcome.failed) == (50, 0)
    struck = sum(n == 4 for n in backend.asked.values())
    assert struck > 5
    assert outcome.retried == 3 * struck
    assert store.stats()["failures"] == 0


async def test_failure_after_all_attempts_is_asked_by_the_next_run(store):
    faults = Faults(0.3, ("server",) * 5)
    backend = server(faults=faults)
    first = await run(store, backend)
    assert first.failed > 5
    assert first.answered + first.failed == 50
    assert first.failures == {"server": first.failed}
    assert max(backend.asked.values()) == FAST.attempts
    assert len(stored(store, scores(50))) == first.answered
    second = await run(store, backend)  # two more attempts succeed
    assert (second.cached, second.answered, second.failed) == (first.answered, first.failed, 0)


async def test_a_permanent_failure_is_not_asked_again(store):
    backend = server(faults=Faults(0.3, ("bad_request",), permanent=True))
    outcome = await run(store, backend)
    assert outcome.failed > 5
    assert outcome.retried == 0
    assert max(backend.asked.values()) == 1
    assert outcome.stopped is None


async def test_in_a_batch_only_what_failed_is_asked_again(store):
    backend = FakeBackend("local", device="cpu", batch_size=25, max_in_flight=1, faults=Faults(0.2, ("server",)))
    outcome = await run(store, backend)
    assert outcome.answered == 50
    assert sorted(set(backend.asked.values())) == [1, 2]
    assert outcome.retried == sum(n == 2 for n in backend.asked.values())


async def test_a_wait_the_server_asks_for_replaces_ours(store):
    backend = server(faults=Faults(1.0, ("server",), retry_after=0.3))
    started = time.monotonic()
    async with asyncio.timeout(100):
        outcome = await run(store, backend, scores(4), retry=RetryPolicy(first_wait=1000.0, longest_wait=3000.0))
    assert outcome.answered == 4
    assert time.monotonic() - started >= 0.3


async def test_failure_slower_than_max_wait_is_asked_again(store):
    backend = server(latency=0.05, faults=Faults(1.0, ("timeout", "timeout")))
    outcome = await run(store, backend, scores(8), retry=RetryPolicy(attempts=3, first_wait=0.001, max_wait=0.01))
    assert (outcome.answered, outcome.failed, outcome.retried) == (8, 0, 16)


async def test_server_with_only_429_is_given_up_after_max_wait(store):
    backend = server(faults=Faults(1.0, ("rate_limited",) * 999))
    started = time.monotonic()
    outcome = await run(store, backend, scores(1), retry=RetryPolicy(attempts=2, max_wait=0.5))
    assert outcome.failures == {"rate_limited": 1}
    assert 2 < backend.asked.total() < 999
    assert time.monotonic() - started > 0.5


async def test_a_wait_that_nobody_can_wait_for_fails_at_once(store):
    backend = server(faults=Faults(0.2, ("rate_limited",), retry_after=1e9))
    outcome = await run(store, backend)
    assert outcome.failures["rate_limited"] == outcome.failed > 3
    assert outcome.answered == 50 - outcome.failed
    assert outcome.retried == 0


@pytest.mark.parametrize("kind", ["auth", "quota", "not_found"])
async def test_equal_permanent_failures_stop_within_20_requests(store, kind):
    backend = server(max_in_flight=64, latency=0.02, faults=Faults(1.0, (kind,), permanent=True))
    outcome = await run(store, backend, scores(5000))
    assert backend.asked.total() <= 20
    assert kind in outcome.stopped
    assert "planned by Faults" in outcome.stopped  # the hint


async def test_a_slow_disk_does_not_delay_the_stop(store, monkeypatch):
    real = store.answers.write

    async def write(entries):
        await asyncio.sleep(0.2)
        return await real(entries)

    monkeypatch.setattr(store.answers, "write", write)
    backend = server(max_in_flight=64, latency=0.005, faults=Faults(1.0, ("quota",), permanent=True))
    await run(store, backend, scores(500))
    assert backend.asked.total() <= 20


async def test_a_server_that_never_recovers_is_given_up(store):
    backend = server(faults=Faults(1.0, ("server",) * 99))
    outcome = await run(store, backend, scores(2000))
    assert "server" in outcome.stopped
    assert backend.asked.total() < 200


async def test_single_refusals_trip_nothing(store):
    backend = server(faults=Faults(0.5, ("auth",), permanent=True))
    items = scores(60)
    order = [Faults(0.5, ("auth",)).at(repr(["score", f"prompt {i}", " a", " b"]), 0) is not None for i in range(60)]
    longest = max(len(run) for run in "".join("x" if bad else " " for bad in order).split())
    outcome = await run(store, backend, items)
    assert (outcome.stopped is None) == (longest < 5)


class Unfit(FakeBackend):
    """Answers with something that does not fit."""

    def __init__(self, spoil):
        super().__init__("unfit", batch_size=4)
        self._spoil = spoil

    async def run(self, batch):
        return self._spoil(await super().run(batch))


def _raise(_):
    raise RuntimeError("engine")


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda answers: answers[:-1], "malformed"),
        (lambda answers: [*answers, answers[0]], "malformed"),
        (lambda answers: [GenerateResponse("text", "stop") for _ in answers], "malformed"),
        (lambda answers: [type(a)(a.scores[:1]) for a in answers], "malformed"),
        (_raise, "internal"),
    ],
)
async def test_an_answer_that_does_not_fit_its_request_is_never_stored(store, spoil, kind):
    outcome = await run(store, Unfit(spoil), scores(8))
    assert outcome.failures == {kind: 8}
    assert store.stats()["answers"] == 0


async def test_a_probability_that_is_no_number_is_never_stored(store):
    class NoNumber(FakeBackend):
        async def run(self, batch):
            return [ClassifyResponse({"positive": float("nan")}) for _ in batch]

    outcome = await run(store, NoNumber(), lambda: iter([Item("i", ClassifyRequest("t"), {})]))
    assert outcome.failures == {"malformed": 1}


async def test_foreign_exception_text_is_dropped_where_a_key_is(store):
    class Leaky(FakeBackend):
        endpoint = "host key 123"

        async def run(self, batch):
            raise RuntimeError("Illegal header value b'Bearer canary'")

    await run(store, Leaky(), scores(1))
    with sqlite3.connect(store.path) as db:
        [body] = {row[0] for row in db.execute("SELECT body FROM failures")}
    assert b"RuntimeError" in body
    assert b"canary" not in body


async def test_the_same_question_of_two_items_is_asked_once(store):
    backend = server(latency=0.01)
    twins = lambda: (Item(f"i{i}", GenerateRequest(f"prompt {i % 10}"), {}) for i in range(40))  # noqa: E731
    outcome = await run(store, backend, twins)
    assert backend.asked.total() == 10
    assert (outcome.items, outcome.answered, outcome.cached) == (40, 10, 30)


async def test_the_same_failing_question_of_two_items_counts_twice(store):
    backend = server(latency=0.01, faults=Faults(1.0, ("bad_request",), permanent=True))
    twins = lambda: (Item(f"i{i}", GenerateRequest(f"prompt {i % 2}"), {}) for i in range(6))  # noqa: E731
    outcome = await run(store, backend, twins)
    assert (outcome.items, outcome.answered, outcome.cached, outcome.failed) == (6, 0, 0, 6)
    assert outcome.failures == {"bad_request": 6}


async def test_two_models_of_one_identity_are_asked_once(store):
    backend = server(latency=0.005)
    jobs = [Job(name, backend, plan_of(scores(60), FP)) for name in ("one", "two")]
    done = await run_jobs(jobs, store, stop=ShutdownRequest(), retry=FAST)
    assert set(backend.asked.values()) == {1}
    assert sum(o.answered for o in done.values()) == 60
    assert all(o.answered + o.cached == 60 for o in done.values())


@pytest.mark.parametrize("device", [None, "cpu"])
async def test_halted_models_leases_are_free_for_its_twin(store, device):
    options = {"batch_size": 2, "max_in_flight": 1, "device": device}
    broke = FakeBackend("broke", **options, faults=Faults(1.0, ("quota",), permanent=True))
    paying = FakeBackend("paying", **options)

    def later():
        time.sleep(0.3)  # in the look-up's thread: the other one has the leases by now
        return scores(60)()

    jobs = [Job(b.name, b, plan_of(items, FP)) for b, items in ((broke, scores(60)), (paying, later))]
    async with asyncio.timeout(20):
        done = await run_jobs(jobs, store, stop=ShutdownRequest(), retry=FAST)
    assert "quota" in done["broke"].stopped
    assert done["paying"].answered == 60
    assert set(paying.asked.values()) == {1}


async def test_two_audits_on_one_store_never_ask_the_same(tmp_path):
    backend = server(latency=0.003)
    with Store.open(tmp_path / "a.db") as one, Store.open(tmp_path / "a.db") as two:
        first, second = await asyncio.gather(run(one, backend, scores(900)), run(two, backend, scores(900)))
    assert backend.asked.total() == 900
    assert first.answered + second.answered == 900
    assert first.answered + first.cached == second.answered + second.cached == 900


# -- side by side, and in turns ----------------------------------------------------------------


class Overtaken(FakeBackend):
    """Answers a question that another audit answers meanwhile, whose lease this one's outlived."""

    async def run(self, batch):
        answers = await super().run(batch)
        if batch[0].prompt == "prompt 3":
            with Store.open(self.path) as other:
                await answer(other, batch[0])
        return answers


class Delivered:
    def __init__(self):
        self.answers = {}

    def on_answer(self, question, answer):
        self.answers[question.item.id] = answer
        return []


@pytest.mark.parametrize("shards", [1, 3])
async def test_the_first_answer_counts_in_the_run_too(tmp_path, shards):
    backend, sink = Overtaken("overtaken", device="cpu", batch_size=1), Delivered()
    backend.path = tmp_path / "audit.db"
    questions = [Question(item, keyed_request(item.request, FP), sink) for item in scores(6)()]
    with Store.open(backend.path, shards=shards) as store:
        job = Job("m", backend, Plan(FP, lambda: iter(questions)))
        outcome = (await run_jobs([job], store, stop=ShutdownRequest(), retry=FAST))["m"]
        kept = store.answers.read(question.keyed for question in questions)
        assert {q.item.id: kept.answer(q.keyed) for q in questions} == sink.answers
    assert sink.answers["i3"] == score(*questions[3].item.request.continuations)
    assert outcome.answered == 6


class Watched(FakeBackend):
    """Notes when it runs, and when it is closed."""

    def __init__(self, name, events, **options):
        super().__init__(name, **options)
        self._events = events

    async def run(self, batch):
        self._events.append((self.name, "run"))
        return await super().run(batch)

    async def close(self):
        self._events.append((self.name, "close"))


async def test_models_on_one_device_take_turns_beside_servers(store):
    events = []
    options = {"latency": 0.01, "batch_size": 5, "max_in_flight": 1}
    backends = [
        Watched("a", events, device="cpu", **options),
        Watched("b", events, device="cpu", **options),
        Watched("gpu", events, device="cuda:0", **options),
        Watched("hosted", events, **options),
    ]
    jobs = [Job(b.name, b, plan_of(scores(40), f"fp1-{b.name}")) for b in backends]
    await run_jobs(jobs, store, stop=ShutdownRequest())
    on_cpu = [e for e in events if e[0] in "ab"]
    assert on_cpu == [("a", "run")] * 8 + [("a", "close")] + [("b", "run")] * 8 + [("b", "close")]
    names = [name for name, _ in events[:6]]
    assert {"a", "gpu", "hosted"} <= set(names)  # side by side from the start
    assert "b" not in names


async def test_no_more_requests_are_in_flight_than_allowed(store):
    now = most = 0

    class Counting(FakeBackend):
        async def run(self, batch):
            nonlocal now, most
            now += 1
            most = max(most, now)
            try:
                return await super().run(batch)
            finally:
                now -= 1

    await run(store, Counting(batch_size=1, max_in_flight=6, latency=0.003), scores(300))
    assert most == 6


async def test_two_models_of_one_endpoint_share_a_limit(store):
    now = most = 0

    class Shared(FakeBackend):
        endpoint = "host key 1"

        async def run(self, batch):
            nonlocal now, most
            now += 1
            most = max(most, now)
            try:
                return await super().run(batch)
            finally:
                now -= 1

    jobs = [
        Job(n, Shared(n, batch_size=1, max_in_flight=6, latency=0.003), plan_of(scores(200), f"fp1-{n}")) for n in "ab"
    ]
    await run_jobs(jobs, store, stop=ShutdownRequest())
    assert most == 6


async def test_a_local_model_computes_while_the_last_batch_is_stored(store):
    real_write = store.answers.write
    begun, written = 0, 0
    begins = asyncio.Condition()

    class Watched(FakeBackend):
        async def run(self, batch):
            nonlocal begun
            async with begins:
                begun += len(batch)
                begins.notify_all()
            return await super().run(batch)

    async def write_once_more_has_begun(entries):
        nonlocal written
        written += len(entries)
        async with begins, asyncio.timeout(60):  # for ever, if the next batch waited for this write
            await begins.wait_for(lambda: begun > written or begun == 100)
        return await real_write(entries)

    store.answers.write = write_once_more_has_begun
    outcome = await run(store, Watched("local", device="cpu", batch_size=10, max_in_flight=1), scores(100))
    assert outcome.answered == written == 100


class Writing(LocalBackend):
    """A local model that writes one text after the other, each after ``seconds``; it works in its thread.

    ``on_text`` is called there after each text, with how many there are.
    """

    device, batch_size = "cpu", 100

    def __init__(self, seconds, on_text=lambda written: None):
        super().__init__()
        self.seconds, self.written, self.on_text = seconds, 0, on_text

    def check(self):
        return

    def describe_blocking(self):
        return Description({"name": "writing"}, frozenset({"generate"}))

    def run_blocking(self, batch, on_response=discard_response):
        answers = []
        for place, request in enumerate(batch):
            if self.is_stopped():
                answers.append(StoppedError())
                continue
            time.sleep(self.seconds)
            self.written += 1
            answers.append(GenerateResponse(request.prompt, "stop", 1, 1))
            on_response(place, answers[-1])
            self.on_text(self.written)
        return answers


async def test_local_texts_are_stored_while_their_batch_runs(store):
    seen = []

    def on_event(progress):
        seen.append((progress.done, len(stored(store, texts(20)))))

    outcome = await run(store, Writing(0.11), texts(20), on_event=on_event)
    assert (outcome.answered, outcome.completion_tokens) == (20, 20)
    assert len({done for done, _ in seen}) > 10
    assert all(kept >= done for done, kept in seen)
    assert store.stats()["answers"] == 20


def stopping_at(place, stop):
    """Requests the stop in mid-step: once ``place`` texts are written, and before the next one."""
    loop = asyncio.get_running_loop()

    def on_text(written):
        if written == place:
            asyncio.run_coroutine_threadsafe(_request(stop), loop).result()

    return on_text


async def _request(stop):
    stop.request("SIGINT")
    for _ in range(3):  # until the job knows
        await asyncio.sleep(0)


@pytest.mark.parametrize("size", [100, 10])  # of a batch: all in one, or some that wait for the worker
async def test_a_stop_ends_a_local_batch_and_fails_nothing(size, store):
    stop, events = ShutdownRequest(), []
    backend = Writing(0.0, stopping_at(3, stop))
    backend.batch_size = size
    outcome = await run(store, backend, texts(100), stop=stop, on_event=events.append)
    await backend.close()
    assert backend.written == 3
    assert (outcome.stopped, outcome.answered, outcome.failed, outcome.failures) == ("interrupted", 3, 0, {})
    assert (events[-1].done, events[-1].failed) == (3, 0)
    assert len(stored(store, texts(100))) == store.stats()["answers"] == 3
    assert store.stats()["leases"] == 0
    again = await run(store, Writing(0.0), texts(100))
    assert (again.cached, again.answered, again.failed) == (3, 97, 0)


async def test_a_local_step_longer_than_the_grace_is_kept(store):
    stop = ShutdownRequest(grace=0.01)
    backend = Writing(0.3, lambda written: None)
    asyncio.get_running_loop().call_later(0.1, stop.request, "SIGINT")
    outcome = await run(store, backend, texts(100), stop=stop)
    await backend.close()
    assert outcome.answered == len(stored(store, texts(100))) == backend.written > 0
    assert outcome.failed == 0


async def test_a_batch_after_a_stopped_one_is_computed():
    backend = Writing(0.0, lambda written: backend.stop_computing() if written == 1 else None)
    batch = [GenerateRequest(f"prompt {i}") for i in range(3)]
    first, *rest = await backend.run(batch)
    assert first.text == "prompt 0"
    assert all(isinstance(answer, StoppedError) for answer in rest)
    assert [answer.text for answer in await backend.run(batch)] == [request.prompt for request in batch]
    await backend.close()


async def test_store_failing_during_a_batch_ends_the_run(store):
    async def full(entries):
        raise StoreError(store.path, "full", "no space")

    store.answers.write = full
    with pytest.raises(StoreError, match="no space"):
        await run(store, Writing(0.0), texts(20))


# -- stopping ----------------------------------------------------------------------------------


async def test_stop_lets_requests_in_flight_finish(store):
    stop = ShutdownRequest()

    class Stopping(FakeBackend):
        async def run(self, batch):
            if self.asked.total() >= 20:
                stop.request("SIGINT")
            return await super().run(batch)

    backend = Stopping("server", batch_size=1, max_in_flight=8, latency=0.05)
    outcome = await run(store, backend, scores(300), stop=stop)
    assert outcome.stopped == "interrupted"
    assert 0 < outcome.answered < 300
    assert backend.asked.total() == outcome.answered == len(stored(store, scores(300)))
    assert store.stats()["leases"] == 0
    again = await run(store, backend, scores(300))
    assert again.cached == outcome.answered
    assert set(backend.asked.values()) == {1}


async def test_a_stop_ends_waits_between_attempts_at_once(store):
    backend = server(faults=Faults(1.0, ("server",) * 9))
    stop = ShutdownRequest()
    asyncio.get_running_loop().call_later(0.1, stop.request, "SIGINT")
    async with asyncio.timeout(100):
        outcome = await run(store, backend, stop=stop, retry=RetryPolicy(first_wait=3000.0, longest_wait=3000.0))
    assert outcome.failed == 0  # it was not given up, only not finished


async def test_a_stop_waits_no_longer_than_the_grace(store):
    stop = ShutdownRequest(grace=0.2)
    asyncio.get_running_loop().call_later(0.1, stop.request, "SIGINT")
    started = time.monotonic()
    async with asyncio.timeout(100):
        outcome = await run(store, server(latency=3000.0), stop=stop)
    assert time.monotonic() - started > 0.25
    assert outcome.stopped == "interrupted"


async def test_a_stop_after_all_is_done_changes_nothing(store):
    stop = ShutdownRequest()
    outcome = await run(store, server(), stop=stop)
    stop.request("SIGINT")
    assert outcome.stopped is None


async def test_a_stop_leaves_a_model_that_had_finished_done(store):
    stop = ShutdownRequest(grace=0.2)
    jobs = [
        Job("quick", server(), plan_of(scores(20), FP)),
        Job("slow", server(latency=3000.0), plan_of(scores(20), "another")),
    ]

    def on_event(progress):
        if progress.done == 20:
            asyncio.get_running_loop().call_later(0.3, stop.request, "SIGINT")

    done = await run_jobs(jobs, store, stop=stop, retry=FAST, on_event=on_event)
    assert (done["quick"].stopped, done["quick"].answered) == (None, 20)
    assert done["slow"].stopped == "interrupted"


async def test_a_full_disk_stops_new_requests_at_once(store):
    backend = server(latency=0.01)
    real_write = store.answers.write
    writes = 0

    async def filling(entries):
        nonlocal writes
        writes += 1
        if writes > 10:
            raise StoreError(store.path, "full", "database or disk is full")
        return await real_write(entries)

    store.answers.write = filling
    with pytest.raises(StoreError, match="disk is full"):
        await run(store, backend, scores(5000))
    assert backend.asked.total() <= 10 + 2 * backend.max_in_flight
    assert len(stored(store, scores(30))) == 10


async def test_a_suite_that_breaks_ends_the_run_with_its_own_error(store):
    def broken():
        yield from scores(40)()
        raise LookupError("no such template")

    with pytest.raises(LookupError, match="template"):
        await run(store, server(), broken)


async def test_cancelling_is_not_retried_and_leaves_no_task_behind(store):
    backend = server(latency=30.0)
    task = asyncio.create_task(run(store, backend))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert max(backend.asked.values(), default=0) == 0
    gc.collect()
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


async def test_progress_ends_at_the_total(store):
    events = []
    plan = plan_of(scores(120), FP, total=120)
    await run_jobs([Job("m", server(latency=0.005), plan)], store, stop=ShutdownRequest(), on_event=events.append)
    assert (events[-1].done, events[-1].total, events[-1].failed) == (120, 120, 0)
    assert [e.done for e in events] == sorted(e.done for e in events)


async def test_progress_reports_work_asked_and_left(store):
    for expected in ((sum(range(120)), 0), (0, 0)):  # then all is cached
        events = []
        plan = plan_of(scores(120), FP, total=120, work=range(120))
        await run_jobs([Job("m", server(), plan)], store, stop=ShutdownRequest(), on_event=events.append)
        assert (events[-1].work_asked, events[-1].work_left) == expected
        assert all(e.work_asked + e.work_left <= sum(range(120)) for e in events)


async def test_asking_blocks_no_event_loop(tmp_path, no_blocking):
    store = await asyncio.to_thread(Store.open, tmp_path / "a.db")
    await run(store, server(latency=0.001), scores(300))
    await asyncio.to_thread(store.close)

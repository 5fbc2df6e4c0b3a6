"""What every executor does: it answers what is asked, once, and tells errors as the backend does."""

from __future__ import annotations

import asyncio
import json
import os

from audit import Audit
from audit.collect.jobs import Job, RetryPolicy
from audit.collect.scheduler import run_jobs
from audit.collect.shutdown import ShutdownRequest
from audit.report.exports import json_report
from audit.store import Store
from backends.base import GenerateRequest, ScoreRequest
from backends.stand_ins.fake import FakeBackend, Faults
from suites import GenderPair, OccuGender
from suites.base import Item
from tests.audit.collect.executors.asked import SlowTexts, processes, questions, writing_model
from tests.audit.collect.plans import plan_of
from tests.suites.genderpair.planted import SMALL

FP = "fp1-test"


def scores(n):
    return lambda: (Item(f"i{i}", ScoreRequest(f"prompt {i}", (" a", " b")), {}) for i in range(n))


async def run(folder, backend, executor, n=100):
    with Store.open(folder / "audit.db") as store:
        job = Job("m", backend, plan_of(scores(n), FP))
        retry = RetryPolicy(attempts=4, first_wait=0.001, longest_wait=0.01)
        return (await run_jobs([job], store, stop=ShutdownRequest(), executor=executor, retry=retry))["m"]


async def test_all_is_asked_once_and_nothing_by_a_second_run(executor, tmp_path):
    outcome = await run(tmp_path, writing_model(tmp_path / "asked"), executor)
    assert (outcome.items, outcome.answered, outcome.failed, outcome.stopped) == (100, 100, 0, None)
    assert set(questions(tmp_path / "asked").values()) == {1}
    assert len(questions(tmp_path / "asked")) == 200
    outcome = await run(tmp_path, writing_model(tmp_path / "again"), executor)
    assert (outcome.cached, questions(tmp_path / "again")) == (100, {})


async def test_a_stop_ends_batches_that_are_computed(executor, tmp_path):
    path, stop, n = tmp_path / "asked", ShutdownRequest(grace=1000), 2000

    async def stop_at_the_third():
        while not path.exists() or len(path.read_text().splitlines()) < 3:  # noqa: ASYNC110 (of another process)
            await asyncio.sleep(0.01)
        stop.request("SIGINT")

    def items():
        return (Item(f"i{i}", GenerateRequest(f"prompt {i}"), {}) for i in range(n))

    stopping = asyncio.create_task(stop_at_the_third())
    with Store.open(tmp_path / "audit.db") as store:
        job = Job("m", SlowTexts(path, 0.05), plan_of(items, FP))
        outcome = (await run_jobs([job], store, stop=stop, executor=executor))["m"]
        assert store.stats()["answers"] == outcome.answered
    await stopping
    assert 3 <= outcome.answered == len(path.read_text().splitlines()) < SlowTexts.batch_size, "of one batch or two"
    assert (outcome.stopped, outcome.failed) == ("interrupted", 0)


async def test_temporary_failures_are_asked_again(executor, tmp_path):
    model = writing_model(tmp_path / "asked", faults=Faults(0.3, ("server",)))
    outcome = await run(tmp_path, model, executor)
    assert (outcome.answered, outcome.failed) == (100, 0)
    assert outcome.retried > 10


async def test_final_failures_are_counted_with_their_reason(executor, tmp_path):
    model = writing_model(tmp_path / "asked", faults=Faults(0.1, ("context_length",), permanent=True))
    outcome = await run(tmp_path, model, executor)
    assert outcome.answered + outcome.failed == 100
    assert outcome.reasons == {"context_length": "context_length: planted fault (planned by Faults)"}


async def test_a_backend_that_raises_is_told_by_its_name(executor, tmp_path):
    def score(prompt, continuation):
        raise KeyError("no such group")

    outcome = await run(tmp_path, FakeBackend("raising", score=score, device="cpu"), executor, n=10)
    assert outcome.failed == 10
    assert outcome.reasons == {"internal": "internal: FakeBackend.run raised KeyError: 'no such group'"}


async def test_what_a_backend_notes_of_its_run_is_kept(executor, tmp_path):
    class Noting(FakeBackend):
        def notes_of_run(self):
            return {"route": "planted"} if self.asked else {}

    assert (await run(tmp_path, Noting("noting", device="cpu"), executor)).notes == {"route": "planted"}


async def test_servers_are_asked_from_this_process(executor, tmp_path):
    outcome = await run(tmp_path, writing_model(tmp_path / "asked", device=None), executor)
    assert outcome.answered == 100
    assert processes(tmp_path / "asked") == [os.getpid()]


def said(result):
    report = json.loads(json_report(result))
    for name in ("run_id", "started", "finished", "source"):
        del report[name]
    for model in report["models"]:
        del model["seconds"]
    return json.dumps(report, indent=1)


def test_the_report_does_not_depend_on_the_executor(executor, tmp_path):
    def audited(name, executor):
        models = {model: FakeBackend(model, device="cpu") for model in ("first", "second")}
        suites = [OccuGender(("implicit",)), GenderPair(pairs=SMALL, toxicity=None, regard=None)]
        options = {"db": tmp_path / f"{name}.db", "out": tmp_path / name, "limit": 36, "small_sample": True}
        return Audit(models, suites, executor=executor, **options).run_sync()

    assert said(audited("own", executor)) == said(audited("default", None))

"""Who is asked when, and that nothing is told of before it is stored."""

from __future__ import annotations

import asyncio

import pytest

from audit.collect import Job, ShutdownRequest, job_run, run_jobs
from audit.collect.executors import Executor
from audit.store import Store
from backends import FakeBackend
from backends.base import GenerateRequest
from backends.stand_ins.fake import Faults
from tests.audit.store.entries import asks_of

REQUESTS = [GenerateRequest(f"prompt {number}") for number in range(20)]


class Noting(FakeBackend):
    """Notes when it answers and when it is closed, and how many of its kind are asked at once."""

    noted: list[str]
    at_once: list[int]
    endpoint: str | None = None

    async def run(self, batch):
        self.noted.append(self.name)
        self.at_once[0] += 1
        self.at_once[1] = max(self.at_once)
        try:
            return await super().run(batch)
        finally:
            self.at_once[0] -= 1

    async def close(self):
        self.noted.append(f"close {self.name}")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(Noting, "noted", [], raising=False)
    monkeypatch.setattr(Noting, "at_once", [0, 0], raising=False)
    for name, value in {"ATTEMPTS": 3, "FIRST_WAIT_SECONDS": 0.001, "LONGEST_WAIT_SECONDS": 0.002}.items():
        monkeypatch.setattr(job_run, name, value)


async def asked(path, *backends, on_event=lambda event: None):
    with Store.open(path) as store:
        jobs = [Job(one.name, one, asks_of(store, REQUESTS, one.name)[0]) for one in backends]
        return await run_jobs(jobs, store, Executor(), run_id="r", stop=ShutdownRequest(), on_event=on_event)


async def test_models_of_one_device_take_turns(tmp_path):
    await asked(tmp_path / "a.db", *(Noting(name, device="cpu", batch_size=5) for name in "ab"))
    assert Noting.noted == [*"aaaa", "close a", *"bbbb", "close b"]


async def test_servers_are_asked_at_once(tmp_path):
    both = asyncio.Barrier(2)

    class Meeting(FakeBackend):
        async def run(self, batch):
            await asyncio.wait_for(both.wait(), 60)  # each answers once the other is asked, too
            return await super().run(batch)

    found = await asked(tmp_path / "a.db", *(Meeting(name, batch_size=20) for name in "ab"))
    assert [outcome.answered for outcome in found.values()] == [20, 20]


async def test_models_of_one_endpoint_share_what_it_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(Noting, "endpoint", "https://one.example")
    await asked(tmp_path / "a.db", *(Noting(name, batch_size=1, latency=0.001, max_in_flight=2) for name in "abc"))
    assert Noting.at_once[1] == 2


async def test_nothing_is_told_of_before_it_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(job_run, "PROGRESS_SECONDS", 0.0)
    told = []

    def on_event(event):
        with Store.open(tmp_path / "a.db", read_only=True) as store:
            told.append((event.done, store.stats()["answers"]))

    backend = FakeBackend("a", batch_size=1, latency=0.02, max_in_flight=1)
    await asked(tmp_path / "a.db", backend, on_event=on_event)
    assert all(done <= stored for done, stored in told)
    assert len(told) > 15
    assert told[-1] == (20, 20)


async def test_a_failure_that_may_pass_is_asked_again_and_any_other_is_not(tmp_path):
    passing = FakeBackend("passing", faults=Faults(1.0, kinds=("server", "timeout")))
    failing = FakeBackend("failing", faults=Faults(1.0, permanent=True))
    found = await asked(tmp_path / "a.db", passing, failing)
    assert (found["passing"].answered, found["passing"].retried, found["passing"].failed) == (20, 40, 0)
    assert (found["failing"].answered, found["failing"].retried) == (0, 0)
    assert set(failing.asked.values()) == {1}

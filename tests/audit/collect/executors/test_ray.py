"""Actors of a Ray cluster: what happens when they are lost, differ, or find no room."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import random
import signal
import socket
import threading

import psutil
import pytest

from audit import Audit
from audit.collect.executors import shard_owners
from audit.collect.executors.ray import ATTEMPTS, IN_FLIGHT, RayExecutor, RayPool
from audit.collect.executors.shard_owners import owner_name
from audit.store import Store, answer_keys
from audit.store.shards import shard_files, shard_id
from backends.base import Description, ScoreRequest
from backends.errors import BackendError, ConfigError
from backends.stand_ins.fake import FakeBackend
from suites import OccuGender
from tests.audit.collect.executors import kills
from tests.audit.collect.executors.asked import processes, questions, writing_model
from tests.audit.collect.executors.test_executors import run, scores
from tests.audit.store.entries import answers_by_key, entry, sql

FP = "fp1-test"


async def _kill(path, times):
    """Kill the process that was asked last, ``times`` times, each time another one."""
    killed = set()
    while len(killed) < times:
        await asyncio.sleep(0.05)
        alive = [pid for pid in processes(path) if pid not in killed] if path.exists() else []
        if alive:
            os.kill(alive[-1], signal.SIGKILL)
            killed.add(alive[-1])


@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("actors", "kills"), [(1, 2), (2, 4)])
async def test_killed_actors_lose_and_double_nothing(actors, kills, ray_of, tmp_path):
    path, size = tmp_path / "asked", 8
    killing = asyncio.create_task(_kill(path, kills))
    outcome = await run(tmp_path, writing_model(path, 0.01, batch_size=size), ray_of(actors), n=400)
    await killing
    assert (outcome.answered, outcome.failed, outcome.stopped) == (400, 0, None)
    asked = questions(path)
    assert len(asked) == 800
    assert asked.total() - 800 <= 2 * size * IN_FLIGHT * kills, "paid twice: at most what was in flight"
    with Store.open(tmp_path / "audit.db", read_only=True) as store:
        assert (
            len(answers_by_key(store, [key for item in scores(400)() for key in answer_keys(item.request, FP)])) == 800
        )
        assert store.stats()["answers"] == 800


@pytest.fixture(scope="module")
def lab():
    """A cluster of several raylets, of its own."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: make test-ray")
    lab = kills.Lab()
    yield lab
    lab.close()


@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", kills.KINDS)
def test_whatever_is_killed_loses_and_doubles_nothing(kind, lab):
    outcome = kills.one_run(lab, kind, 2, random.Random(kind), 600)
    assert outcome.kills == 2
    assert outcome.holds, outcome


@pytest.mark.ray
async def test_owners_in_a_cluster_store_what_one_process_would(ray_of, tmp_path):
    executor = ray_of(1)
    with Store.open(tmp_path / "audit.db", shards=2) as store:
        await executor.own(store)
        await store.leases.take([entry(i).question for i in range(100)])
        await store.answers.write([entry(i) for i in range(100)])
        await store.leases.renew()
        assert sum(sql(file, "SELECT epoch FROM shard")[0][0] for file in shard_files(store.path, 2)) == 2
        await executor.close()
        await store.answers.write([entry(i) for i in range(90, 110)])
        assert store.stats()["leases"] == 0
        keys = [key for i in range(110) for key in entry(i).question.keys]
        assert len(answers_by_key(store, keys)) == 220
        assert store.stats()["answers"] == 220


@pytest.mark.ray
@pytest.mark.parametrize("seconds", [1.5, 60])
async def test_an_owner_that_is_slow_stays_until_it_is_too_slow(ray_of, tmp_path, seconds, monkeypatch):
    monkeypatch.setattr(shard_owners, "_ASK_AFTER", 1.0)
    executor = ray_of(1)
    with Store.open(tmp_path / "audit.db", shards=2) as store:
        await executor.own(store)
        await store.answers.write([entry(i) for i in range(20)])
        children = psutil.Process().children(recursive=True)
        owners = [process for process in children if "ray::ShardOwner" in " ".join(process.cmdline())]
        assert len(owners) == 2
        for process in owners:
            process.suspend()
        writing = asyncio.create_task(store.answers.write([entry(i) for i in range(20, 40)]))
        await asyncio.wait([writing], timeout=seconds)
        for process in owners:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        await writing
        epochs = sum(sql(file, "SELECT epoch FROM shard")[0][0] for file in shard_files(store.path, 2))
        assert (epochs == 2) == (seconds < 5)
        await executor.close()
        assert store.stats()["answers"] == 80


@pytest.mark.ray
async def test_a_copy_of_a_store_has_owners_of_its_own(ray_of, tmp_path):
    with Store.open(tmp_path / "audit.db", shards=2) as store:
        store.backup(tmp_path / "copy.db")
        executors = ray_of(1), ray_of(1)
        with Store.open(tmp_path / "copy.db") as copy:
            for executor, owned in zip(executors, (store, copy), strict=True):
                await executor.own(owned)
            await store.answers.write([entry(i) for i in range(10)])
            await copy.answers.write([entry(i) for i in range(10, 30)])
            for executor in executors:
                await executor.close()
            assert (store.stats()["answers"], copy.stats()["answers"]) == (20, 40)
            assert len(answers_by_key(copy, [key for i in range(10, 30) for key in entry(i).question.keys])) == 40


def test_an_owner_is_named_by_its_file_and_node(tmp_path):
    with Store.open(tmp_path / "audit.db", shards=2) as store:
        store.backup(tmp_path / "copy.db")
    (tmp_path / "link").symlink_to(tmp_path)
    files = [*shard_files(tmp_path / "audit.db", 2), *shard_files(tmp_path / "copy.db", 2)]
    by_file = [owner_name(file, shard_id(file), "node") for file in files]
    assert len({*by_file, owner_name(files[0], shard_id(files[0]), "another")}) == 5
    by_link = [owner_name(file, shard_id(file), "node") for file in shard_files(tmp_path / "link" / "audit.db", 2)]
    assert by_link == by_file[:2]


@pytest.mark.ray
@pytest.mark.timeout(600)
async def test_a_batch_that_ends_its_actors_fails_alone(ray_of, tmp_path):
    def score(prompt, continuation):
        if prompt == "prompt 3":
            os._exit(1)
        return 0.5

    model = FakeBackend("exits", score=score, device="cpu", batch_size=1)
    outcome = await run(tmp_path, model, ray_of(1), n=12)
    assert outcome.answered >= 10, "the one that waited at the same actors may fail with it"
    assert f"{ATTEMPTS} actors were lost" in outcome.reasons["internal"]


class Elsewhere(FakeBackend):
    """A model that is another one in another process, as on another kind of device."""

    async def describe(self):
        own = await super().describe()
        return Description({**own.fingerprint, "device": os.getpid()}, own.capabilities)


@pytest.mark.ray
async def test_an_actor_that_is_another_model_answers_nothing(ray_of, tmp_path):
    outcome = await asyncio.wait_for(run(tmp_path, Elsewhere("moves", device="cpu"), ray_of(2), n=900), 60)
    assert outcome.answered == 0
    assert "no actor of the model can be used: device is" in outcome.reasons["internal"]


class Locked(FakeBackend):
    """A model that cannot travel to another process."""

    def __init__(self, name, **options):
        super().__init__(name, **options)
        self.lock = threading.Lock()


@pytest.mark.ray
async def test_a_model_that_cannot_travel_to_actors_says_so(ray_of, tmp_path):
    outcome = await asyncio.wait_for(run(tmp_path, Locked("l", device="cpu"), ray_of(2)), 60)
    assert outcome.answered == 0
    assert "no actor of the model can be used: TypeError: Could not serialize" in outcome.reasons["internal"]


class Lost:
    """An actor on a cluster that ends while it starts."""

    def __init__(self, _, message):
        self.differs_from, self._message = self, message

    async def remote(self, *_):
        from ray.exceptions import RayActorError

        raise RayActorError(error_msg=self._message)


@pytest.mark.ray
@pytest.mark.parametrize(
    ("message", "kind", "for_good"),
    [
        ("The actor never ran - it was cancelled before it started running.", "connection", 0),
        ("The actor died because of an error raised in its creation task", "internal", 2),
    ],
)
async def test_a_cluster_that_ends_is_worth_another_try(ray_of, tmp_path, monkeypatch, message, kind, for_good):
    monkeypatch.setattr(RayPool, "_create", lambda pool: Lost(pool, message))
    outcome = await asyncio.wait_for(run(tmp_path, FakeBackend("m", device="cpu"), ray_of(1), n=2), 60)
    assert (outcome.answered, dict(outcome.failures), outcome.for_good) == (0, {kind: 2}, for_good)
    assert "no actor of the model can be used: The actor" in outcome.reasons[kind]


@pytest.mark.ray
async def test_an_error_without_words_ends_a_run_too(ray_of, tmp_path, monkeypatch):
    def fail(_):
        raise AssertionError

    monkeypatch.setattr(RayPool, "_create", fail)
    outcome = await asyncio.wait_for(run(tmp_path, FakeBackend("m", device="cpu"), ray_of(1), n=2), 60)
    assert "no actor of the model can be used: AssertionError" in outcome.reasons["internal"]


@pytest.mark.ray
async def test_actors_refused_at_the_same_time_answer_nothing(cluster, monkeypatch):
    said = asyncio.Event()

    class Actor:
        class differs_from:
            @staticmethod
            async def remote(fingerprint):
                await said.wait()
                return "device is 1, not 2"

    pool = RayPool(FakeBackend("m", device="cpu"), 2, 1, 0, asked_for=2)
    monkeypatch.setattr(pool, "_create", Actor)
    asyncio.get_running_loop().call_later(0.2, said.set)
    (answer,) = await asyncio.wait_for(pool.run([ScoreRequest("p", (" a",))], lambda *_: None), 10)
    assert "no actor of the model can be used: device is" in str(answer)


@pytest.mark.ray
async def test_actors_that_no_node_has_room_for_are_refused(cluster):
    for options in ({"cpus": 1000}, {"gpus": 1}, {"cpus": 0}):
        with pytest.raises(ConfigError, match="executor"):
            await RayExecutor(**options).pool(FakeBackend("m", device="cpu"))


@pytest.mark.ray
async def test_a_pool_has_no_more_actors_than_there_is_room(cluster):
    pool = await RayExecutor(actors=50, cpus=1).pool(FakeBackend("m", device="cpu"))
    assert pool.max_in_flight == 2 * IN_FLIGHT
    assert pool.actors() == (0, 50), "progress names those asked for, which there is no room for"


@pytest.mark.ray
@pytest.mark.parametrize("where", ["option", "environment"])
async def test_an_address_without_a_cluster_is_refused_at_once(where, cluster, monkeypatch):
    import ray

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
        monkeypatch.setattr(ray, "init", lambda *args, **options: pytest.fail("tried, for 14 minutes"))
        if where == "environment":
            monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, match=f"{address}.*nothing listens there"):
            await RayExecutor(address=address if where == "option" else None).pool(FakeBackend("m", device="cpu"))


def test_changed_options_leave_the_others_of_an_executor():
    changed = RayExecutor(address="head:6379", actors=8, cpus=2, gpus=1).changed(actors=4)
    assert (changed.address, changed.actors, changed.cpus, changed.gpus) == ("head:6379", 4, 2, 1)


async def test_ray_that_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"bias-audit\[ray\]"):
        await RayExecutor().pool(FakeBackend("m", device="cpu"))


@pytest.mark.parametrize("options", [{"actors": 0}, {"cpus": -1}, {"gpus": "many"}])
def test_wrong_options_of_ray_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        RayExecutor(**options)


def test_what_is_no_executor_is_refused():
    with pytest.raises(ConfigError, match="RayExecutor"):
        Audit({"m": FakeBackend("m")}, [OccuGender()], executor="ray")


def test_a_failure_travels_between_processes():
    import pickle

    error = BackendError("server", "down", retryable=True, retry_after=2.0, hint="wait")
    assert pickle.loads(pickle.dumps(error)).to_json() == error.to_json()
    assert ScoreRequest("p", (" a",)) == pickle.loads(pickle.dumps(ScoreRequest("p", (" a",))))

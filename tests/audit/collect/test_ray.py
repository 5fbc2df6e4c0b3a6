"""Models in actors of a Ray cluster: the values of one process, whatever is lost, stopped or killed on the way."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from audit import Audit, RayExecutor
from audit.collect import ShutdownRequest
from backends import FakeBackend, HFBackend
from backends.base import Description
from backends.errors import StoppedError
from backends.local.backend import LocalBackend, discard_response
from suites import OccuGender
from tests.audit.run.test_shards import said

ROOT = Path(__file__).parents[3]
N = 48
pytestmark = [pytest.mark.ray]
pytestmark += [pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")]


@pytest.fixture(scope="module")
def cluster():
    """An executor that finds one leaves it as it is."""
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    yield
    ray.shutdown()


def fake(name="planted", **options):
    return FakeBackend(name, device="cpu", batch_size=4, **options)


def audit_of(model, db, actors=None, **options):
    executor = None if actors is None else RayExecutor(actors=actors, cpus=0.5)
    options = {"executor": executor, "limit": N, "small_sample": True, **options}
    return Audit({"m": model}, [OccuGender()], db=db, out=db.parent / "out", **options)


async def test_values_are_those_of_one_process(cluster, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    from tests.backends.local.tiny_models import GROUPED, save_model_of

    long = {**GROUPED, "max_position_embeddings": 1024}
    tiny = save_model_of(lambda size: transformers.LlamaConfig(**long, vocab_size=size), tmp_path / "tiny")
    monkeypatch.setattr(HFBackend, "batch_size", 8)  # several batches, for several actors
    for model in (fake(), HFBackend(tiny, device="cpu", dtype="float32", threads=1)):
        local = await audit_of(model, tmp_path / f"{type(model).__name__}.db").run()
        assert local.complete
        for actors, shards in ((1, 4), (2, 1)):
            db = tmp_path / f"{type(model).__name__} {actors} {shards}.db"
            result = await audit_of(model, db, actors, store_shards=shards).run()
            assert (result.models[0].asked, said(result)) == (N, said(local)), (actors, shards)
            assert len(list(tmp_path.glob(f"{db.stem}.shard-*.db"))) == (shards > 1) * shards


@pytest.mark.parametrize("actors", [1, 2])
async def test_what_is_killed_loses_no_answer(actors, cluster, tmp_path):
    killed = set()

    def kill(event):
        if event.done >= 8 * (1 + len(killed)) and len(killed) < 3:
            found = [one for one in psutil.Process().children(recursive=True) if one.pid not in killed]
            for process in [one for one in found if "".join(one.cmdline()[:1]).startswith("ray::ModelActor")][:1]:
                killed.add(process.pid)
                process.kill()

    result = await audit_of(fake(latency=0.2), tmp_path / "a.db", actors, store_shards=2).run(on_event=kill)
    local = await audit_of(fake(), tmp_path / "local.db").run()
    assert len(killed) == 3
    assert (result.complete, result.models[0].failed, said(result)) == (True, 0, said(local))


async def test_a_batch_that_ends_its_actors_fails_alone_and_models_take_turns(cluster, tmp_path):
    prompts = set()
    await audit_of(fake(score=lambda prompt, _: prompts.add(prompt) or 0.01), tmp_path / "local.db").run()
    fatal = min(prompts)
    exits = fake(score=lambda prompt, _: os._exit(1) if prompt == fatal else 0.01)
    audit = audit_of(exits, tmp_path / "a.db", executor=RayExecutor(cpus=2))  # all that there is
    audit.models["second"] = fake("second")
    first, second = (await audit.run()).models
    assert 4 <= first.failed <= 8, "its own batch, and the one that waited at the same actor"
    assert (second.failed, second.asked) == (0, N)


class Slow(LocalBackend):
    """A local model that answers one question after the other; each becomes a dot in ``path``."""

    device, batch_size, check = "cpu", N, lambda _: None

    def __init__(self, path, fingerprint=dict):
        super().__init__()
        self.path, self.fingerprint = path, fingerprint
        path.touch()

    def describe_blocking(self):
        return Description({"name": "slow", **self.fingerprint()}, frozenset({"score"}))

    def run_blocking(self, batch, on_response=discard_response):
        return [StoppedError() if self.is_stopped() else self.answer(request) for request in batch]

    def answer(self, request):
        self.path.write_text(f"{self.path.read_text()}.")
        time.sleep(0.1)
        return FakeBackend()._answer(request)


async def test_an_actor_that_is_another_model_answers_nothing(cluster, tmp_path):
    elsewhere = Slow(tmp_path / "asked", lambda: {"device": os.getpid()})  # as on another kind of device
    model = (await audit_of(elsewhere, tmp_path / "a.db", 2).run()).models[0]
    assert "no actor of the model can be used: device is" in model.unloaded
    assert elsewhere.path.read_text() == ""


async def test_a_stop_ends_an_actor_after_the_step_at_hand(cluster, tmp_path):
    slow, stop = Slow(tmp_path / "asked"), ShutdownRequest()

    def stop_soon():
        while len(slow.path.read_text()) < 3:
            time.sleep(0.02)

    running = asyncio.create_task(audit_of(slow, tmp_path / "a.db", 1).run(stop=stop))
    await asyncio.to_thread(stop_soon)
    stop.request("SIGINT")
    stopped = await running
    assert (stopped.interrupted, stopped.models[0].failed) == (True, 0)
    assert 3 <= stopped.models[0].asked == len(slow.path.read_text()) < N
    resumed = await audit_of(slow, tmp_path / "a.db", 1).run()
    assert (resumed.complete, len(slow.path.read_text())) == (True, N)


CONFIG = """
from tests.audit.collect.test_ray import Audit, FakeBackend, OccuGender

model = FakeBackend("planted", device="cpu", batch_size=4, latency=0.3)
audit = Audit({"m": model}, [OccuGender()], db="a.db", out="out", limit=48, small_sample=True, store_shards=4)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_resumes(number, tmp_path):
    (tmp_path / "config.py").write_text(CONFIG)
    command = [sys.executable, "-m", "audit", "run", "config.py", "--json", "--executor", "ray"]
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "stdout": -1, "text": True}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, **options)
    while json.loads(process.stderr.readline())["progress"]["done"] < 8:
        pass
    started = [one for one in psutil.Process(process.pid).children(recursive=True) if "Actor" in one.name()]
    process.send_signal(number)
    process.communicate()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert started
    assert psutil.wait_procs(started, timeout=60)[1] == [], "no model is left"
    result = json.loads(subprocess.run(command, check=True, **options).stdout)
    model = result["models"][0]
    assert (result["complete"], model["asked"] + model["cached"]) == (True, 48)
    assert model["cached"] >= 8

"""Kills of everything that a run on a cluster is made of: nothing is lost, wrong or stored twice.

``python -m tests.audit.collect.executors.kills [--kills 30] [--kinds actor owner raylet driver]``

Several raylets on this machine, a store of two shards, and planted models that write down what they are asked. After
each kill the run has to go on before the next one comes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from audit.collect.executors.ray import IN_FLIGHT, RayExecutor
from audit.collect.jobs import Job
from audit.collect.scheduler import run_jobs
from audit.collect.shutdown import ShutdownRequest
from audit.store import Store, keyed_request
from audit.store.shards import shard_files
from backends.base import ScoreRequest, ScoreResponse
from suites.base import Item
from tests.audit.collect.executors.asked import planted_score, questions, writing_model
from tests.audit.collect.plans import plan_of

KINDS = ("actor", "owner", "raylet", "driver")
ACTORS, SHARDS, BATCH = 2, 2, 8
_FP = "fp1-kills"
_CONTINUATIONS = (" a", " b")
#: The most questions in flight when one of a kind is lost: at an actor; of a driver also a batch that is being stored.
IN_FLIGHT_OF = {
    "actor": BATCH * IN_FLIGHT,
    "owner": 0,
    "raylet": BATCH * IN_FLIGHT * ACTORS,
    "driver": BATCH * (IN_FLIGHT * ACTORS + 1),
}
_NO_PROGRESS_SECONDS = 240.0


def items(number: int) -> Iterator[Item]:
    """The questions of a run."""
    return (Item(f"i{i}", ScoreRequest(f"prompt {i}", _CONTINUATIONS), {}) for i in range(number))


@dataclass(frozen=True)
class Outcome:
    """Of one kind of kill; all but the kills are counted in questions. ``allowed`` is what was in flight at most."""

    kind: str
    kills: int
    asked: int
    lost: int
    wrong: int
    twice: int
    paid_twice: int
    allowed: int
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether nothing happened that must not."""
        return self.lost == self.wrong == self.twice == 0 and self.paid_twice <= self.allowed


class Lab:
    """A cluster of one raylet for the driver and the owners, and two for the models.

    Processes are killed by their ids, which are those of the cluster's own children.
    """

    def __init__(self) -> None:
        os.environ.update(RAY_USAGE_STATS_ENABLED="0", PYTHONPATH=os.getcwd())
        from ray.cluster_utils import Cluster

        small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
        self.cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
        self._small = small
        self.workers = [self._add() for _ in range(2)]

    def _add(self) -> Any:
        return self.cluster.add_node(num_cpus=1, object_store_memory=self._small["object_store_memory"])

    def close(self) -> None:
        """End all that was started."""
        self.cluster.shutdown()

    def kill_worker(self, name: str, nodes: Sequence[Any], draw: random.Random) -> bool:
        """Kill a process of an actor on some nodes; whether there was one."""
        found = [process for node in nodes for process in _children(node) if _is_actor(process, name)]
        if found:
            draw.choice(found).kill()
        return bool(found)

    def kill_raylet(self, draw: random.Random) -> bool:
        """Kill one of the models' raylets, and let another one join."""
        lost = self.workers.pop(draw.randrange(len(self.workers)))
        self.cluster.remove_node(lost, allow_graceful=False)
        self.workers.append(self._add())
        return True

    def kill(self, kind: str, driver: subprocess.Popen[bytes], draw: random.Random) -> bool:
        """Kill one of a kind; whether there was one to kill."""
        if kind == "actor":
            return self.kill_worker("ModelActor", self.workers, draw)
        if kind == "owner":
            return self.kill_worker("ShardOwner", [self.cluster.head_node, *self.workers], draw)
        if kind == "raylet":
            return self.kill_raylet(draw)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        return True


def _children(node: Any) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        (raylet,) = node.all_processes["raylet"]
        children: list[psutil.Process] = psutil.Process(raylet.process.pid).children(recursive=True)
        return children
    return []


def _is_actor(process: psutil.Process, name: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline()).startswith(f"ray::{name}")
    return False


def one_run(lab: Lab, kind: str, kills: int, draw: random.Random, number: int) -> Outcome:
    """One run of ``number`` questions with at most so many kills, each at a random moment after the run went on."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder, done = Path(name), 0
        driver = _start(lab, folder, number)
        try:
            while True:
                code = _progress(driver, folder, draw.randint(20, 150) if done < kills else number)
                if code == 0:
                    break
                if code is not None:  # it goes with its raylet; else nothing that was killed ends a driver
                    assert kind in ("raylet", "driver"), (folder / "log").read_text()[-3000:]
                    driver = _start(lab, folder, number)
                elif done < kills and lab.kill(kind, driver, draw):
                    done += 1
                    if kind == "driver":
                        driver = _start(lab, folder, number)
        finally:
            driver.kill()
            driver.wait()
        return _outcome(folder, kind, done, number, time.monotonic() - started)


def _start(lab: Lab, folder: Path, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.audit.collect.executors.kills", "--drive", lab.cluster.address]
    with (folder / "log").open("ab") as log:
        given = [str(folder), str(number)]
        return subprocess.Popen([*command, *given], stdout=log, stderr=log)


def _progress(driver: subprocess.Popen[bytes], folder: Path, answers: int) -> int | None:
    """Wait until so many more questions are stored, or the driver ends: its exit code then."""
    before, deadline = _stored(folder), time.monotonic() + _NO_PROGRESS_SECONDS
    while _stored(folder) - before < answers:
        if (code := driver.poll()) is not None:
            return code
        now = _stored(folder)
        assert time.monotonic() < deadline or now > before, (folder / "log").read_text()[-3000:]
        time.sleep(0.02)
    return None


def _stored(folder: Path) -> int:
    count = 0
    for file in shard_files(folder / "audit.db", SHARDS):
        if file.exists():
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(file, timeout=5)) as db:
                count += db.execute("SELECT count(*) FROM packed_scores").fetchone()[0]
    return count


def _outcome(folder: Path, kind: str, kills: int, number: int, seconds: float) -> Outcome:
    wanted = [keyed_request(item.request, _FP) for item in items(number)]
    with Store.open(folder / "audit.db") as store:
        found = store.answers.read(wanted)
        assert store.answers.verify().sound
        twice = (store.stats()["answers"] - len(wanted) * len(_CONTINUATIONS)) // len(_CONTINUATIONS)
    answers = [found.answer(one) for one in wanted]
    expected = [planted_score(f"prompt {i}") for i in range(number)]
    wrong = sum(
        isinstance(answer, ScoreResponse) and [score.logprob for score in answer.scores] != right
        for answer, right in zip(answers, expected, strict=True)
    )
    lost = sum(not isinstance(answer, ScoreResponse) for answer in answers)
    asked = questions(folder / "asked").total() / len(_CONTINUATIONS)
    paid_twice = round(asked - number)
    return Outcome(kind, kills, number, lost, wrong, max(twice, 0), paid_twice, kills * IN_FLIGHT_OF[kind], seconds)


async def drive(address: str, folder: Path, number: int) -> None:
    """The driver: ask all questions, as a run does."""
    executor = RayExecutor(address=address, actors=ACTORS, cpus=0.5)
    with Store.open(folder / "audit.db", shards=SHARDS) as store:
        await executor.own(store)
        try:
            model = writing_model(folder / "asked", 0.002, batch_size=BATCH)
            job = Job("m", model, plan_of(lambda: items(number), _FP))
            outcome = (await run_jobs([job], store, stop=ShutdownRequest(), executor=executor))["m"]
        finally:
            await executor.close()
    assert outcome.failed == 0, outcome.reasons


def main() -> int:
    """Print a line for each kind; 1 if something happened that must not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--questions", type=int, default=1500, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", nargs=3, metavar=("ADDRESS", "FOLDER", "QUESTIONS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        address, folder, number = given.drive
        asyncio.run(drive(address, Path(folder), int(number)))
        return 0
    print(
        f"{'killed':8} kills   runs  questions  lost  wrong  twice  paid twice  in flight at most  seconds", flush=True
    )
    lab, holds = Lab(), True
    try:
        for kind in given.kinds:
            draw, outcomes = random.Random(f"{kind} {given.seed}"), list[Outcome]()
            while (left := given.kills - sum(one.kills for one in outcomes)) > 0:
                outcomes.append(one_run(lab, kind, left, draw, given.questions))
            holds &= all(one.holds for one in outcomes)
            names = ("kills", "asked", "lost", "wrong", "twice", "paid_twice", "allowed", "seconds")
            kills, *sums = (sum(getattr(one, name) for one in outcomes) for name in names)
            numbers = "{:10,.0f} {:5.0f} {:6.0f} {:6.0f} {:11,.0f} {:18,.0f} {:8,.0f}".format(*sums)
            print(f"{kind:8} {kills:5} {len(outcomes):6} {numbers}", flush=True)
    finally:
        lab.close()
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())

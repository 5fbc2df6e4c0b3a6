"""The fault laboratory: whatever fails, no answer is lost, wrong, left open, or paid for without need.

`python -m tests.faults.test_faults` kills audits and merges 60 times at each step (a quarter of an hour).
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from audit.collect import Job, ShutdownRequest, job_run, run_jobs
from audit.collect.executors import Executor
from audit.store import Store
from backends import OpenAIBackend
from backends.base import GenerateRequest
from tests.audit.store.entries import asks_of
from tests.faults.child import KILL_POINTS, Spec
from tests.faults.faults import MAY_FAIL, REFUSED_FOR_GOOD, SERVER_FAULTS, SLOW, Fate
from tests.faults.lab import Lab, Verdict, acknowledged

pytestmark = pytest.mark.faults

LIVES = 4  # a run that ended early is simply started again, as its user would


def _live_on(lab: Lab, spec: Spec) -> Verdict:
    """Start it again until nothing is missing, then check."""
    for _ in range(LIVES):
        lab.run(spec)
        verdict = lab.check(spec)
        if verdict.answered == len(spec.prompts):
            break
    return verdict


def server_fault(fault: str) -> Callable[[Lab, str], Verdict]:
    """A server that fails in one way."""

    def trial(lab: Lab, name: str) -> Verdict:
        spec = lab.spec(fault, name)
        if fault in SLOW:
            spec = replace(spec, timeout=3.0)
        verdict = _live_on(lab, spec)
        if fault not in MAY_FAIL:
            assert verdict.answered == 40, f"{fault}: {verdict}"
        elif fault != "permanent-5xx":  # that is broken for good
            assert verdict.failed == 0, f"{fault}: {verdict}"
        return verdict

    return trial


def killed_at(point: str) -> Callable[[Lab, str], Verdict]:
    """kill -9 at a named point, some passings into the run."""

    def trial(lab: Lab, name: str) -> Verdict:
        after = random.Random(f"{point} {name}").randint(1, 8)
        spec = lab.spec("none", f"{point}-{name}")
        assert lab.run(replace(spec, kill_at=point, kill_after=after)) == -signal.SIGKILL
        return _after_death(lab, spec)

    return trial


def killed_merging_at(point: str) -> Callable[[Lab, str], Verdict]:
    """kill -9 while a store is merged into a new one, some passings in; then the same merge again."""

    def trial(lab: Lab, name: str) -> Verdict:
        spec, after = lab.spec("none", f"merge-{point}-{name}"), random.Random(f"{point} {name}").randint(2, 9)
        assert lab.run(spec) == 0
        merge = replace(spec, into=spec.db.with_name("whole.db"))
        assert lab.run(replace(merge, kill_at=point, kill_after=after)) == -signal.SIGKILL
        assert lab.check(replace(spec, db=merge.into)).wrong == 0
        assert lab.run(merge) == 0
        verdict = lab.check(replace(spec, db=merge.into))
        assert (verdict.answered, verdict.paid_twice) == (40, 0), verdict
        return verdict

    return trial


def killed_again_and_again(lab: Lab, name: str) -> Verdict:
    """kill -9 of life after life, while it starts or asks."""
    spec, draw, lives = lab.spec("none", f"again-{name}", 400), random.Random(name), 4
    for _ in range(lives):
        process = lab.start(spec)
        _wait_for_answers(spec)
        time.sleep(draw.uniform(0, 0.3))
        process.kill()
        lab.wait(process)
    return _after_death(lab, spec, in_flight=lives * spec.in_flight)


def _after_death(lab: Lab, spec: Spec, in_flight: int | None = None) -> Verdict:
    """What was acknowledged must be there; then go on."""
    lost = lab.lost(spec, acknowledged(spec))
    verdict = _live_on(lab, spec)
    verdict.lost += lost
    allowed = spec.in_flight if in_flight is None else in_flight
    assert verdict.paid_twice <= allowed, f"{verdict.paid_twice} paid twice, {allowed} in flight"
    assert verdict.answered == len(spec.prompts), verdict
    return verdict


def _wait_for_answers(spec: Spec) -> None:
    deadline = time.monotonic() + 100
    while not acknowledged(spec) and time.monotonic() < deadline:
        time.sleep(0.005)


def _signalled(numbers: tuple[signal.Signals, ...]) -> Callable[[Lab, str], Verdict]:
    def trial(lab: Lab, name: str) -> Verdict:
        spec = lab.spec("none", f"{'-'.join(n.name for n in numbers)}-{name}", 400)
        process = lab.start(spec)
        _wait_for_answers(spec)
        for number in numbers:
            lab.signal(process, number)
            time.sleep(0.002)
        assert lab.wait(process) == 130
        assert lab.check(spec).unresolved > 0, "it was over before the signal came"
        return _after_death(lab, spec, in_flight=0 if len(numbers) == 1 else None)

    return trial


def disk_full_by_file_size(lab: Lab, name: str) -> Verdict:
    """A file that may grow no more (RLIMIT_FSIZE)."""
    spec = lab.spec("none", f"rlimit-{name}", 300)
    code = lab.run(replace(spec, file_limit=185_000))
    asked = lab.asked(spec.prompts)
    assert code == 1, f"exit code {code} after {asked} requests"
    assert 0 < asked < len(spec.prompts), f"{asked} asked: it did not stop, or did not start"
    return _after_death(lab, spec)


def audits_at_once(lab: Lab, name: str) -> Verdict:
    """Three audits of the same on one store, started one shortly after the other."""
    spec = lab.spec("none", f"at-once-{name}", 300)
    lives = []
    for _ in range(3):
        lives.append(lab.start(spec))
        time.sleep(0.05)
    codes = [lab.wait(p) for p in lives]
    verdict = lab.check(spec)
    assert codes == [0, 0, 0], codes
    assert verdict.paid_twice == 0, verdict
    return verdict


TRIALS: Mapping[str, Callable[[Lab, str], Verdict]] = {
    **{fault: server_fault(fault) for fault in SERVER_FAULTS if fault != "none"},
    **{f"kill -9: {point}": killed_at(point) for point in KILL_POINTS},
    **{f"kill -9: merge, {point}": killed_merging_at(point) for point in ("begun", "committing", "committed")},
    "kill -9: again and again": killed_again_and_again,
    "SIGINT": _signalled((signal.SIGINT,)),
    "SIGINT twice": _signalled((signal.SIGINT, signal.SIGINT)),
    "SIGTERM": _signalled((signal.SIGTERM,)),
    "disk full: file size": disk_full_by_file_size,
    "three audits at once": audits_at_once,
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("lab")) as opened:
        yield opened


@pytest.fixture(scope="module")
def trials(lab, request):
    """The requested trials, some at once since they mostly wait."""
    names = [item.callspec.params["fault"] for item in request.session.items if "trials" in item.fixturenames]
    with ThreadPoolExecutor(3) as pool:
        yield {name: pool.submit(TRIALS[name], lab, "short") for name in names}


@pytest.mark.parametrize("fault", TRIALS)
def test_nothing_is_lost_wrong_or_left_open(trials, fault):
    verdict = trials[fault].result()
    assert (verdict.lost, verdict.wrong, verdict.unresolved) == (0, 0, 0)


def ask(lab, folder, prompts, **options):
    """The outcome of asking in this process, with the real backend; each request is tried once."""
    backend = OpenAIBackend(
        f"http://127.0.0.1:{lab.port}/v1", model="lab", api_key_env=None, probe_folder=folder, **options
    )

    async def run():
        await backend.describe()
        with Store.open(folder / "audit.db") as store:
            job = Job("lab", backend, asks_of(store, map(GenerateRequest, prompts))[0])
            done = await run_jobs([job], store, Executor(), run_id="lab", stop=ShutdownRequest())
        await backend.close()
        return done["lab"]

    return asyncio.run(run())


@pytest.mark.parametrize("fault", REFUSED_FOR_GOOD)
def test_a_server_that_refuses_for_good_is_left_soon(lab, tmp_path, fault, monkeypatch):
    monkeypatch.setattr(job_run, "ATTEMPTS", 1)
    prompts = [Fate(fault, "for good", i).prompt for i in range(500)]
    outcome = ask(lab, tmp_path, prompts, max_in_flight=64, timeout=100)
    assert lab.asked(prompts) <= 20
    assert REFUSED_FOR_GOOD[fault][1] in outcome.stopped


KILLS = 60
STEPS = {"ask": ("sending", "answered"), "batch": ("acknowledged",), "store": ("begun", "committing", "committed")}
STEPS["merge"] = tuple(f"merge, {point}" for point in STEPS["store"])

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder)) as opened:
        for step, points in STEPS.items():
            kills = [TRIALS[f"kill -9: {points[n % len(points)]}"](opened, str(n)) for n in range(KILLS)]
            worst = max(verdict.paid_twice for verdict in kills)
            print(step, len(kills), "kills", sum(kills, start=Verdict()), "most paid twice after one kill", worst)

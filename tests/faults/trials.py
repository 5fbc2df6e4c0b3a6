"""What can go wrong, one function each: it runs the audit under that fault and returns what the checker found."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.process import BaseProcess

from tests.faults.child import KILL_POINTS, Spec
from tests.faults.faults import MAY_FAIL, SERVER_FAULTS, SLOW
from tests.faults.lab import Lab, Verdict, acknowledged

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
            spec = replace(spec, timeout=0.5)
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
        once = ("opening", "migrating", "opened", "finishing", "leasing", "leased")
        after = 1 if point in once else random.Random(f"{point} {name}").randint(1, 8)
        spec = lab.spec("none", f"{point}-{name}")
        assert lab.run(replace(spec, kill_at=point, kill_after=after)) == -signal.SIGKILL
        return _after_death(lab, spec)

    return trial


def killed_at_random(lab: Lab, name: str) -> Verdict:
    """kill -9 at any time: of its start, or of its asking."""
    spec = lab.spec("none", f"random-{name}", 150)
    draw = random.Random(name)
    process = lab.start(spec)
    if draw.random() < 0.7:
        _wait_for_answers(spec)
        time.sleep(draw.uniform(0, 0.15))
    else:
        time.sleep(draw.uniform(0.02, 0.6))
    process.kill()
    lab.wait(process)
    return _after_death(lab, spec)


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
    deadline = time.monotonic() + 20
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
    return _full(lab, lab.spec("none", f"rlimit-{name}", 300), file_limit=185_000)


def _full(lab: Lab, spec: Spec, **limit: int) -> Verdict:
    code = lab.run(replace(spec, **limit))  # type: ignore[arg-type]
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
    "kill -9: any time": killed_at_random,
    "SIGINT": _signalled((signal.SIGINT,)),
    "SIGINT twice": _signalled((signal.SIGINT, signal.SIGINT)),
    "SIGTERM": _signalled((signal.SIGTERM,)),
    "disk full: file size": disk_full_by_file_size,
    "three audits at once": audits_at_once,
}


def campaign(lab: Lab, answers: int, kills: int, seed: int = 0) -> tuple[Verdict, int, int, int]:
    """One long audit that is killed again and again, then lives to its end.

    Returns the verdict, kills made, answers acknowledged, and the most that one kill had paid again.
    """
    # An audit that is killed after storing an answer has not acknowledged it yet.
    spec = lab.spec("none", f"campaign-{seed}", answers + 16 * kills, in_flight=16)
    draw = random.Random(seed)
    confirmed: set[str] = set()
    made = most = lost = paid = 0
    while made < kills:
        process = lab.start(spec)
        _wait_for_acknowledged(process, spec, len(confirmed) + draw.uniform(0, 1.8) * answers / kills)
        time.sleep(draw.uniform(0, 0.05))
        if process.exitcode is not None:
            break  # all was asked before all kills were made
        process.kill()
        lab.wait(process)
        made += 1
        said = acknowledged(spec)
        lost += lab.lost(spec, said - confirmed)
        confirmed = said
        now = lab.paid_twice(spec.prompts)
        most, paid = max(most, now - paid), now
    while (verdict := _live_on(lab, spec)).unresolved:
        pass
    most = max(most, verdict.paid_twice - paid)
    verdict.lost += lost
    return verdict, made, len(acknowledged(spec)), most


def _wait_for_acknowledged(process: BaseProcess, spec: Spec, count: float) -> None:
    line = len(f"a2-{48 * '0'}\tGenerateResponse\n")
    while process.exitcode is None and (not spec.acks.exists() or spec.acks.stat().st_size < count * line):
        time.sleep(0.005)

"""What can go wrong, one function each: it runs the audit under that fault and returns what the checker found."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

from audit.schedule.journal import Journal
from audit.store import Store
from backends.base import ScoreRequest
from backends.checking import drawn_early, drawn_late
from tests.faults.child import KILL_POINTS, Spec
from tests.faults.faults import CONTINUATIONS, MAY_FAIL, SERVER_FAULTS, SLOW
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
        if fault == "gzip-bomb":
            spec = replace(spec, in_flight=1)
        if fault in SLOW:
            spec = replace(spec, timeout=0.5)
        verdict = _live_on(lab, spec)
        if fault == "gzip-bomb":  # 200 MB each
            grown = int(spec.memory.read_text())
            assert grown < 64 * 2**20, f"{grown / 2**20:.0f} MB"
        if fault not in MAY_FAIL:
            assert verdict.answered == 40, f"{fault}: {verdict}"
        elif fault not in ("permanent-5xx", "lone-surrogate"):  # these are broken for good
            assert verdict.failed == 0, f"{fault}: {verdict}"
        return verdict

    return trial


def killed_at(point: str, fault: str = "none") -> Callable[[Lab, str], Verdict]:
    """kill -9 at a named point, some passings into the run."""

    def trial(lab: Lab, name: str) -> Verdict:
        once = ("opening", "migrating", "opened", "finishing", "leasing", "leased")
        after = 1 if point in once else random.Random(f"{point} {name}").randint(1, 8)
        spec = lab.spec(fault, f"{point}-{name}")
        assert lab.run(replace(spec, kill_at=point, kill_after=after)) == -signal.SIGKILL
        requests_a_call = 1 + len(CONTINUATIONS) if isinstance(spec.requests[0], ScoreRequest) else 1
        scored = len(spec.prompts) if isinstance(spec.requests[0], ScoreRequest) else 0
        draws = drawn_early(scored) + drawn_late(scored)  # which check the answers, again in the second life
        return _after_death(lab, spec, in_flight=requests_a_call * spec.in_flight + draws)

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


def disk_full_by_pages(lab: Lab, name: str) -> Verdict:
    """A database that may have no more pages."""
    return _full(lab, lab.spec("none", f"pages-{name}", 1200), page_limit=90)


def _full(lab: Lab, spec: Spec, **limit: int) -> Verdict:
    code = lab.run(replace(spec, **limit))  # type: ignore[arg-type]
    asked = lab.asked(spec.prompts)
    assert code == 1, f"exit code {code} after {asked} requests"
    assert 0 < asked < len(spec.prompts), f"{asked} asked: it did not stop, or did not start"
    return _after_death(lab, spec)


def disk_full_tmpfs(lab: Lab, name: str) -> Verdict:
    """A real file system that is full, and then read-only."""
    spec = lab.spec("none", f"tmpfs-{name}", 300)
    folder = spec.db.parent / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=480k", "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        small = replace(spec, db=folder / "audit.db")
        assert lab.run(small) == 1
        asked = lab.asked(spec.prompts)
        assert 0 < asked < len(spec.prompts)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, capture_output=True)
        assert lab.run(small) == 1
        assert lab.asked(spec.prompts) == asked, "a read-only store was found too late"
        subprocess.run(["mount", "-o", "remount,rw,size=40m", str(folder)], check=True, capture_output=True)
        return _after_death(lab, small)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def can_mount() -> bool:
    """Whether this process may mount file systems."""
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


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


def read_only(lab: Lab, name: str) -> Verdict:
    """A store that may only be read is found before the first request."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own folder is closed to other users
        Path(folder).chmod(0o755)
        spec = replace(lab.spec("none", f"read-only-{name}"), db=Path(folder) / "audit.db")
        assert lab.run(replace(spec, prompts=spec.prompts[:20])) == 0
        spec.db.chmod(0o444)
        assert lab.run(replace(spec, as_nobody=True)) == 1
        assert lab.asked(spec.prompts) == 20, "a read-only store was found too late"
        spec.db.chmod(0o644)
        return _after_death(lab, spec, in_flight=0)


def overlapping_starts(lab: Lab, name: str) -> Verdict:
    """Scheduled runs that start while one is on: one asks, the others leave, also after a kill."""
    spec = lab.spec("none", f"overlapping-{name}", 300)
    running = lab.start(spec, scheduled=True)
    _wait_for_answers(spec)
    late = [lab.start(spec, scheduled=True) for _ in range(2)]
    assert [lab.wait(process) for process in late] == [1, 1]
    running.kill()
    lab.wait(running)
    assert lab.check(spec).unresolved > 0, "it was over before the others came"
    paid_before = lab.check(spec).paid_twice
    again = [lab.start(spec, scheduled=True) for _ in range(3)]
    codes = sorted(lab.wait(process) for process in again)
    entries = Journal(Journal.path_beside(spec.db)).entries()
    events = Counter(entry["event"] for entry in entries)
    assert events["busy"] == 2 + codes.count(1), events
    assert len({entry["slot"] for entry in entries if entry["event"] == "killed"}) == 1, events
    assert codes[0] == 0, codes
    verdict = _after_death(lab, spec)
    assert verdict.paid_twice - paid_before <= spec.in_flight
    return verdict


def flipped_byte(lab: Lab, name: str) -> Verdict:
    """A byte of a stored answer changes on the disk: that one is asked again, nothing else."""
    spec = lab.spec("none", f"flipped-{name}")
    assert lab.run(spec) == 0
    with Store.open(spec.db, read_only=True) as store, store._database.read() as db:
        rows = db.execute("SELECT value FROM answers ORDER BY id").fetchall()
    body = random.Random(name).choice(rows)[0]
    data = bytearray(spec.db.read_bytes())
    place = data.find(body)
    assert place > 0
    data[place + 20] ^= 1
    spec.db.write_bytes(data)
    before = lab.asked(spec.prompts)
    assert lab.run(spec) == 0
    assert lab.asked(spec.prompts) - before == 1
    with Store.open(spec.db) as store:
        assert store.answers.verify().sound
    verdict = lab.check(spec)
    assert verdict.paid_twice == 1
    return verdict


def truncated_file(lab: Lab, name: str) -> Verdict:
    """Half a database is refused and left alone; a backup replaces it."""
    spec = lab.spec("none", f"truncated-{name}")
    lab.run(spec)
    backup = spec.db.with_name("backup.db")
    with Store.open(spec.db) as store:
        store.backup(backup)
    half = spec.db.read_bytes()[: spec.db.stat().st_size // 2]
    spec.db.write_bytes(half)
    before = lab.asked(spec.prompts)
    assert lab.run(spec) == 1
    assert spec.db.read_bytes() == half
    assert lab.asked(spec.prompts) == before
    shutil.move(backup, spec.db)
    return _after_death(lab, spec, in_flight=0)


def clock_jumps(lab: Lab, name: str) -> Verdict:
    """The wall clock jumps back and forth by eleven days, while a server is slow and rude."""
    return _live_on(lab, replace(lab.spec("429-retry-after-0", f"clock-{name}"), clock_jumps=True))


TRIALS: Mapping[str, Callable[[Lab, str], Verdict]] = {
    **{fault: server_fault(fault) for fault in SERVER_FAULTS if fault != "none"},
    **{f"kill -9: {point}": killed_at(point) for point in KILL_POINTS},
    "kill -9: committing packed scores": killed_at("committing", "logprob-sound"),
    "kill -9: any time": killed_at_random,
    "SIGINT": _signalled((signal.SIGINT,)),
    "SIGINT twice": _signalled((signal.SIGINT, signal.SIGINT)),
    "SIGTERM": _signalled((signal.SIGTERM,)),
    "disk full: file size": disk_full_by_file_size,
    "disk full: pages": disk_full_by_pages,
    **({"disk full, then read-only: tmpfs": disk_full_tmpfs} if can_mount() else {}),
    "read-only": read_only,
    "three audits at once": audits_at_once,
    "overlapping scheduled starts": overlapping_starts,
    "flipped byte": flipped_byte,
    "truncated file": truncated_file,
    "clock jumps": clock_jumps,
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

"""An audit of a real local model, killed at any moment: at most one forward pass of answers is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
N_ITEMS = 24
MOST_LOST = 8
#: Says "begun" when the first question reaches the model, and a line for each answer that the model has computed.
AUDIT = """
    import sys
    from audit import Audit
    from backends import HFBackend
    from backends.embedded import smollm2_path
    from suites import OccuGender

    class Watched(HFBackend):
        def run_blocking(self, batch, on_response):
            def tell(place, answer):
                print("computed", flush=True)
                on_response(place, answer)
            self.load()
            return super().run_blocking(batch, tell)

    backend = Watched(smollm2_path(), dtype="float32", threads=int(sys.argv[3]))
    options = {"db": sys.argv[1], "out": sys.argv[2], "limit": N_ITEMS, "small_sample": True}
    audit = Audit({"m": backend}, [OccuGender(bias=("explicit",))], **options)
    model = audit.run_sync().models[0]
    print("ended", model.asked, model.cached, model.failed, flush=True)
"""


def start(folder: Path, threads: int, n_items: int = N_ITEMS) -> subprocess.Popen[str]:
    code = textwrap.dedent(AUDIT).replace("N_ITEMS", str(n_items))
    command = [sys.executable, "-c", code, str(folder / "a.db"), str(folder / "out"), str(threads)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def stored(folder: Path) -> int:
    with contextlib.closing(sqlite3.connect(folder / "a.db")) as db:
        return int(db.execute("SELECT count(*) FROM answers").fetchone()[0])


@pytest.mark.battery  # how many answers a pass tells at once depends on the processor
@pytest.mark.models
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("threads", [1, 2])  # from two on, two passes are computed at the same time
def test_a_killed_scoring_run_loses_eight_items_at_most(threads: int, tmp_path: Path) -> None:
    computed = before = 0
    for killed_after in (3, 10):
        process = start(tmp_path, threads)
        assert process.stdout is not None
        new = 0
        for line in process.stdout:
            new += line == "computed\n"
            if new == killed_after:
                process.send_signal(signal.SIGKILL)
        process.wait()
        computed = new  # those that it told before the signal reached it, too
        now = stored(tmp_path)
        assert now - before >= computed - MOST_LOST
        before = now
    process = start(tmp_path, threads)
    out, _ = process.communicate()
    _, asked, cached, failed = out.splitlines()[-1].split()
    assert (int(cached), int(asked), int(failed)) == (before, N_ITEMS - before, 0)

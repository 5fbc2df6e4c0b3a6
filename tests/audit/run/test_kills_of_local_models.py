"""An audit of a local model, ended in the midst of a batch: no answer that was told of is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
N_ITEMS, OF_A_PASS = 24, 4
#: A model that computes a batch of all questions in passes, and tells each pass's answers at its end.
AUDIT = """
    import dataclasses, json, sys, time
    from audit import Audit
    from backends.base import Description
    from backends.errors import StoppedError
    from backends.local.backend import LocalBackend, discard_response
    from backends.stand_ins.fake import FakeBackend
    from suites import OccuGender

    class InPasses(LocalBackend):
        device, batch_size, check = "cpu", N_ITEMS, lambda _: None

        def describe_blocking(self):
            return Description({"name": "in passes"}, frozenset({"score"}))

        def run_blocking(self, batch, on_response=discard_response):
            answers = [FakeBackend()._answer(request) for request in batch]
            for place, answer in enumerate(answers):
                if self.is_stopped():
                    return [*answers[:place], *(StoppedError() for _ in answers[place:])]
                on_response(place, answer)
                if place % OF_A_PASS == OF_A_PASS - 1:
                    time.sleep(float(sys.argv[1]))
            return answers

    options = {"db": "a.db", "out": "out", "limit": N_ITEMS, "small_sample": True}
    audit = Audit({"m": InPasses()}, [OccuGender(bias=("explicit",))], **options)
    audit.run_sync(on_event=lambda event: print(json.dumps(dataclasses.asdict(event)), flush=True))
"""


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    code = textwrap.dedent(AUDIT).replace("N_ITEMS", str(N_ITEMS)).replace("OF_A_PASS", str(OF_A_PASS))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(seconds)]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def stored(folder: Path) -> int:
    with contextlib.closing(sqlite3.connect(folder / "a.db")) as db:
        return int(db.execute("SELECT count(*) FROM answers").fetchone()[0])


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 0)])
def test_an_answer_that_was_told_of_is_stored_before_its_batch_ends(number: int, ends: int, tmp_path: Path) -> None:
    process = start(tmp_path, 2.0)
    assert process.stdout is not None
    told, sent = 0, False
    for line in process.stdout:  # also what was told before the signal reached it
        told = json.loads(line)["done"]
        if told >= OF_A_PASS and not sent:
            process.send_signal(number)
            sent = True
    assert process.wait() == ends
    before = stored(tmp_path)
    assert OF_A_PASS <= told <= before < N_ITEMS
    out, _ = start(tmp_path, 0.0).communicate()
    last = json.loads(out.splitlines()[-1])
    assert (last["cached"], last["done"], stored(tmp_path)) == (before, N_ITEMS, N_ITEMS)

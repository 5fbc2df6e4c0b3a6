"""Ctrl-C during an audit of a real local model: it ends after the pass at hand, and the next command goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from audit.store import Store
from tests.audit.run.test_kills_of_local_models import ROOT, stored

pytestmark = pytest.mark.models
N_ITEMS = 250


def audit_run(folder: Path) -> subprocess.Popen[str]:
    command = ["run", "--suite", "OccuGender", "--model", "embedded:smollm2", "--limit", str(N_ITEMS)]
    return subprocess.Popen(
        [sys.executable, "-m", "audit", *command, "--db", str(folder / "a.db"), "--out", str(folder / "out")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def line_with(pattern: str, stream: IO[str] | None) -> re.Match[str]:
    assert stream is not None
    found = next(filter(None, (re.search(pattern, line) for line in stream)), None)
    assert found is not None, f"it ended without {pattern}"
    return found


def test_ctrl_c_tells_what_is_stored_and_what_resumes(tmp_path: Path) -> None:
    process = audit_run(tmp_path)
    line_with(rf"smollm2: [1-9]\d*/{N_ITEMS}", process.stderr)
    process.send_signal(signal.SIGINT)
    line_with(r"Stopping after what is being asked \(SIGINT\)\. Press Ctrl-C again", process.stderr)
    told = line_with(
        r"Interrupted: (\d+) new answers? stored.* To resume: (audit run --suite OccuGender .*)", process.stderr
    )
    assert int(told[1]) == stored(tmp_path)
    assert str(tmp_path / "a.db") in told[2]
    process.communicate()
    assert process.returncode == 130


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    process = audit_run(tmp_path)
    line_with(rf"smollm2: [1-9]\d*/{N_ITEMS}", process.stderr)
    process.send_signal(signal.SIGINT)
    line_with("Stopping", process.stderr)
    process.send_signal(signal.SIGINT)
    line_with("SIGINT again: exiting. All answers so far are stored", process.stderr)
    process.communicate()
    assert process.returncode == 130
    with Store.open(tmp_path / "a.db", read_only=True) as store:
        assert [(run.status, run.finished) for run in store.runs.all()] == [("killed", None)]

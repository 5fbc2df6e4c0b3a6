"""Runs, their rows and baselines."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys

import pytest

from audit.results import AuditResult
from audit.store import StoredRow, StoreError, runs
from backends.errors import ConfigError
from suites.base import IdentifiedInterval, Row
from tests.audit.store.entries import entry


def test_rows_read_back_as_they_were_written(store):
    rows = [
        StoredRow(
            Row(
                f"item {i}",
                {"template": i % 3, "occupation": "nurse \ud800", "none": None, "share": 0.1},
                {}
                if i % 5 == 0
                else {"p": IdentifiedInterval.exact(1 / (3 + i)), "b": IdentifiedInterval(None, 0.25, 0.5)},
                "refusal" if i % 5 == 0 else None,
                memberships={"occupation": ("nurse", "maid \ud800")} if i % 2 else {},
            ),
            entry(i).question.keys if i else (),
        )
        for i in range(4500)
    ]
    store.runs.start("r1", "title", "{}")
    assert store.runs.write_rows("r1", "m", "s", iter(rows)) == 4500
    store.runs.write_rows("r1", "other", "s", rows[:1])
    assert list(store.runs.read_rows("r1", "m", "s")) == rows
    store.runs.write_rows("r1", "m", "s", rows[:7])
    assert list(store.runs.read_rows("r1", "m", "s")) == rows[:7]
    assert list(store.runs.read_rows("r1", "m", "unknown")) == []


def test_damaged_rows_are_reported_and_never_read(store, path):
    store.runs.write_rows(
        "r1", "m", "s", [StoredRow(Row(f"i{i}", {}, {"p": IdentifiedInterval.exact(0.5)}), ()) for i in range(9)]
    )
    with sqlite3.connect(path) as db:
        body = bytearray(db.execute("SELECT body FROM row_chunks").fetchone()[0])
        body[len(body) // 2] ^= 1
        db.execute("UPDATE row_chunks SET body = ?", (bytes(body),))
    with pytest.raises(StoreError, match="rows of run r1"):
        list(store.runs.read_rows("r1", "m", "s"))


def result(run_id):
    return AuditResult(
        run_id=run_id, title="t", started="", finished="", complete=True, interrupted=False, seed=0, limit=None,
        confidence=0.95, versions={"x": "é"}, models=[], suites=[], measures=[], comparisons=[], data_quality=[],
    )  # fmt: skip


def test_runs_and_results_are_kept(store):
    store.runs.start("r1", "one", '{"a": "\ud800"}')
    store.runs.start("r2", "two", "{}")
    assert store.runs.result("r1") is None
    with pytest.raises(ConfigError, match="no finished run"):
        store.runs.find("last")
    store.runs.end("r1", "done", result("r1"))
    store.runs.end("r2", "failed: ValueError", None)
    newest, oldest = store.runs.all()
    assert (newest.id, newest.status, newest.finished is None) == ("r2", "failed: ValueError", False)
    assert (oldest.id, oldest.config, oldest.status) == ("r1", '{"a": "\ud800"}', "done")
    assert store.runs.finished_result(store.runs.find("last")) == store.runs.result("r1") == result("r1")
    assert store.runs.result("r2") is None
    with pytest.raises(ConfigError, match="not finished"):
        store.runs.finished_result("r2")
    with pytest.raises(ConfigError, match="2 runs match"):
        store.runs.find("r")


def test_a_baseline_is_saved_once_then_promoted(store):
    for run in ("r1", "r2", "open"):
        store.runs.start(run, "t", "{}")
    store.runs.end("r1", "done", result("r1"))
    store.runs.end("r2", "done", result("r1"))
    with pytest.raises(ConfigError, match="not exist"):
        store.runs.promote_baseline("main", "r1")
    with pytest.raises(ConfigError, match="no result"):
        store.runs.save_baseline("main", "open")
    store.runs.save_baseline("main", "r1")
    with pytest.raises(ConfigError, match="already exists"):
        store.runs.save_baseline("main", "r2")
    store.runs.promote_baseline("main", "r2")
    [baseline] = store.runs.baselines()
    assert (baseline.name, baseline.run_id, baseline.earlier) == ("main", "r2", ("r1",))


def test_a_run_is_running_while_its_process_lives(store):
    store.runs.start("r1", "title", "{}")
    assert store.runs.all()[0].status == "running"


def test_a_run_whose_process_was_killed_says_so(store):
    code = (
        "import os, sys; from pathlib import Path; from audit.store import Store\n"
        "with Store.open(Path(sys.argv[1])) as store:\n"
        "    store.runs.start('r1', 'title', '{}')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(store.path)], check=False)
    assert died.returncode == -9
    assert [run.status for run in store.runs.all()] == ["killed"]


def test_a_run_that_exits_at_once_is_interrupted(store):
    for run in ("r1", "ended"):
        store.runs.start(run, "title", "{}")
    store.runs.end("ended", "done", result("ended"))
    for run in ("r1", "ended"):
        store.runs.end_at_once(run)
    assert {run.id: run.status for run in store.runs.all()} == {"r1": "interrupted", "ended": "done"}
    with pytest.raises(ConfigError, match="it was interrupted, and has no figures"):
        store.runs.finished_result("r1")


def test_an_exit_at_once_does_not_wait_for_a_locked_file(store, monkeypatch):
    store.runs.start("r1", "title", "{}")
    monkeypatch.setattr(runs, "LOCKED_SECONDS", 0.01)
    with contextlib.closing(sqlite3.connect(store.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            store.runs.end_at_once("r1")
    assert store.runs.all()[0].status == "running"


def test_a_run_of_an_ended_process_nobody_waits_for_is_killed(store):
    code = (
        "import os, sys; from pathlib import Path; from audit.store import Store\n"
        "with Store.open(Path(sys.argv[1])) as store:\n"
        "    store.runs.start('r1', 'title', '{}')\n"
        "    os._exit(130)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(store.path)])
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays in the table of processes
        assert [run.status for run in store.runs.all()] == ["killed"]
        with pytest.raises(ConfigError, match="it was killed, and has no figures"):
            store.runs.finished_result("r1")
    finally:
        process.wait()


def test_a_run_of_an_earlier_version_stays_running(store):
    store.runs.start("r1", "title", "{}")
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE runs SET status = 'running'")
    assert store.runs.all()[0].status == "running"

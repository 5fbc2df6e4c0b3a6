"""The key is found in no byte that a failing audit leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import time

import pytest

from tests.faults.canary import REPLIES, KeyServer, command, places_of_the_key
from tests.faults.lab import PRELOADED, processes

pytestmark = pytest.mark.faults
processes.set_forkserver_preload([*PRELOADED, "audit.cli", "audit.run", "audit.report", "audit.collect.progress"])


@pytest.fixture(scope="module")
def server():
    with KeyServer().in_thread() as running:
        yield running


def start(folder, config):
    process = processes.Process(target=command, args=(folder, config))
    process.start()
    return process


def outcome(process):
    process.join(90)
    assert process.exitcode is not None, "it did not end"
    return process.exitcode


def test_of_a_server_that_repeats_the_key_in_every_way(server, tmp_path):
    assert outcome(start(tmp_path, f"audit = audit_of({server.port}, {list(REPLIES)!r})")) == 1
    assert server.struck >= set(REPLIES), set(REPLIES) - server.struck
    with sqlite3.connect(tmp_path / "audit.db") as db:
        assert db.execute("SELECT count(*) FROM failures").fetchone()[0] >= 10
    left = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert {"audit.db", "stdout", "stderr", "report.html", "report.json"} <= left
    assert any(name.endswith(".jsonl") for name in left)
    assert places_of_the_key(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGKILL, -9), (signal.SIGABRT, -6)],
)
def test_of_an_audit_that_is_ended(server, tmp_path, number, code):
    process = start(tmp_path, f'audit = audit_of({server.port}, ["answers-all"], Questions(2000))')
    deadline = time.monotonic() + 100
    while b"Yes." not in _bytes(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, number)
    assert outcome(process) == code
    assert places_of_the_key(tmp_path) == []


def _bytes(folder):
    """What the store's files hold now. Its log comes and goes while the store is being opened."""
    found = b""
    for path in folder.glob("audit.db*"):
        with contextlib.suppress(FileNotFoundError):
            found += path.read_bytes()
    return found

"""Real signals, sent to real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

AUDIT = """
    import asyncio, sys
    from audit.collect.scheduler import ShutdownRequest, stop_on_signals

    async def main():
        stop = ShutdownRequest(grace=float(sys.argv[2]))
        with stop_on_signals(stop, "Resume with: audit run"):
            print("ready", flush=True)
            await stop.wait()
            print("in flight", flush=True)
            await asyncio.sleep(float(sys.argv[1]))
            print("finished", stop.reason, flush=True)
        sys.exit(130)

    asyncio.run(main())
"""


@pytest.fixture
def audit():
    started = []

    def start(seconds, grace=5):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(AUDIT), str(seconds), str(grace)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_first_signal_lets_the_rest_finish_and_says_for_what(audit):
    process, number = audit(0.3), signal.SIGTERM
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert out == f"in flight\nfinished {number.name}\n"
    (line,) = err.strip().splitlines()
    assert line == f"Stopping after what is being asked ({number.name}). Press Ctrl-C again to exit immediately."
    assert process.returncode == 130


def test_the_second_signal_ends_it_at_once(audit):
    process = audit(1000, grace=1000)
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "in flight\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert out == ""
    assert err.splitlines()[-1] == "SIGINT again: exiting. Resume with: audit run"
    assert process.returncode == 130

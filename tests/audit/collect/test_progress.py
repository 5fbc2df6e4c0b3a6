"""Progress lines, as they stand in the log of a nightly run."""

from __future__ import annotations

import os
import sys

import pytest

from audit.collect import progress
from audit.collect.job_run import Progress


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_a_line_says_how_far_it_is_and_how_long_it_will_take(clock, capsys):
    display = progress.Display()
    display(Progress("m", 10, 100, 10, 0, 0))
    display(Progress("m", 20, 100, 10, 0, 0))
    clock[0] += 10
    display(Progress("m", 40, 100, 10, 2, 1, "waiting"))
    assert lines(capsys) == [
        "m: 10/100, 10 cached, 0 retried, 0 failed, no answer yet (first a model is loaded, or a server looked at)",
        "m: 40/100, 30 s left, 2 a second, 10 cached, 2 retried, 1 failed (waiting)",
    ]


def test_the_time_that_a_model_loads_is_no_speed(clock, capsys):
    display = progress.Display()
    display(Progress("m", 99, 800, 99, 0, 0))
    clock[0] += 30
    display(Progress("m", 100, 800, 99, 0, 0))
    clock[0] += 10
    display(Progress("m", 200, 800, 99, 0, 0))
    assert lines(capsys)[1:] == [
        "m: 100/800, 99 cached, 0 retried, 0 failed",
        "m: 200/800, 60 s left, 10 a second, 99 cached, 0 retried, 0 failed",
    ]


def test_end_reported_twice_is_printed_once(clock, capsys):
    display = progress.Display()
    for _ in range(2):
        display(Progress("m", 5, 5, 5, 0, 0))
    assert lines(capsys) == ["m: 5/5, 5 cached, 0 retried, 0 failed"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_closed_stderr_does_not_fail_the_run(as_json, clock, monkeypatch):
    read_end, write_end = os.pipe()
    os.close(read_end)
    closed = os.fdopen(write_end, "w")
    monkeypatch.setattr(sys, "stderr", closed)
    with progress.Display(as_json=as_json, verbose=True) as display:
        display(Progress("m", 1, 5, 0, 0, 0))
        display(Progress("m", 5, 5, 0, 0, 0))
    with pytest.raises(BrokenPipeError):  # the pipe was closed indeed
        closed.close()


def test_a_wait_is_said(clock, capsys):
    progress.Display()(Progress("m", 1, 100, 0, 0, 0, waited=34.2, failing="HTTP 503"))
    assert lines(capsys) == ["m: 1/100, 0 cached, 0 retried, 0 failed, waiting for 34 s: HTTP 503"]

"""What limits a job, found from where its workers are."""

from __future__ import annotations

import contextlib

import pytest

from audit.collect import worker_times
from audit.collect.worker_times import WorkerTimes


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(worker_times.time, "monotonic", lambda: now[0])
    return now


def test_nothing_is_said_of_the_first_seconds(clock):
    times = WorkerTimes(1)
    with times.spent("store"):
        clock[0] += 1
    assert times.limit() is None


def test_model_limits_while_its_slots_are_taken(clock):
    times = WorkerTimes(2)
    with times.spent("model"), times.spent("model"), times.spent("rate"):
        clock[0] += 10
    assert times.limit() == "model"


@pytest.mark.parametrize("stage", ["rate", "store", "questions"])
def test_most_workers_wait_for_what_limits_a_free_model(clock, stage):
    times = WorkerTimes(4)
    with contextlib.ExitStack() as stack:
        stack.enter_context(times.spent("model"))
        for _ in range(3):
            stack.enter_context(times.spent(stage))
        clock[0] += 10
        assert times.limit() == stage


def test_last_answers_are_waited_for_not_questions(clock):
    times = WorkerTimes(4)
    with times.spent("model"), times.spent("questions"), times.spent("questions"):
        times.no_more_questions()
        clock[0] += 10
        with times.spent("store"):
            clock[0] += 0.01
        assert times.limit() == "model"


def test_limit_is_that_of_the_last_seconds(clock):
    times = WorkerTimes(1)
    with times.spent("store"):
        clock[0] += 1000
    assert times.limit() == "store"
    with times.spent("model"):
        clock[0] += 5
    assert times.limit() == "model"

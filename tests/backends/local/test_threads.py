"""How many CPU threads a local backend takes where none are asked for."""

from __future__ import annotations

import os

import pytest

from backends import HFBackend
from backends.local.backend import available_threads

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.mark.parametrize(
    ("said", "threads"),
    [("", CORES), ("1", 1), ("1,4", 1), ("100000", CORES), ("0", CORES), ("-1", CORES), ("many", CORES)],
)
def test_omp_num_threads_is_the_most(said: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert available_threads() == threads


def test_threads_that_are_asked_for_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert HFBackend("m", threads=3).thread_count == 3
    assert HFBackend("m").thread_count == 1

"""The benchmark of local speed runs: its figures depend on the machine, that it gives them does not."""

from __future__ import annotations

import pytest

from tests.benchmarks.bench_local import main


def test_a_small_model_is_timed_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--prompts", "8", "--sample", "4", "--rounds", "1")
    main(["--size", "small", "--device", "cpu", "--dtype", "float32", *sizes, "--parts", "scoring", "rows"])
    said = capsys.readouterr().out
    for line in ("explicit: this engine (tree)", "dialogue: this engine (tree)", "explicit: rows"):
        assert line in said

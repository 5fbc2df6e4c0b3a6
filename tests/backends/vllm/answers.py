"""Answers of `VLLMBackend`, computed by the Python of vLLM's own environment.

    python -m tests.backends.vllm.answers MODEL DTYPE < requests > answers

Requests and the answers with the notes of the run are pickled. vLLM pins a transformers of its own, beside which
`HFBackend` does not run: the comparison is made by the process that asks.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.base import Answer, Request

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class VLLMRun:
    """What a run in the other environment gave; ``seconds`` are those of each batch, without loading."""

    answers: list[list[Answer]]
    seconds: list[float]
    notes: dict[str, str]


def ask_vllm(
    python: str, model: Path, batches: Sequence[Sequence[Request]], *, dtype: str = "float32", threads: int = 2
) -> VLLMRun:
    """Ask in a process of that Python, batch by batch."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive"}
    environment["VLLM_CPU_OMP_THREADS_BIND"] = "auto" if threads > 1 else "0"
    done = subprocess.run(
        [python, "-m", "tests.backends.vllm.answers", str(model), dtype],
        input=pickle.dumps([list(batch) for batch in batches]),
        capture_output=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode("utf-8", "replace")[-3000:])
    run: VLLMRun = pickle.loads(done.stdout)
    return run


def main() -> None:
    """The child."""
    from backends import VLLMBackend

    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # vLLM prints
    backend = VLLMBackend(sys.argv[1], dtype=sys.argv[2], context=1024, engine={"enforce_eager": True})
    backend.check()
    backend.load()
    answers, seconds = [], []
    for batch in pickle.load(sys.stdin.buffer):
        started = time.perf_counter()
        answers.append(backend.run_blocking(batch))
        seconds.append(time.perf_counter() - started)
    run = VLLMRun(answers, seconds, backend.notes_of_run())
    backend.close_blocking()
    pickle.dump(run, out)
    out.close()


if __name__ == "__main__":
    from tests.backends.vllm import answers as this  # so that the pickled class has this module's name

    this.main()

"""vLLM as it is usually asked for log-probabilities: each continuation behind its prompt. Asked by `bench_local`.

    python -m tests.benchmarks.vllm_peer FOLDER DTYPE < pickled lists of paths > pickled answers

Run by the Python of vLLM's own environment. A path is its tokens and the first that is scored. For each list: the
sums of its log-probabilities, and the seconds that they took.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
Asked = Sequence[tuple[tuple[int, ...], int]]


def ask(python: str, folder: Path, dtype: str, lists: Sequence[Asked]) -> list[tuple[list[float], float]]:
    """Ask in a process of that Python, list by list. Raises `RuntimeError` with the end of what it said."""
    done = subprocess.run(
        [python, "-m", "tests.benchmarks.vllm_peer", str(folder), dtype],
        input=pickle.dumps([list(one) for one in lists]),
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode("utf-8", "replace")[-3000:])
    found: list[tuple[list[float], float]] = pickle.loads(done.stdout)
    return found


def main() -> None:
    """The child."""
    from vllm import LLM, SamplingParams

    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # vLLM prints
    lists = pickle.load(sys.stdin.buffer)
    longest = max(len(tokens) for asked in lists for tokens, _ in asked)
    model: Any = LLM(sys.argv[1], dtype=sys.argv[2], skip_tokenizer_init=True, max_model_len=longest + 1)
    settings = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
    found = []
    for asked in lists:
        model.generate([{"prompt_token_ids": list(tokens)} for tokens, _ in asked[:8]], settings, use_tqdm=False)
        started = time.perf_counter()
        told = model.generate([{"prompt_token_ids": list(tokens)} for tokens, _ in asked], settings, use_tqdm=False)
        seconds = time.perf_counter() - started
        sums = [
            sum(one.prompt_logprobs[at][tokens[at]].logprob for at in range(start, len(tokens)))
            for (tokens, start), one in zip(asked, told, strict=True)
        ]
        found.append((sums, seconds))
    pickle.dump(found, out)
    out.close()


if __name__ == "__main__":
    main()

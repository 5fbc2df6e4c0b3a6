"""vLLM in this process beside vLLM as a server and beside the tree on transformers, in one run.

    python -m tests.benchmarks.bench_vllm --python .venv/vllm/bin/python --model .venv/vllm/smollm2 [--items 24]

OccuGender explicit in float32 on the CPU, the same prompts for all. Each line is printed as soon as it is known; what
loads a model is not counted. The server is asked by the route that its probe chooses, 8 requests at a time, without
the probe's own requests.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from backends import HFBackend
from backends.base import Answer, ScoreRequest, ScoreResponse
from backends.openai.capabilities import ServerCapabilities
from suites import OccuGender
from tests.backends.openai.direct_routes import direct_routes
from tests.backends.vllm.answers import ask_vllm
from tests.servers import vllm_server

WARM_UP = 2  # prompts asked before the clock starts: vLLM compiles at its first requests
AT_ONCE = 8


def tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def by_tree(model: Path, requests: Sequence[ScoreRequest]) -> tuple[list[Answer], float]:
    """Answers of `HFBackend` and milliseconds a prompt."""
    backend = HFBackend(model, dtype="float32", device="cpu")
    backend.run_blocking(requests[:WARM_UP])
    started = time.perf_counter()
    answers = backend.run_blocking(requests[WARM_UP:])
    spent = time.perf_counter() - started
    backend.close_blocking()
    return answers, 1000 * spent / len(answers)


async def by_server(python: str, model: Path, requests: Sequence[ScoreRequest]) -> tuple[list[Answer], float]:
    """Answers of vLLM's server and milliseconds a prompt."""
    found = ServerCapabilities(text_route="logprob_token_ids", family="vllm", takes_ids=True, largest_k=20)
    gate = asyncio.Semaphore(AT_ONCE)
    with vllm_server(python, model) as server:
        async with direct_routes(server.base_url, server.model, found) as routes:

            async def answer(request: ScoreRequest) -> ScoreResponse:
                async with gate:
                    return await routes.score(request)

            for request in requests[:WARM_UP]:
                await answer(request)
            started = time.perf_counter()
            answers: list[Answer] = list(await asyncio.gather(*map(answer, requests[WARM_UP:])))
    return answers, 1000 * (time.perf_counter() - started) / len(answers)


def apart(some: Sequence[Answer], others: Sequence[Answer]) -> float:
    """The largest difference of two backends' scores, in nats."""
    values = [
        [score.logprob for answer in answers if isinstance(answer, ScoreResponse) for score in answer.scores]
        for answers in (some, others)
    ]
    return float(np.abs(np.subtract(*values)).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", required=True, help="the Python of vLLM's environment")
    parser.add_argument("--model", type=Path, required=True, help="a folder in float32")
    parser.add_argument("--items", type=int, default=24)
    options = parser.parse_args()
    items = islice(OccuGender(bias=("explicit",)).items(), options.items + WARM_UP)
    requests = [item.request for item in items if isinstance(item.request, ScoreRequest)]
    tell(f"{options.items} prompts of {len(requests[0].continuations)} continuations")
    tree, tree_ms = by_tree(options.model, requests)
    tell(f"tree on transformers    {tree_ms:8.1f} ms a prompt")
    run = ask_vllm(options.python, options.model, [requests[:WARM_UP], requests[WARM_UP:]])
    ours, ours_ms = run.answers[1], 1000 * run.seconds[1] / options.items
    tell(f"vLLM in process         {ours_ms:8.1f} ms a prompt, {ours_ms / tree_ms:.2f} times the tree's")
    share = run.tokens_cached / run.tokens_asked
    tell(f"                        {share:.0%} of {run.tokens_asked} prompt tokens from its prefix cache")
    tell(f"                        at most {apart(ours, tree):.2g} nats from the tree; {run.notes['route']}")
    there, there_ms = asyncio.run(by_server(options.python, options.model, requests))
    tell(f"vLLM as a server        {there_ms:8.1f} ms a prompt, {there_ms / ours_ms:.2f} times vLLM in process")
    tell(f"                        at most {apart(there, tree):.2g} nats from the tree")


if __name__ == "__main__":
    main()

"""vLLM in this process beside vLLM as a server and beside the tree on transformers, in one run.

    python -m tests.benchmarks.bench_vllm --python .venv/vllm/bin/python --model .venv/vllm/smollm2 [--items 24]

OccuGender explicit in float32 on the CPU, the same prompts for all. Each line is printed as soon as it is known; what
loads a model is not counted. Wall time, and the CPU time of all threads and processes that compute. On a busy machine
that of one thread (--threads 1) says most: two wait for each other, and waiting counts. The server is asked by the
route that its probe chooses, 8 requests at a time, without the probe's own requests.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import psutil

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


@dataclass(frozen=True)
class Cost:
    """Milliseconds a prompt, by the clock and of the CPUs."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, wall: float, cpu: float, prompts: int) -> Cost:
        return cls(1000 * wall / prompts, 1000 * cpu / prompts)

    def beside(self, other: Cost) -> str:
        return f"{self.wall / other.wall:.1f} times (CPU {self.cpu / other.cpu:.1f})"

    def __str__(self) -> str:
        return f"{self.wall:8.1f} ms a prompt, {self.cpu:8.1f} ms of CPU time"


def by_tree(model: Path, requests: Sequence[ScoreRequest], threads: int) -> tuple[list[Answer], Cost]:
    """Answers of `HFBackend` and their cost."""
    backend = HFBackend(model, dtype="float32", device="cpu", threads=threads)
    backend.run_blocking(requests[:WARM_UP])
    started, cpu_before = time.perf_counter(), time.process_time()
    answers = backend.run_blocking(requests[WARM_UP:])
    cost = Cost.of(time.perf_counter() - started, time.process_time() - cpu_before, len(answers))
    backend.close_blocking()
    return answers, cost


def cpu_seconds(pid: int) -> float:
    """CPU time so far of a process and of those that it started and that still run."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(time.user + time.system for time in times)


async def by_server(python: str, model: Path, requests: Sequence[ScoreRequest]) -> tuple[list[Answer], Cost]:
    """Answers of vLLM's server and their cost, without that of asking."""
    found = ServerCapabilities(text_route="logprob_token_ids", family="vllm", takes_ids=True, largest_k=20)
    gate = asyncio.Semaphore(AT_ONCE)
    with vllm_server(python, model) as server:
        async with direct_routes(server.base_url, server.model, found) as routes:

            async def answer(request: ScoreRequest) -> ScoreResponse:
                async with gate:
                    return await routes.score(request)

            for request in requests[:WARM_UP]:
                await answer(request)
            started, cpu_before = time.perf_counter(), cpu_seconds(server.pid)
            answers: list[Answer] = list(await asyncio.gather(*map(answer, requests[WARM_UP:])))
            wall, cpu = time.perf_counter() - started, cpu_seconds(server.pid) - cpu_before
    return answers, Cost.of(wall, cpu, len(answers))


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
    parser.add_argument("--threads", type=int, choices=(1, 2), default=2)
    options = parser.parse_args()
    if options.threads == 1:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0"  # of the server
    items = islice(OccuGender(bias=("explicit",)).items(), options.items + WARM_UP)
    requests = [item.request for item in items if isinstance(item.request, ScoreRequest)]
    tell(f"{options.items} prompts of {len(requests[0].continuations)} continuations")
    tree, tree_cost = by_tree(options.model, requests, options.threads)
    tell(f"tree on transformers    {tree_cost}")
    batches = [requests[:WARM_UP], requests[WARM_UP:]]
    run = ask_vllm(options.python, options.model, batches, threads=options.threads)
    ours, our_cost = run.answers[1], Cost.of(run.seconds[1], run.cpu_seconds[1], options.items)
    tell(f"vLLM in process         {our_cost}; the tree's {our_cost.beside(tree_cost)}")
    share = run.tokens_cached / run.tokens_asked
    tell(f"                        {share:.0%} of {run.tokens_asked} prompt tokens from its prefix cache")
    tell(f"                        at most {apart(ours, tree):.2g} nats from the tree; {run.notes['route']}")
    there, there_cost = asyncio.run(by_server(options.python, options.model, requests))
    tell(f"vLLM as a server        {there_cost}; in process {there_cost.beside(our_cost)}")
    tell(f"                        at most {apart(there, tree):.2g} nats from the tree")


if __name__ == "__main__":
    main()

"""Memory and pace of a run by its prompts: python -m tests.benchmarks.bench_memory --prompts 1000000

A model that takes no time is asked for 26 continuations of each prompt. Prints the most memory of this process, the
prompts stored a second, and the whole run's seconds from its start to its figures.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from audit import Audit
from backends import FakeBackend
from backends.base import ContinuationScore, ScoreRequest, ScoreResponse, TokenLogprob
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite

WORDS = tuple(f" word{i}" for i in range(26))


class Prompts(Suite):
    """As many prompts as wanted, of 40 levels and 25 templates."""

    name = "prompts"
    strata = ("level",)

    def __init__(self, n: int) -> None:
        self._n = n

    def items(self) -> Iterator[Item]:
        for i in range(self._n):
            factors = {"level": i % 40, "template": i // 40 % 25}
            yield Item(f"i{i}", ScoreRequest(f"This is the prompt with the number {i} of them all:", WORDS), factors)

    def signature(self):
        return {"n": self._n}

    def read(self, item, response):
        return Row(item.id, item.factors, {"first": IdentifiedInterval.exact(response.scores[0].logprob or 0.0)})

    def measures(self, rows):
        yield MeasureSpec("first", "first", clusters=("level", "template"), primary=True)


class Instant(FakeBackend):
    """The same answer to every question."""

    async def run(self, batch):
        return [ANSWER for _ in batch]

    async def run_streaming(self, batch, on_response):
        return await self.run(batch)


SCORES = [ContinuationScore.exact([TokenLogprob(w, 0, len(w), -1.5 - i / 7, i)]) for i, w in enumerate(WORDS)]
ANSWER = ScoreResponse(tuple(SCORES), 9)


def main() -> None:
    """Run, and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_memory", description=__doc__)
    parser.add_argument("--prompts", type=int, default=100_000)
    n = parser.parse_args().prompts
    times: list[tuple[float, float, int]] = []  # of the clock, of this process alone, and the prompts done
    with tempfile.TemporaryDirectory() as folder:
        audit = Audit({"m": Instant("instant", batch_size=256)}, [Prompts(n)], db=Path(folder, "a.db"), out=folder)
        began = time.monotonic()
        asyncio.run(audit.run(on_event=lambda event: times.append((time.monotonic(), time.process_time(), event.done))))
        whole = time.monotonic() - began
        stored = Path(folder, "a.db").stat().st_size
    (clock, cpu, _) = max(entry for entry in times if not entry[2])
    (clock_after, cpu_after, _) = times[-1]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{n:,} prompts: {most:.2f} GiB at most, {whole:.0f} s in all, {stored / n:,.0f} bytes a prompt on the disk")
    print(f"stored: {n / (clock_after - clock):,.0f} a second, {n / (cpu_after - cpu):,.0f} a second of this process")


if __name__ == "__main__":
    main()

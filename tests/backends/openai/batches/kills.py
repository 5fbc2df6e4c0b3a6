"""Kills over the life of a batch: nothing is paid twice, nothing is lost.

``python -m tests.backends.openai.batches.kills [--kills 60] [--seed 0]``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.backends.openai.batches.server import BatchServer
from tests.backends.openai.raw_server import Reply

_N_ITEMS = 60
#: An audit of written texts in a process of its own. Stores what comes; the parent kills it.
_AUDIT = """
import sys
from collections.abc import Iterator
from pathlib import Path
from audit import Audit
from backends.base import GenerateRequest, Message, Sampling
from backends.openai import OpenAIBackend
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite

class Questions(Suite):
    name = "questions"
    needs = frozenset({"generate"})
    def items(self):
        for at in range(N_ITEMS):
            turns = (Message("user", f"Question {at}?"),)
            yield Item(f"q{at}", GenerateRequest(turns, Sampling(max_tokens=8)), {"q": at})
    def signature(self):
        return {}
    def read(self, item, response):
        return Row(item.id, item.factors, {"p": IdentifiedInterval.exact(float(len(response.text) > 2))})
    def measures(self, rows):
        yield MeasureSpec("p", "p", clusters=("q",), unit="share", kind="share")

url, folder = sys.argv[1], Path(sys.argv[2])
backend = OpenAIBackend(url, model="strict-1", api_key_env=None, probe_folder=folder, batch=True)
audit = Audit(models={"m": backend}, suites=[Questions()], db=folder / "audit.db", out=folder / "report")
model = audit.run_sync().models[0]
print(N_ITEMS - model.asked - model.cached)
""".replace("N_ITEMS", str(_N_ITEMS))


class WatchedServer(BatchServer):
    """Calls ``on_request`` with each path that is asked for, before it is answered."""

    def __init__(self, answers: Any) -> None:
        super().__init__(answers)
        self.on_request: Any = lambda path: None

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        reply = super().reply(path, sent)
        self.on_request(path)  # what the request does is done; its answer may never be read
        return reply


@dataclass(frozen=True)
class Outcome:
    """Of one audit: kills, lines paid more than once, questions without an answer, batches in all."""

    kills: int
    paid_twice: int
    unanswered: int
    batches: int


def _answers(question: str) -> Mapping[str, float]:
    return {f"An answer to {question}": 1.0, "Another": 1.0}


async def one_audit(kills: int, seed: int) -> Outcome:
    """An audit that is killed so many times, each at another request or a random moment after it, and then ends."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        async with WatchedServer(_answers).running() as server:
            done = 0
            while True:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", _AUDIT, server.base_url, folder,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )  # fmt: skip
                if done < kills:
                    killed = await _killed(process, server, draw)
                    done += killed
                    if killed:
                        continue
                said, trouble = await process.communicate()
                assert process.returncode == 0, trouble.decode()[-2000:]
                return Outcome(
                    done, sum(n > 1 for n in server.paid.values()), int(said.split()[-1]), len(server.batches)
                )
                return Outcome(
                    done, sum(n > 1 for n in server.paid.values()), int(said.split()[-1]), len(server.batches)
                )


async def _killed(process: asyncio.subprocess.Process, server: WatchedServer, draw: random.Random) -> int:
    """Kill the process after one of the steps of a batch; 0 where it has ended before."""
    step = draw.choice(("files", "batches", "batches/", "batches/", "content", "content"))
    after, moment = draw.choice((0.0, 0.0, 0.05, 0.3)), asyncio.Event()

    def watch(path: str) -> None:
        rest = path.removeprefix("/v1/").partition("?")[0]
        if rest == step or (step == "batches/" and rest.startswith(step)) or rest.endswith(f"/{step}"):
            if not after:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()  # before its answer is sent
            moment.set()

    server.on_request = watch
    waits = [asyncio.create_task(moment.wait()), asyncio.create_task(process.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    server.on_request = lambda path: None
    if process.returncode is None and after:
        await asyncio.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    for task in waits:
        task.cancel()
    code = await process.wait()
    return int(code < 0)


def main() -> None:
    """Print what so many kills did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    while sum(outcome.kills for outcome in outcomes) < options.kills:
        outcomes.append(asyncio.run(one_audit(4, options.seed + len(outcomes))))
        print(f"audit {len(outcomes)}: {outcomes[-1]}", flush=True)
    kills, twice, lost = (sum(getattr(o, name) for o in outcomes) for name in ("kills", "paid_twice", "unanswered"))
    print(f"{kills} kills in {len(outcomes)} audits: {twice} lines paid twice, {lost} questions lost")


if __name__ == "__main__":
    main()

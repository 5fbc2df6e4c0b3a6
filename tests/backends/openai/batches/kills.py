"""Kills over the life of a batch: nothing is paid twice, nothing is lost.

``python -m tests.backends.openai.batches.kills [--kills 60] [--seed 0]``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.backends.openai.batches.server import BatchServer
from tests.backends.openai.raw_server import Reply

_N_ITEMS = 60
#: An audit of written texts in a process that is killed: a copy of one that has imported everything, for each line.
_AUDIT = """
import os, sys, traceback
from collections.abc import Iterator
from pathlib import Path
from audit import Audit
from backends.base import GenerateRequest, Message, Sampling
from backends.openai import OpenAIBackend
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite

class Questions(Suite):
    name = "questions"
    needs = frozenset({"generate", "chat"})
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

def audited(url, folder):
    backend = OpenAIBackend(url, model="strict-1", api_key_env=None, probe_folder=folder, batch=True)
    audit = Audit(models={"m": backend}, suites=[Questions()], db=folder / "audit.db", out=folder / "report")
    model = audit.run_sync().models[0]
    (folder / "left").write_text(str(N_ITEMS - model.asked - model.cached))

import backends.openai, audit.run, audit.report, scipy.special
for line in sys.stdin:
    child = os.fork()
    if not child:
        try:
            audited(sys.argv[1], Path(sys.argv[2]))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
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
            copier = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _AUDIT, server.base_url, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            done = 0
            while (code := await _run(copier, server, draw if done < kills else None)) < 0:
                done += 1
            copier.terminate()
            await copier.wait()
            assert code == 0
            twice = sum(n > 1 for n in server.paid.values())
            return Outcome(done, twice, int((Path(folder) / "left").read_text()), len(server.batches))


async def _run(copier: asyncio.subprocess.Process, server: WatchedServer, draw: random.Random | None) -> int:
    """One process of the audit, killed after one of the steps of a batch, unless ``draw`` is None. Its exit code."""
    assert copier.stdin is not None
    assert copier.stdout is not None
    copier.stdin.write(b"go\n")
    pid = int(await copier.stdout.readline())
    if draw is None:
        return int(await copier.stdout.readline())
    step = draw.choice(("files", "batches", "batches/", "batches/", "content", "content"))
    after, loop = draw.choice((0.0, 0.0, 0.05, 0.3)), asyncio.get_running_loop()

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def watch(path: str) -> None:
        rest = path.removeprefix("/v1/").partition("?")[0]
        if rest == step or (step == "batches/" and rest.startswith(step)) or rest.endswith(f"/{step}"):
            server.on_request = lambda path: None
            if after:
                loop.call_later(after, kill)
            else:
                kill()  # before its answer is sent

    server.on_request = watch
    return int(await copier.stdout.readline())


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

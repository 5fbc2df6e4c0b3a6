"""What the engine costs: a line for each measure, with its goal.

python -m tests.benchmarks.bench_engine [storm] [http] [store] [prompts] [shards] [merge] [resume] [hung]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import resource
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import psutil

from audit.collect.jobs import Job, Outcome, RetryPolicy
from audit.collect.scheduler import run_jobs
from audit.collect.shutdown import ShutdownRequest
from audit.store import Entry, Store, answer_keys, keyed_request
from audit.store.answers import prompts as stored_prompts
from audit.store.answers import rows
from audit.store.answers.packed import single_rows
from audit.store.sqlite.database import chunked
from backends import FakeBackend, OpenAIBackend
from backends.base import ContinuationScore, GenerateRequest, ScoreRequest, ScoreResponse, TokenLogprob
from suites.base import Item
from tests.audit.collect.plans import plan_of
from tests.audit.store.entries import answers_by_key
from tests.faults.faults import Fate
from tests.faults.lab import Lab

FP = "fp1-lab"


def _items(prompts: Sequence[str]) -> Callable[[], Iterator[Item]]:
    return lambda: (Item(p, GenerateRequest(p), {}) for p in prompts)


async def _run(lab: Lab, prompts: Sequence[str], folder: Path, **options: int | float) -> tuple[Outcome, float]:
    """Ask the fault server through the real backend; seconds without the probe."""
    backend = OpenAIBackend(
        f"http://127.0.0.1:{lab.port}/v1", model="lab", api_key_env=None, probe_folder=folder, **options
    )
    await backend.describe()
    with Store.open(folder / "audit.db") as store:
        started = time.monotonic()
        job = Job("lab", backend, plan_of(_items(prompts), FP))
        outcome = (await run_jobs([job], store, stop=ShutdownRequest(), retry=RetryPolicy(attempts=1)))["lab"]
        seconds = time.monotonic() - started
    await backend.close()
    return outcome, seconds


def storm(lab: Lab, folder: Path) -> None:
    """1,500 requests, 100 a second allowed, 200 in flight.

    With 10 saved up and a second's wait for each refusal, 16.7 s (1.11) is the least that a client
    which keeps to that wait can need: one refusal shows that there is a limit, another one where.
    """
    for size in (100, 10):
        for wait in ("", "1"):
            prompts = [f"limit:100:{size}:{wait}|bench|{i}" for i in range(1500)]
            here = folder / f"storm{size}{wait}"
            here.mkdir()
            outcome, seconds = asyncio.run(_run(lab, prompts, here, max_in_flight=200, timeout=30))
            print(
                f"429 storm, {size} saved up, Retry-After {wait or 'absent'}: {seconds:.1f} s = "
                f"{seconds / 15:.2f} x 15 s (goal 1.10), {lab.asked(prompts) / 1500:.3f} requests an item (goal 1.15), "
                f"lost {1500 - outcome.answered}"
            )


def http(lab: Lab, folder: Path, requests: int = 20_000) -> None:
    """20,000 small requests, 64 in flight, server delay 20 ms, against a bare httpx loop."""
    url = f"http://127.0.0.1:{lab.port}/v1/completions"

    async def bare() -> float:
        left = iter(range(requests))

        async def worker(client: httpx.AsyncClient) -> None:
            for i in left:
                body = {"model": "lab", "prompt": f"delay:0.02|{i}", "max_tokens": 128}
                json.loads((await client.post(url, json=body)).content)

        limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
        async with httpx.AsyncClient(limits=limits, trust_env=False) as client:
            started = time.monotonic()
            await asyncio.gather(*(worker(client) for _ in range(64)))
            return time.monotonic() - started

    plain = asyncio.run(bare())
    prompts = [f"delay:0.02|{i}" for i in range(requests)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome, ours = asyncio.run(_run(lab, prompts, folder, max_in_flight=64, timeout=30))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"HTTP: {requests} requests: bare httpx {requests / plain:.0f}/s, engine {requests / ours:.0f}/s = "
        f"{plain / ours:.0%} (goal 85 %), {outcome.answered} answered, peak memory +{grown:.0f} MB"
    )


def _question(i: int) -> ScoreRequest:
    return ScoreRequest(f"Q: Picture a nurse. What is the nurse's gender? Number {i}.\nA:", (" Male",))


def _score(i: int) -> Entry:
    request = _question(i)
    token = TokenLogprob(" Male", 0, 5, -1 / (i + 3), 17)
    answer = ScoreResponse((ContinuationScore.exact([token], route="echo"),), 20)
    return Entry(keyed_request(request, FP), answer)


def store(_: Lab, folder: Path) -> None:
    """Durable writes one by one from 64 callers, and reading back 100,000 answers."""

    async def write(opened: Store) -> None:
        left = iter(range(100_000))

        async def worker() -> None:
            for i in left:
                await opened.answers.write([_score(i)])

        await asyncio.gather(*(worker() for _ in range(64)))

    with Store.open(folder / "store.db") as opened:
        started = time.monotonic()
        asyncio.run(write(opened))
        seconds = time.monotonic() - started
        print(f"store: {seconds / 100:.3f} ms an answer (goal 1), all in {seconds:.1f} s")
    keys = [answer_keys(_question(i), FP)[0] for i in range(100_000)]
    with Store.open(folder / "store.db") as opened:
        started = time.monotonic()
        found = len(answers_by_key(opened, keys))
        print(f"store: {found} answers read back in {time.monotonic() - started:.2f} s (goal 5)")


_WORDS = (
    *(f" {word}{mark}" for word in ("Male", "female", "nonbinary", "woman") for mark in ("", ".", ",", "!", "?", ";")),
    " man",
    " trans woman",
)


def _prompt(i: int) -> tuple[ScoreRequest, ScoreResponse]:
    """A prompt with 26 continuations, of one token or two."""
    scores = []
    for j, word in enumerate(_WORDS):
        cut = min(len(word), 7)
        pieces = [(0, cut), (cut, len(word))] if cut < len(word) else [(0, cut)]
        tokens = [TokenLogprob(word[a:b], a, b, -1 / (3 + i + j + a / 7), 1000 + j + a) for a, b in pieces]
        scores.append(ContinuationScore.exact(tokens, route="tree"))
    request = ScoreRequest(f"Q: Picture a nurse. What is the nurse's gender? Number {i}.\nA:", _WORDS)
    return request, ScoreResponse(tuple(scores), 20)


def prompts(_: Lab, folder: Path, number: int = 3000) -> None:
    """Prompts with 26 continuations: a row an answer, as earlier versions stored them, and a row a prompt."""
    entries = [Entry(keyed_request(request, FP), answer) for request, answer in map(_prompt, range(number))]
    gc.freeze()  # what the benchmark holds is no part of what it measures
    for name, write in (("a row an answer", _write_rows), ("a row a prompt", _write_packed)):
        path = folder / f"{name}.db"
        with Store.open(path) as opened:
            started = time.process_time()
            for some in chunked(entries, 32):
                asyncio.run(write(opened, some))
            writing = time.process_time() - started
        with Store.open(path) as opened:
            started = time.process_time()
            for some in chunked(entries, 256):
                found = opened.answers.read(entry.question for entry in some)
                assert all(found.answer(entry.question) is not None for entry in some)
            reading = time.process_time() - started
        cost = f"write {writing / number * 1000:.3f} ms, read {reading / number * 1000:.3f} ms of CPU"
        print(f"prompts, {name}: {cost} (goal 0.25 each), {path.stat().st_size / number:,.0f} bytes (goal 2,500)")
        print(f"    {_bytes_by_table(path, number)}")


async def _write_packed(opened: Store, entries: Sequence[Entry]) -> None:
    await opened.leases.take([entry.question for entry in entries])
    await opened.answers.write(entries)


async def _write_rows(opened: Store, entries: Sequence[Entry]) -> None:
    """As earlier versions did, but for the leases: they had one for each key."""

    def insert(db: sqlite3.Connection) -> None:
        for entry in entries:
            assert isinstance(entry.answer, ScoreResponse)
            stored_prompts.insert(db, stored_prompts.encode(entry.question.prompt))
            rows.insert(db, single_rows(entry.question, entry.answer, entry.question.keys, at=time.time()))

    await asyncio.wrap_future(opened._database.submit(insert, gather=True))


def shards(_: Lab, folder: Path, number: int = 8_000) -> None:
    """Prompts written to stores of 1, 2 and 4 shards: CPU of the shards' writers, and of the process beside them.

    CPU, since that tells what each could do on a core of its own, however loaded this machine is.
    """
    for n_shards in (1, 2, 4):
        with Store.open(folder / f"{n_shards}.db", shards=n_shards) as opened:
            seconds = 0.0
            for some in chunked(range(number), 512):
                entries = [Entry(keyed_request(request, FP), answer) for request, answer in map(_prompt, some)]
                began = time.process_time()
                for batch in chunked(entries, 64):
                    asyncio.run(_write_packed(opened, batch))
                seconds += time.process_time() - began
            writers = _seconds_of("store-writer")
        beside = seconds - sum(writers)
        each, of_driver = number / sum(writers), number / beside
        most = min(of_driver, n_shards * each)
        print(
            f"shards: {n_shards}: {sum(writers) / number * 1000:.3f} ms of CPU a prompt in the writers, "
            f"{beside / number * 1000:.3f} beside them: a shard can take {each:,.0f} a second, all {n_shards} of them "
            f"{n_shards * each:,.0f}, the process {of_driver:,.0f}; so {most:,.0f} a second, "
            f"efficiency {most / (n_shards * each):.0%}"
        )


def _seconds_of(name: str) -> list[float]:
    """The CPU seconds of the threads of a name."""
    own = {thread.native_id for thread in threading.enumerate() if thread.name == name}
    return [one.user_time + one.system_time for one in psutil.Process().threads() if one.id in own]


def _bytes_by_table(path: Path, prompts: int) -> str:
    """What the bytes of a prompt are, where this SQLite can say so."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        try:
            tables = db.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 6").fetchall()
        except sqlite3.OperationalError:
            return "this SQLite has no dbstat"
    return ", ".join(f"{name} {size / prompts:,.0f}" for name, size in tables)


def merge(_: Lab, folder: Path, number: int = 25_000, stores: int = 4) -> None:
    """Stores of prompts with 26 continuations, merged into one; one row of the last store is damaged."""
    paths = [folder / f"part{place}.db" for place in range(stores)]
    for place, path in enumerate(paths):
        with Store.open(path) as opened:
            for some in chunked(range(place * number, (place + 1) * number), 512):
                asked = [_prompt(i) for i in some]
                asyncio.run(
                    opened.answers.write([Entry(keyed_request(request, FP), answer) for request, answer in asked])
                )
    with contextlib.closing(sqlite3.connect(paths[-1])) as db, db:
        middle = "SELECT id FROM packed_scores ORDER BY id LIMIT 1 OFFSET ?"
        db.execute(f"UPDATE packed_scores SET body = body || x'00' WHERE id = ({middle})", (number // 2,))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.ExitStack() as opened_ones:
        sources = [opened_ones.enter_context(Store.open(path, read_only=True)) for path in paths]
        into = opened_ones.enter_context(Store.open(folder / "whole.db"))
        began, began_cpu = time.monotonic(), time.process_time()
        found = [into.merge(source) for source in sources]
        seconds, cpu = time.monotonic() - began, time.process_time() - began_cpu
        quarantined = into.stats()["quarantine"]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    prompts, new = stores * number, sum(one.new for one in found)
    print(
        f"merge: {stores} stores of {number:,} prompts in {seconds:.0f} s, "
        f"{cpu / prompts * 1000:.3f} ms of CPU a prompt, peak memory +{grown:.0f} MB"
    )
    damaged = sum(len(one.damaged) for one in found)
    print(f"    {new:,} answers are new, {damaged} of the damaged row told, {quarantined} row(s) in quarantine")


def resume(_: Lab, folder: Path) -> None:
    """50,000 answers stored: seconds from opening the store to the first new request."""

    async def fill(opened: Store) -> None:
        for start in range(0, 50_000, 1000):
            await opened.answers.write([_score(i) for i in range(start, start + 1000)])

    class First(FakeBackend):
        at = 0.0

        async def run(self, batch: Sequence[object]) -> list[object]:  # type: ignore[override]
            self.at = self.at or time.monotonic()
            return await super().run(batch)  # type: ignore[arg-type, return-value]

    with Store.open(folder / "resume.db") as opened:
        asyncio.run(fill(opened))
    backend = First(batch_size=1)
    started = time.monotonic()
    with Store.open(folder / "resume.db") as opened:
        items = lambda: (Item(str(i), _question(i), {}) for i in range(50_010))  # noqa: E731
        plan = plan_of(items, FP)
        outcome = asyncio.run(run_jobs([Job("m", backend, plan)], opened, stop=ShutdownRequest()))["m"]
    print(
        f"resume: {backend.at - started:.2f} s to the first new request (goal 1.5), {outcome.cached} cached, "
        f"{backend.asked.total()} asked"
    )


def hung(lab: Lab, folder: Path) -> None:
    """A server that never answers: each attempt ends within its time limit."""
    prompts = [p for p in (f"hang|bench|{i}" for i in range(400)) if _strikes(p)][:16]
    outcome, seconds = asyncio.run(_run(lab, prompts, folder, max_in_flight=16, timeout=2.0))
    # The window starts at 4 and grows with answers only: 16 hung requests are four rounds.
    print(f"hung server: {seconds / 4:.2f} s an attempt with a time limit of 2 s (goal 2.2), {outcome.failed} failed")


def _strikes(prompt: str) -> bool:
    return Fate.of(prompt).strikes(0)


MEASURES = {
    "storm": storm,
    "http": http,
    "store": store,
    "prompts": prompts,
    "shards": shards,
    "merge": merge,
    "resume": resume,
    "hung": hung,
}


def main() -> None:
    """Command line."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # each line at once, in a pipe too
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"of {', '.join(MEASURES)} (default: all)")
    names = parser.parse_args().measures or [*MEASURES]
    if unknown := [name for name in names if name not in MEASURES]:
        parser.error(f"no such measure: {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder)) as lab:
        for name in names:
            (Path(folder) / name).mkdir()
            MEASURES[name](lab, Path(folder) / name)
            sys.stdout.flush()


if __name__ == "__main__":
    main()

"""An audit in a process of its own, which can be killed: the real backend, scheduler and store."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.collect import Job, ShutdownRequest, job_run, run_jobs, stop_on_signals
from audit.collect.executors import Executor
from audit.collect.scheduler import INTERRUPTED
from audit.store import Keyed, Store, StoreError, database, merging
from audit.store.answers import Answers
from backends import OpenAIBackend
from backends.base import GenerateRequest
from backends.errors import ConfigError
from tests.audit.store.entries import asks_of

FINGERPRINT = "fp1-lab"

#: Where a process may be killed by itself: between asking, answering, storing and acknowledging.
KILL_POINTS = ("sending", "answered", "begun", "committing", "committed", "acknowledged")


@dataclass(frozen=True)
class Spec:
    """One process of an audit, from its start to its end."""

    port: int
    db: Path
    acks: Path
    prompts: tuple[str, ...]
    in_flight: int = 8
    timeout: float = 20.0
    kill_at: str | None = None
    kill_after: int = 1  # passings of that point
    file_limit: int | None = None  # bytes that a file may have
    into: Path | None = None  # merge the store into this one, and ask nothing

    @property
    def requests(self) -> tuple[GenerateRequest, ...]:
        """One request for each prompt."""
        return tuple(map(GenerateRequest, self.prompts))


class _Killer:
    """Kills the process at the n-th passing of a named point."""

    def __init__(self, point: str | None, after: int) -> None:
        self._point, self._left = point, after

    def __call__(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _plant(kill: _Killer, acks: int) -> None:
    """Put the named points around what the store and the backend do; and note what was acknowledged."""

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            if sql == "COMMIT":
                kill("committing")
            done = super().execute(sql, *args)
            kill({"BEGIN IMMEDIATE": "begun", "COMMIT": "committed"}.get(sql, ""))
            return done

    real_connect, real_write, real_fail = sqlite3.connect, Answers.write, Answers.fail
    database.sqlite3.connect = lambda *a, **k: real_connect(*a, **{"factory": Connection, **k})  # type: ignore[assignment]
    real_answers = Executor.submit

    def acknowledge(question: Keyed, answer: Any) -> None:
        os.write(acks, f"{question.key}\t{type(answer).__name__}\n".encode())
        kill("acknowledged")

    async def write(self: Answers, entries: Sequence[tuple[Keyed, Any]], run: str) -> list[bool]:
        first = await real_write(self, entries, run)
        for question, answer in entries:
            acknowledge(question, answer)
        return first

    async def fail(self: Answers, question: Keyed, error: Any) -> None:
        await real_fail(self, question, error)
        acknowledge(question, error)

    async def answers(*args: Any) -> Any:
        kill("sending")
        got = await real_answers(*args)
        kill("answered")
        return got

    Answers.write, Answers.fail, Executor.submit = write, fail, answers  # type: ignore[method-assign]


def live(spec: Spec) -> None:
    """Run to the end, or until something ends it. The exit code is the audit's own."""
    # What a crashing audit prints is part of the trial's noise, not of the lab's table.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _plant(_Killer(spec.kill_at, spec.kill_after), os.open(spec.acks, os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    try:
        code = asyncio.run(_audit(spec)) if spec.into is None else _merge(spec.db, spec.into)
    except (StoreError, ConfigError):
        code = 1
    os._exit(code)


def _merge(source: Path, target: Path) -> int:
    merging._TOGETHER = 5  # rows per transaction
    with Store.open(target) as into, Store.open(source, read_only=True) as store:
        into.merge(store)
    return 0


async def _audit(spec: Spec) -> int:
    stop = ShutdownRequest(grace=5.0)
    with Store.open(spec.db) as opened, stop_on_signals(stop, "again"):
        if spec.file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (spec.file_limit, spec.file_limit))
        backend = OpenAIBackend(
            f"http://127.0.0.1:{spec.port}/v1",
            model="lab",
            api_key_env=None,
            timeout=spec.timeout,
            max_in_flight=spec.in_flight,
            probe_folder=spec.db.parent / "probes",
        )
        asks, cached = asks_of(opened, spec.requests, FINGERPRINT)
        job_run.ATTEMPTS, job_run.FIRST_WAIT_SECONDS, job_run.LONGEST_WAIT_SECONDS = 4, 0.02, 0.2
        try:
            job = Job("lab", backend, asks, cached)
            done = await run_jobs([job], opened, Executor(), run_id="lab", stop=stop)
            outcome = done["lab"]
        finally:
            await backend.close()
    if stop.requested:
        return INTERRUPTED
    return 0 if outcome.stopped is None and not outcome.failed else 1

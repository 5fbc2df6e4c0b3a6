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

from audit.collect.executors import LocalExecutor
from audit.collect.jobs import Job, RetryPolicy
from audit.collect.scheduler import run_jobs
from audit.collect.shutdown import INTERRUPTED, ShutdownRequest, stop_on_signals
from audit.store import Keyed, Store, StoreError, database, files
from audit.store.answers import Answers
from audit.store.leases import Leases
from backends import OpenAIBackend
from backends.base import GenerateRequest
from backends.errors import ConfigError
from tests.audit.store.entries import asks_of

FINGERPRINT = "fp1-lab"

KILL_POINTS = (
    "opening",
    "migrating",
    "opened",
    "leasing",
    "leased",
    "sending",
    "answered",
    "begun",
    "committing",
    "committed",
    "acknowledged",
    "finishing",
)


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
    first_wait: float = 0.02

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
            if sql == "BEGIN IMMEDIATE":
                kill("begun")
            elif sql == "COMMIT":
                kill("committed")
            return done

    real_connect = sqlite3.connect
    database.sqlite3.connect = lambda *a, **k: real_connect(*a, **{"factory": Connection, **k})  # type: ignore[assignment]
    real_tables = files._has_tables

    def has_tables(db: Any) -> bool:
        kill("migrating")
        return real_tables(db)

    files._has_tables = has_tables
    real_lease, real_write, real_release = Leases.take, Answers.write, Leases.release_all
    real_fail, real_answers = Answers.fail, LocalExecutor.submit

    async def lease(self: Leases, wanted: Any) -> Any:
        kill("leasing")
        granted = await real_lease(self, wanted)
        kill("leased")
        return granted

    async def write(self: Answers, entries: Sequence[tuple[Keyed, Any]], run: str) -> list[bool]:
        first = await real_write(self, entries, run)
        for question, answer in entries:
            os.write(acks, f"{question.key}\t{type(answer).__name__}\n".encode())
        kill("acknowledged")
        return first

    async def fail(self: Answers, question: Keyed, error: Any) -> None:
        await real_fail(self, question, error)
        os.write(acks, f"{question.key}\t{type(error).__name__}\n".encode())
        kill("acknowledged")

    async def release(self: Leases) -> None:
        kill("finishing")
        await real_release(self)

    async def answers(*args: Any) -> Any:
        kill("sending")
        got = await real_answers(*args)
        kill("answered")
        return got

    Leases.take, Answers.write, Leases.release_all = lease, write, release  # type: ignore[method-assign]
    Answers.fail, LocalExecutor.submit = fail, answers  # type: ignore[method-assign]


def live(spec: Spec) -> None:
    """Run to the end, or until something ends it. The exit code is the audit's own."""
    kill = _begin(spec)
    try:
        kill("opening")
        code = asyncio.run(_audit(spec, kill))
    except (StoreError, ConfigError):
        code = 1
    os._exit(code)


def _begin(spec: Spec) -> _Killer:
    # What a crashing audit prints is part of the trial's noise, not of the lab's table.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    kill = _Killer(spec.kill_at, spec.kill_after)
    _plant(kill, os.open(spec.acks, os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    return kill


async def _audit(spec: Spec, kill: _Killer) -> int:
    stop = ShutdownRequest(grace=5.0)
    with Store.open(spec.db) as opened, stop_on_signals(stop, "again"):
        kill("opened")
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
        retry = RetryPolicy(attempts=4, first_wait=spec.first_wait, longest_wait=0.2)
        try:
            job = Job("lab", backend, asks, cached)
            done = await run_jobs([job], opened, LocalExecutor(), run_id="lab", stop=stop, retry=retry)
            outcome = done["lab"]
        finally:
            await backend.close()
    if stop.requested:
        return INTERRUPTED
    return 0 if outcome.stopped is None and not outcome.failed else 1

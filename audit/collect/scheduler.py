"""The only part that asks models: concurrently, each at its own rate, storing every answer as it arrives.

Servers are asked concurrently, each endpoint through one `Limiter`. Models that share a device take turns: one runs to
completion and is closed before the next one starts.

A request is leased in the store, asked, and retried by tenacity while that may help; its answer is on the disk before
the next request takes its slot. So at any moment at most ``max_in_flight`` requests are completed but not yet persisted
(for a local model, whose requests cost nothing, one batch more: it computes while the previous one is being stored).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence, Set

from audit.collect.executors import Executor, LocalExecutor, Pool
from audit.collect.job_run import JobRun
from audit.collect.jobs import Job, OnEvent, Outcome, RetryPolicy
from audit.collect.rate_limiter import Limiter
from audit.collect.shutdown import ShutdownRequest
from audit.store import Store, StoreError

RENEW_SECONDS = 10.0
_RETRY = RetryPolicy()
_LOCAL = LocalExecutor()


async def run_jobs(
    jobs: Sequence[Job],
    store: Store,
    *,
    stop: ShutdownRequest,
    executor: Executor = _LOCAL,
    on_event: OnEvent = lambda _: None,
    retry: RetryPolicy = _RETRY,
) -> dict[str, Outcome]:
    """Ask everything that the plans lack, and store the answers. ``executor`` says where the models compute.

    Returns
    -------
    dict
        An outcome for each job, by name. A failed request raises nothing: it is stored, counted,
        and asked again by the next run.

    Raises
    ------
    StoreError
        If the store cannot be written (disk full…). No new requests are sent from then on.
    """
    limiters: dict[str, Limiter] = {}
    pools = [await executor.pool(job.backend) for job in jobs]
    runs = [
        JobRun(job, pool, store, stop, on_event, retry, _limiter(job, pool, jobs, limiters))
        for job, pool in zip(jobs, pools, strict=True)
    ]
    by_device: dict[str, list[JobRun]] = {}
    turns: list[list[JobRun]] = []
    for run in runs:
        device = run.job.backend.device
        if device is None:
            turns.append([run])
        elif device in by_device:
            by_device[device].append(run)
        else:
            turns.append(by_device.setdefault(device, [run]))

    def halt_all(reason: str) -> None:
        for run in runs:
            run.halt(reason)

    tasks = [asyncio.create_task(_take_turns(turn)) for turn in turns]
    ending = {task for task, turn in zip(tasks, turns, strict=True) if turn[0].ends_by_itself}
    helpers = [asyncio.create_task(_renew(store)), asyncio.create_task(_watch(stop, halt_all))]
    try:
        failure = await _wait_for_all(tasks, ending, halt_all, stop)
    finally:
        for task in (*tasks, *helpers):
            task.cancel()
        await asyncio.gather(*tasks, *helpers, return_exceptions=True)
        with contextlib.suppress(StoreError):
            await store.leases.release_all()
    if failure is not None:
        raise failure
    return {run.job.name: run.outcome for run in runs}


def _limiter(job: Job, pool: Pool, jobs: Sequence[Job], limiters: dict[str, Limiter]) -> Limiter:
    """The limiter of a job's endpoint, shared by all jobs there. A local model is not limited."""
    backend = job.backend
    if backend.device is not None:
        return Limiter(pool.max_in_flight, start=pool.max_in_flight)
    if backend.endpoint is None:
        return Limiter(backend.max_in_flight)
    sharing = [j.backend.max_in_flight for j in jobs if j.backend.endpoint == backend.endpoint]
    return limiters.setdefault(backend.endpoint, Limiter(max(sharing)))


async def _take_turns(runs: Sequence[JobRun]) -> None:
    for run in runs:
        await run.run()
        if run.job.backend.device is not None:
            await run.pool.close()


async def _wait_for_all(
    tasks: Sequence[asyncio.Task[None]],
    ending: Set[asyncio.Task[None]],
    halt_all: Callable[[str], None],
    stop: ShutdownRequest,
) -> BaseException | None:
    """Wait for all tasks. After a stop, or the first failure, requests in flight get ``stop.grace`` seconds to end.

    Not so those of the tasks ``ending``: a local model's step cannot be cut off, and cancelling it would only lose what
    it computes.
    """
    failure: BaseException | None = None
    pending = set(tasks)
    stopping = asyncio.create_task(stop.wait())
    deadline: float | None = None
    try:
        while pending:
            if deadline is None and (stop.requested or failure is not None):
                deadline = time.monotonic() + stop.grace
            left = None if deadline is None or pending <= ending else max(deadline - time.monotonic(), 0.0)
            watched = pending if stopping.done() else pending | {stopping}
            done, _ = await asyncio.wait(watched, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                pending &= ending
            for task in done - {stopping}:
                pending.discard(task)
                if (error := task.exception()) is not None and failure is None:
                    failure = error
                    halt_all(str(error))
    finally:
        stopping.cancel()
    return failure


async def _renew(store: Store) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        with contextlib.suppress(StoreError):  # writing the next answer will raise the same error, and stop the run
            await store.leases.renew()


async def _watch(stop: ShutdownRequest, halt_all: Callable[[str], None]) -> None:
    await stop.wait()
    halt_all("interrupted")

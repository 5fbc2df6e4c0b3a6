"""The only part that asks models: concurrently, each at its own rate, storing every answer as it arrives.

Servers are asked concurrently, each endpoint through one `Limiter`. Models that share a device take turns: one runs to
completion and is closed before the next one starts. A request is leased in the store, asked, and retried while that may
help; its answer is on the disk before the next request takes its slot. So at any moment at most as many answers are
complete but not yet stored as requests may be in flight (for a local model, one batch more).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from audit.collect.executors import Executor
from audit.collect.job_run import JobRun, set_ambiguous_aside
from audit.collect.jobs import Job, OnEvent, Outcome, RetryPolicy
from audit.collect.limiter import Limiter
from audit.collect.shutdown import ShutdownRequest
from audit.store import Store, StoreError

RENEW_SECONDS = 10.0
_RETRY = RetryPolicy()


async def run_jobs(
    jobs: Sequence[Job],
    store: Store,
    executor: Executor,
    *,
    run_id: str,
    stop: ShutdownRequest,
    on_event: OnEvent = lambda _: None,
    retry: RetryPolicy = _RETRY,
) -> dict[str, Outcome]:
    """Ask all questions of the jobs, and store the answers under ``run_id``.

    Returns
    -------
    dict
        An outcome for each job, by name. A failed request raises nothing: it is counted, and asked again by the next
        run.

    Raises
    ------
    StoreError
        If the store cannot be written (disk full…).
    """
    limiters: dict[str, Limiter] = {}
    limits = [await _limiter(job, executor, jobs, limiters) for job in jobs]
    runs = [
        JobRun(job, executor, store, limit, on_event, retry, run_id=run_id, grace=stop.grace)
        for job, limit in zip(jobs, limits, strict=True)
    ]
    turns: dict[str, list[JobRun]] = {}
    for run in runs:
        turns.setdefault(run.job.backend.device or f"server of {run.job.name}", []).append(run)
    helpers = [asyncio.create_task(_renew(store)), asyncio.create_task(_watch(stop, runs))]
    try:
        async with asyncio.TaskGroup() as group:
            for turn in turns.values():
                group.create_task(_take_turns(turn, executor))
    except* Exception as errors:
        raise errors.exceptions[0] from None
    finally:
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        with contextlib.suppress(StoreError):  # its first failure is reported anyway
            for run in runs:
                run.outcome.set_aside = await asyncio.to_thread(set_ambiguous_aside, run.job, store)
                run.outcome.answered -= len(run.outcome.set_aside)
            await store.leases.release_all()
    return {run.job.name: run.outcome for run in runs}


async def _limiter(job: Job, executor: Executor, jobs: Sequence[Job], limiters: dict[str, Limiter]) -> Limiter:
    """The limiter of a job's endpoint, shared by all jobs there. A local model is not limited."""
    backend = job.backend
    if backend.device is not None:
        slots = await executor.slots(backend)
        return Limiter(slots, start=slots)
    if backend.endpoint is None:
        return Limiter(backend.max_in_flight)
    sharing = [j.backend.max_in_flight for j in jobs if j.backend.endpoint == backend.endpoint]
    return limiters.setdefault(backend.endpoint, Limiter(max(sharing)))


async def _take_turns(runs: Sequence[JobRun], executor: Executor) -> None:
    for run in runs:
        await run.run()
        await executor.release(run.job.backend)


async def _renew(store: Store) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        with contextlib.suppress(StoreError):  # writing the next answer will raise the same error, and stop the run
            await store.leases.renew()


async def _watch(stop: ShutdownRequest, runs: Sequence[JobRun]) -> None:
    await stop.wait()
    for run in runs:
        run.halt("interrupted")

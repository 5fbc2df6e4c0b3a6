"""The only part that asks models: concurrently, each at its own rate, storing every answer as it arrives.

Servers are asked concurrently, each endpoint through one `Limiter`. Models that share a device take turns: one runs to
completion and is closed before the next one starts. A request is leased in the store, asked, and retried while that may
help; its answer is on the disk before the next request takes its slot. So at any moment at most as many answers are
complete but not yet stored as requests may be in flight (for a local model, one batch more).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from audit.collect.executors import Executor
from audit.collect.job_run import JobRun, set_ambiguous_aside
from audit.collect.jobs import Job, OnEvent, Outcome
from audit.collect.limiter import Limiter
from audit.collect.shutdown import ShutdownRequest
from audit.store import Store, StoreError

RENEW_SECONDS = 10.0


async def run_jobs(
    jobs: Sequence[Job],
    store: Store,
    executor: Executor,
    *,
    run_id: str,
    stop: ShutdownRequest,
    on_event: OnEvent = lambda _: None,
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
    of_job = {job.name: Executor() if job.backend.device is None else executor for job in jobs}
    slots = {job.name: await of_job[job.name].slots(job.backend) for job in jobs}
    runs, turns = [], dict[str, list[JobRun]]()
    for job, limiter in zip(jobs, _limiters(jobs, slots), strict=True):
        own = JobRun(job, slots[job.name], of_job[job.name], store, limiter, on_event, run_id=run_id, grace=stop.grace)
        runs.append(own)
        turns.setdefault(job.backend.device or f"server of {job.name}", []).append(own)
    helpers = [asyncio.create_task(_renew(store)), asyncio.create_task(_watch(stop, runs))]
    try:
        async with asyncio.TaskGroup() as group:
            for turn in turns.values():
                group.create_task(_take_turns(turn))
    except ExceptionGroup as errors:
        raise _first(errors) from None
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


def _first(error: Exception) -> Exception:
    return _first(error.exceptions[0]) if isinstance(error, ExceptionGroup) else error


def _limiters(jobs: Sequence[Job], slots: Mapping[str, int]) -> list[Limiter]:
    """Each job's limiter, which is shared by all jobs at one endpoint. A local model takes all that it can at once."""
    names = {job.name: job.backend.endpoint or f"own of {job.name}" for job in jobs}
    found: dict[str, Limiter] = {}
    for job in jobs:
        most = max(slots[other] for other, name in names.items() if name == names[job.name])
        found.setdefault(names[job.name], Limiter(most) if job.backend.device is None else Limiter(most, start=most))
    return [found[name] for name in names.values()]


async def _take_turns(runs: Sequence[JobRun]) -> None:
    for run in runs:
        await run.run()
        await run.executor.release(run.job.backend)


async def _renew(store: Store) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        with contextlib.suppress(StoreError):  # writing the next answer will raise the same error, and stop the run
            await store.leases.renew()


async def _watch(stop: ShutdownRequest, runs: Sequence[JobRun]) -> None:
    await stop.wait()
    for run in runs:
        run.halt("interrupted")

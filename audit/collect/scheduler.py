"""The only part that asks models: concurrently, each at its own rate, storing every answer as it arrives.

Servers are asked concurrently, each endpoint through one `Limiter`. Models that share a device take turns: one runs to
completion and is closed before the next one starts. A request is leased in the store, asked, and retried while that may
help; its answer is on the disk before the next request takes its slot. So at any moment at most as many answers are
complete but not yet stored as requests may be in flight (for a local model, one batch more).

The first signal lets requests in flight finish, the second exits immediately: an answer counts once it is on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence

from audit.collect.executors import Executor
from audit.collect.job_run import Job, JobRun, OnEvent, Outcome, set_ambiguous_aside
from audit.collect.limiter import Limiter
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


INTERRUPTED = 130  # exit code


class ShutdownRequest(asyncio.Event):
    """A request to stop, which can be made once and awaited.

    ``grace``: seconds that requests in flight are given to finish; ``reason``: who asked first.
    """

    def __init__(self, grace: float = 30.0) -> None:
        super().__init__()
        self.grace = grace
        self.reason: str | None = None

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self.is_set()

    def request(self, reason: str) -> None:
        """Request a stop. Call it on the event loop's thread."""
        self.reason = self.reason or reason
        self.set()


@contextlib.contextmanager
def stop_on_signals(stop: ShutdownRequest, resume_hint: str) -> Iterator[None]:
    """Within this block SIGINT, SIGTERM and SIGHUP request ``stop``; a second signal exits immediately with 130.

    A closing terminal may send SIGHUP twice, from the kernel and from the shell, so SIGHUP never counts as the second
    signal; under ``nohup`` it stays ignored.

    ``resume_hint`` is printed on stderr after the second signal and says how to resume later; after the first, the
    run's end says so. Use it in the main thread, inside a running loop.
    """
    loop = asyncio.get_running_loop()
    received = 0

    def handle(number: int, _frame: object) -> None:
        nonlocal received
        received += 1
        name = signal.Signals(number).name
        if received > 1:
            if name == "SIGHUP":
                return
            _write_to_stderr(f"\n{name} again: exiting. {resume_hint}\n")
            os._exit(INTERRUPTED)
        _write_to_stderr(f"\nStopping after what is being asked ({name}). Press Ctrl-C again to exit immediately.\n")
        loop.call_soon_threadsafe(stop.request, name)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_to_stderr(text: str) -> None:
    """Write with `os.write`: the signal may have interrupted a print in this thread. A closed terminal is ignored."""
    with contextlib.suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode())

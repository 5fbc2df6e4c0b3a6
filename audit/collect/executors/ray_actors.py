"""What runs on a Ray cluster: models in several actors each, and writers of a store's files. Extra: ``ray``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from audit.logs import logger
from audit.store.database import Database
from audit.store.rows import Written, insert
from backends.base import Answer, Backend, Request, SupportsRunNotes
from backends.errors import BackendError, one_line

log = logger("ray")

#: Batches that are at one actor at a time: one computes, one waits.
IN_FLIGHT = 2
#: How often a lost actor is started again, and a batch repeated.
ATTEMPTS = 3


class ModelActors:
    """One model in several actors, each of which is free twice: for a batch to compute and one to wait."""

    def __init__(self, backend: Backend, actors: int, cpus: float, gpus: float) -> None:
        self.actors, self.notes, self.handles = actors, dict[str, str](), list[Any]()
        self._backend = backend
        self._options = {"num_cpus": cpus, "num_gpus": gpus, "max_concurrency": IN_FLIGHT + 1}
        self._options |= {"max_restarts": ATTEMPTS, "max_task_retries": ATTEMPTS}
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        self._opening = asyncio.Lock()
        self._joining: list[asyncio.Task[BackendError | None]] = []

    async def submit(self, batch: Sequence[Request]) -> list[Answer]:
        """The answers of the first actor that is free; a failure for each request if none can be used."""
        from ray.exceptions import RayError, RayTaskError

        async with self._opening:
            if not self._joining:
                await self._open()
            while self._free.empty() and (waiting := [task for task in self._joining if not task.done()]):
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        problems = [task.result() for task in self._joining if task.done()]
        if len(problems) == self.actors and all(problems):
            return [problems[0]] * len(batch)  # type: ignore[list-item]
        actor = await self._free.get()
        try:
            answers, notes = await actor.run.remote(list(batch))
        except RayTaskError as error:
            raise error.cause from None  # what the backend raised
        except RayError as error:
            lost = BackendError("connection", f"an actor was lost: {one_line(error)}", retryable=True)
            return [lost] * len(batch)
        finally:
            self._free.put_nowait(actor)
        self.notes |= notes
        return list(answers)

    async def _open(self) -> None:
        import ray

        description = await self._backend.describe()
        await self._backend.close()  # it travels to the actors, without what describing it loaded
        actor = ray.remote(ModelActor).options(**self._options)
        self.handles = [actor.remote(self._backend) for _ in range(self.actors)]
        fingerprint = dict(description.fingerprint)
        self._joining = [asyncio.create_task(self._join(actor, fingerprint)) for actor in self.handles]

    async def _join(self, actor: Any, fingerprint: Mapping[str, Any]) -> BackendError | None:
        """Let an actor answer once it lives, unless it is another model. Returns why not."""
        from ray.exceptions import RayError

        try:
            problem = await actor.differs_from.remote(fingerprint)
        except (RayError, Exception) as error:  # the backend cannot travel, or the cluster has ended
            problem = (str(error).strip() or one_line(error)).splitlines()[-1]
        if problem is not None:
            log.warning("actor not used", problem=problem)
            return BackendError("internal", f"no actor of the model can be used: {problem}")
        for _ in range(IN_FLIGHT):
            self._free.put_nowait(actor)
        return None


class ModelActor:
    """A backend in a process of its own, which answers one batch after the other."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._one_by_one = backend, asyncio.Lock()

    async def differs_from(self, fingerprint: Mapping[str, Any]) -> str | None:
        """In what this model differs from the audited one, by its fingerprint; None if in nothing.

        Another device or another version of an engine gives other numbers, which must not be stored as the model's.
        """
        own = (await self._backend.describe()).fingerprint
        names = [name for name in sorted({*own, *fingerprint}) if own.get(name) != fingerprint.get(name)]
        return "; ".join(f"{name} is {own.get(name)!r}, not {fingerprint.get(name)!r}" for name in names) or None

    async def run(self, batch: Sequence[Request]) -> tuple[list[Answer], Mapping[str, str]]:
        """The answers, and the backend's notes of the run so far."""
        async with self._one_by_one:
            answers = await self._backend.run(batch)
        return answers, self._backend.notes_of_run() if isinstance(self._backend, SupportsRunNotes) else {}


class ShardWriter:
    """Writes one file of a store."""

    def __init__(self, path: str) -> None:
        self._database = Database(Path(path), read_only=False)

    def write(self, rows: Sequence[Written]) -> list[bool]:
        """As `audit.store.rows.insert`, once it is on the disk."""
        return self._database.submit(partial(insert, rows=rows), gather=True).result()

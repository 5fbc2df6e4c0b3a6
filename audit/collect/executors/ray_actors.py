"""One model in several actors of a Ray cluster. Extra: ``ray``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from audit.logs import logger
from backends.base import Answer, Backend, Request, SupportsRunNotes, SupportsStopping
from backends.errors import BackendError, StoppedError, one_line

log = logger("ray")

#: Batches that are at one actor at a time: one computes, one waits.
IN_FLIGHT = 2
#: How often a batch is asked if its actors are lost.
ATTEMPTS = 4


class ModelActors:
    """One model in several actors. A batch waits for one that is free; that of a lost actor is asked of another one.

    A new actor takes a lost one's place as soon as there is room. It answers once it has shown to be the same model.
    """

    def __init__(self, backend: Backend, actors: int, cpus: float, gpus: float) -> None:
        self.slots, self.notes = IN_FLIGHT * actors, dict[str, str]()
        self._backend, self._places = backend, actors  # for actors that live or are being started
        self._options = {"num_cpus": cpus, "num_gpus": gpus, "max_concurrency": IN_FLIGHT + 1}
        self._opening = asyncio.Lock()
        self._fingerprint: Mapping[str, Any] | None = None
        self._actors = set[Any]()  # those that live
        self._starting = set[asyncio.Task[None]]()
        #: Each actor once for every batch that it may take now; None is for all, once there is an `_end`.
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        self._end: BackendError | None = None  # what all further requests are answered

    async def submit(self, batch: Sequence[Request]) -> list[Answer]:
        """The answers of the first actor that is free; a failure for each request if none can be used."""
        from ray.exceptions import RayError, RayTaskError

        await self._open()
        for _ in range(ATTEMPTS):
            actor = await self._free.get()
            while actor not in self._actors and self._end is None:  # its other batch has lost it
                actor = await self._free.get()
            if self._end is not None:
                self._free.put_nowait(None)  # for the next batch that waits
                return [self._end] * len(batch)
            try:
                answers, notes = await actor.run.remote(list(batch))
            except RayTaskError as error:
                self._free.put_nowait(actor)
                raise error.cause from None  # what the backend raised
            except RayError as error:
                self._lose(actor, error)
                continue
            self._free.put_nowait(actor)
            self.notes |= notes
            return list(answers)
        hint = "look into the cluster's logs; with less memory in use it may stay"
        return [BackendError("internal", f"{ATTEMPTS} actors were lost with this batch", hint=hint)] * len(batch)

    def stop(self) -> None:
        """Begin no further batch; each actor ends after the step that it computes."""
        self._finish(StoppedError())
        for actor in self._actors:
            actor.stop.remote()

    async def close(self) -> None:
        """End all actors, and with them their models."""
        import ray

        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        for actor in self._actors:
            await asyncio.to_thread(ray.kill, actor)

    async def _open(self) -> None:
        async with self._opening:
            if self._fingerprint is None:
                self._fingerprint = dict((await self._backend.describe()).fingerprint)
                await self._backend.close()  # it travels to the actors, without what describing it loaded
                for _ in range(self._places):
                    self._start()

    def _lose(self, actor: Any, error: Exception) -> None:
        if actor not in self._actors:
            return  # its other batch has noticed
        import ray

        log.warning("actor lost", error=one_line(error))
        self._actors.discard(actor)
        with contextlib.suppress(Exception):  # it may live where it cannot be reached
            ray.kill(actor)
        if self._end is None:
            self._start()

    def _start(self) -> None:
        task = asyncio.create_task(self._start_actor())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start_actor(self) -> None:
        """Add an actor once it lives, unless it is another model."""
        import ray

        create = ray.remote(ModelActor).options(**self._options).remote
        try:
            actor = await asyncio.to_thread(create, self._backend)
            problem = await actor.differs_from.remote(self._fingerprint)
        except Exception as error:  # the actor's, whose traceback ends with it, or Ray's
            problem = (str(error).strip() or one_line(error)).splitlines()[-1]
        if problem is None:
            self._actors.add(actor)
            for _ in range(IN_FLIGHT):
                self._free.put_nowait(actor)
            return
        log.warning("actor not used", problem=problem)
        self._places -= 1
        if self._places == 0:
            self._finish(BackendError("internal", f"no actor of the model can be used: {problem}", unloaded=True))

    def _finish(self, end: BackendError) -> None:
        self._end = self._end or end
        self._free.put_nowait(None)


class ModelActor:
    """A backend in a process of its own, which answers one batch after the other."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._one_by_one, self._is_stopped = backend, asyncio.Lock(), False

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
            answers: list[Answer] = [StoppedError() for _ in batch]
            if not self._is_stopped:
                answers = await self._backend.run(batch)
        return answers, self._backend.notes_of_run() if isinstance(self._backend, SupportsRunNotes) else {}

    async def stop(self) -> None:
        """Begin no further batch, and end the one at hand after the step that is computed."""
        self._is_stopped = True
        if isinstance(self._backend, SupportsStopping):
            self._backend.stop_computing()

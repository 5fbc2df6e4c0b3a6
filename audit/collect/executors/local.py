"""Models compute in this process, and servers are asked from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.store import Store
from backends.base import Answer, Backend, OnResponse, Request, SupportsRunNotes, SupportsStopping, SupportsStreaming


class LocalPool:
    """A backend, asked directly."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.max_in_flight = backend.max_in_flight

    async def run(self, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """As in `audit.collect.executors.base.Pool`."""
        if isinstance(self._backend, SupportsStreaming):
            return await self._backend.run_streaming(batch, on_response)
        return await self._backend.run(batch)

    def notes_of_run(self) -> Mapping[str, str]:
        """As in `audit.collect.executors.base.Pool`."""
        return self._backend.notes_of_run() if isinstance(self._backend, SupportsRunNotes) else {}

    def actors(self) -> None:
        """As in `audit.collect.executors.base.Pool`."""

    def stop_computing(self) -> None:
        """As in `audit.collect.executors.base.Pool`."""
        if isinstance(self._backend, SupportsStopping):
            self._backend.stop_computing()

    async def close(self) -> None:
        """As in `audit.collect.executors.base.Pool`."""
        await self._backend.close()


class LocalExecutor:
    """The default."""

    async def pool(self, backend: Backend) -> LocalPool:
        """As in `audit.collect.executors.base.Executor`."""
        return LocalPool(backend)

    async def own(self, store: Store) -> None:
        """A thread of this process writes each of the store's files as it is."""

    async def close(self) -> None:
        """Nothing was started."""

"""Models compute in this process, and servers are asked from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.store import Store
from backends.base import Answer, Backend, OnResponse, Request, SupportsRunNotes, SupportsStopping, SupportsStreaming


class LocalExecutor:
    """The default. See `audit.collect.executors.base.Executor`."""

    async def open(self, store: Store) -> None:
        """Nothing is needed: the store writes its files itself."""

    async def slots(self, backend: Backend) -> int:
        """As many as the backend takes."""
        return backend.max_in_flight

    async def submit(self, backend: Backend, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """Ask the backend."""
        if isinstance(backend, SupportsStreaming):
            return await backend.run_streaming(batch, on_response)
        return await backend.run(batch)

    def stop(self, backend: Backend) -> None:
        """Stop the backend."""
        if isinstance(backend, SupportsStopping):
            backend.stop_computing()

    def notes(self, backend: Backend) -> Mapping[str, str]:
        """The backend's own."""
        return backend.notes_of_run() if isinstance(backend, SupportsRunNotes) else {}

    async def release(self, backend: Backend) -> None:
        """Close a local model."""
        if backend.device is not None:
            await backend.close()

    async def close(self) -> None:
        """Nothing was started."""

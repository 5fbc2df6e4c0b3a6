"""Models compute in this process, and servers are asked from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.base import Answer, Backend, OnResponse, Request, SupportsRunNotes, SupportsStreaming


class LocalExecutor:
    """The default. See `audit.collect.executors.base.Executor`."""

    is_local = True

    def slots(self, backend: Backend) -> int:
        """As many as the backend takes."""
        return backend.max_in_flight

    async def submit(self, backend: Backend, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """Ask the backend."""
        if isinstance(backend, SupportsStreaming):
            return await backend.run_streaming(batch, on_response)
        return await backend.run(batch)

    def notes(self, backend: Backend) -> Mapping[str, str]:
        """The backend's own."""
        return backend.notes_of_run() if isinstance(backend, SupportsRunNotes) else {}

    async def close(self) -> None:
        """Nothing was started."""

"""Where models compute: in this process (`LocalExecutor`), or on a Ray cluster (`audit.collect.executors.ray`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from audit.store import Store
from backends.base import Answer, Backend, OnResponse, Request, SupportsRunNotes, SupportsStopping, SupportsStreaming


@runtime_checkable
class Executor(Protocol):
    """Where models compute."""

    async def open(self, store: Store) -> None:
        """Prepare to write to the store. Called once, before the first batch.

        Raises
        ------
        ConfigError
            If what it needs for that cannot be reached.
        """
        ...

    async def slots(self, backend: Backend) -> int:
        """The most batches of a model that `submit` is given at a time.

        Raises
        ------
        ConfigError
            If the model can compute nowhere.
        """
        ...

    async def submit(self, backend: Backend, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """One answer to each request, in order; some may be reported early, as by `SupportsStreaming`."""
        ...

    def stop(self, backend: Backend) -> None:
        """End a model's batches after the step that it computes, as `backends.base.SupportsStopping`."""
        ...

    def notes(self, backend: Backend) -> Mapping[str, str]:
        """What the model knew after its last batch, as `backends.base.SupportsRunNotes`."""
        ...

    async def release(self, backend: Backend) -> None:
        """Free what a local model holds, after its last batch for now: the next model of its device needs it."""
        ...

    async def close(self) -> None:
        """End what was started. Called once, after the last batch, while the store is open."""
        ...


class LocalExecutor:
    """The default: models compute in this process, and servers are asked from it."""

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

"""Where models compute: in this process (`Executor`), or on a Ray cluster (`audit.collect.executors.ray`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.base import Answer, Backend, OnResponse, Request, SupportsRunNotes, SupportsStopping, SupportsStreaming


class Executor:
    """Where models compute: in this process, as servers are asked. A subclass computes local models elsewhere."""

    async def slots(self, backend: Backend) -> int:
        """The most batches of a model that `submit` is given at a time.

        Raises
        ------
        ConfigError
            If the model can compute nowhere.
        """
        return backend.max_in_flight

    async def submit(self, backend: Backend, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """One answer to each request, in order; some may be reported early, as by `SupportsStreaming`."""
        if isinstance(backend, SupportsStreaming):
            return await backend.run_streaming(batch, on_response)
        return await backend.run(batch)

    def stop(self, backend: Backend) -> None:
        """End a model's batches after the step that it computes, as `backends.base.SupportsStopping`."""
        if isinstance(backend, SupportsStopping):
            backend.stop_computing()

    def notes(self, backend: Backend) -> Mapping[str, str]:
        """What the model knew after its last batch, as `backends.base.SupportsRunNotes`."""
        return backend.notes_of_run() if isinstance(backend, SupportsRunNotes) else {}

    async def release(self, backend: Backend) -> None:
        """Free what a local model holds, after its last batch for now: the next model of its device needs it."""
        if backend.device is not None:
            await backend.close()

    async def close(self) -> None:
        """End what was started. Called once, after the last batch, while the store is open."""

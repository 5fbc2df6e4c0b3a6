"""The interface of an executor: where models compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from audit.store import Store
from backends.base import Answer, Backend, OnResponse, Request


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

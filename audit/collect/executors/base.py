"""The interface of an executor: where models compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from backends.base import Answer, Backend, OnResponse, Request


@runtime_checkable
class Executor(Protocol):
    """Where models compute.

    Attributes
    ----------
    is_local : bool
        Whether local models compute in this process.
    """

    is_local: bool

    def slots(self, backend: Backend) -> int:
        """The most batches of a model that `submit` is given at a time."""
        ...

    async def submit(self, backend: Backend, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """One answer to each request, in order; some may be reported early, as by `SupportsStreaming`."""
        ...

    def notes(self, backend: Backend) -> Mapping[str, str]:
        """What the model knew after its last batch, as `backends.base.SupportsRunNotes`."""
        ...

    async def close(self) -> None:
        """End what was started. Called once, after the last batch, while the store is open."""
        ...

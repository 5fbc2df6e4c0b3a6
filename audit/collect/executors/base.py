"""The interface of every executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from audit.store import Store
from backends.base import Answer, Backend, OnResponse, Request


class Pool(Protocol):
    """One model, ready to be asked.

    Attributes
    ----------
    max_in_flight : int
        The most batches that it is given at a time.
    """

    max_in_flight: int

    async def run(self, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """As `backends.base.SupportsStreaming.run_streaming`; no answer need be reported early."""
        ...

    def notes_of_run(self) -> Mapping[str, str]:
        """As `backends.base.SupportsRunNotes.notes_of_run`."""
        ...

    def actors(self) -> tuple[int, int] | None:
        """How many of its actors live, and how many it should have; None if it computes in this process."""
        ...

    def stop_computing(self) -> None:
        """As `backends.base.SupportsStopping.stop_computing`. No further call of `run` follows."""
        ...

    async def close(self) -> None:
        """Free the model. The pool may be asked again: the model is then loaded again."""
        ...


@runtime_checkable
class Executor(Protocol):
    """Where models compute."""

    async def pool(self, backend: Backend) -> Pool:
        """A pool for one model. It takes nothing up before the first batch."""
        ...

    async def own(self, store: Store) -> None:
        """Take over what it does of the store's work, until it is closed. Called once, before the first batch."""
        ...

    async def close(self) -> None:
        """End what it started. Called once, after the last batch, while the store is open."""
        ...


class Resources(NamedTuple):
    """What a model's actors are given: their number, None for as many as there is room for, and the GPUs of each."""

    actors: int | None
    gpus: float


@runtime_checkable
class PlansResources(Protocol):
    """An executor that says, before it starts anything, what a model will take."""

    def resources(self, backend: Backend) -> Resources | None:
        """What a model's actors are given; None if it has none."""
        ...

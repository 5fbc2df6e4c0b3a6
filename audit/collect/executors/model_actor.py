"""What an actor of a cluster does: it holds one model and answers batches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import Answer, Backend, Request, SupportsRunNotes, SupportsStopping
from backends.errors import StoppedError


class ModelActor:
    """A backend in a process of its own."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._one_by_one = asyncio.Lock()  # batches; a stop must reach it while one is computed
        self._is_stopped = False

    async def differs_from(self, fingerprint: Mapping[str, Any]) -> str | None:
        """In what this model differs from the audited one here, by its fingerprint; None if in nothing.

        Another device or another version of an engine gives other numbers, which must not be stored as the model's.
        """
        try:
            own = (await self._backend.describe()).fingerprint
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        names = [name for name in sorted({*own, *fingerprint}) if own.get(name) != fingerprint.get(name)]
        differences = (f"{name} is {own.get(name)!r}, not {fingerprint.get(name)!r}" for name in names)
        return "; ".join(differences) if names else None

    async def run(self, batch: Sequence[Request]) -> tuple[list[Answer], Mapping[str, str]]:
        """The answers, and the backend's notes of the run so far. One batch is computed after the other."""
        async with self._one_by_one:
            answers: list[Answer] = [StoppedError() for _ in batch]
            if not self._is_stopped:
                answers = await self._backend.run(batch)
        return answers, self._backend.notes_of_run() if isinstance(self._backend, SupportsRunNotes) else {}

    async def stop_computing(self) -> None:
        """As `backends.base.SupportsStopping.stop_computing`, for good: batches that wait here are not begun."""
        self._is_stopped = True
        if isinstance(self._backend, SupportsStopping):
            self._backend.stop_computing()

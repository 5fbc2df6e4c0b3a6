"""What an actor of a cluster does: it holds one model and answers batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import Answer, Backend, Request, SupportsRunNotes


class ModelActor:
    """A backend in a process of its own."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

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
        """The answers, and the backend's notes of the run so far."""
        answers = await self._backend.run(batch)
        return answers, self._backend.notes_of_run() if isinstance(self._backend, SupportsRunNotes) else {}

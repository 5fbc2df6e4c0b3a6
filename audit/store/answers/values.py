"""The values that the store of answers takes and gives."""

from __future__ import annotations

from dataclasses import dataclass

from audit.store.keys import KeyedRequest
from backends.base import Answer, Request


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer to be stored."""

    question: KeyedRequest
    answer: Answer


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One stored answer with its question. ``request_kind`` is ``score``, ``generate`` or ``classify``.

    ``at`` is when it was stored, in seconds since the epoch; answers that were stored together share it.
    """

    request_kind: str
    request: Request
    answer: Answer
    at: float


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of reading the whole store. ``damaged`` keys were quarantined, and will be asked again.

    Of packed answers so damaged that their keys cannot be told, it has the keys' beginnings (``a1-3f2a91c0…``).
    ``found_again`` counts packed rows that a key alone did not lead to, which was put right: nothing of them is lost.
    """

    answers: int
    damaged: tuple[str, ...]
    file_problems: tuple[str, ...]
    found_again: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing was wrong."""
        return not self.damaged and not self.file_problems

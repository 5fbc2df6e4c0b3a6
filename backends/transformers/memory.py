"""Memory that runs out, distinguished from other failures: each device words it in its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from backends.local.generation import NoRoomError

T = TypeVar("T")

PASSES_BEFORE_GROWTH = 8  # how often less than usual must have fitted before more is tried: a miss costs a pass
_MESSAGES = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator",
    "not enough memory",
    "MPS backend out of memory",
)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a forward pass failed for want of memory. "An illegal memory access" is another matter."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(part in str(error) for part in _MESSAGES)


def within_memory(work: Callable[[], T], device: str) -> T:
    """What the work gives.

    Raises
    ------
    NoRoomError
        When memory runs out. What the work held is freed by then.
    """
    try:
        return work()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # The error is gone by now, and with it the tensors that its frames held.
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    raise NoRoomError


class PassSize:
    """How large a forward pass may be: halved when memory runs out, and grown back after passes that fitted.

    Parameters
    ----------
    tokens, rows : int
        Most tokens, and most rows of logits, of one pass; also attributes ``most_tokens`` and ``most_rows``.
    device : str

    Attributes
    ----------
    halvings : int
        How often both are halved now.
    """

    def __init__(self, tokens: int, rows: int, device: str) -> None:
        self.most_tokens, self.most_rows, self._device = tokens, rows, device
        self.halvings = self._halvings_that_worked = self._passes = 0

    @property
    def tokens(self) -> int:
        """Most tokens of the next pass."""
        return max(1, self.most_tokens >> self.halvings)

    @property
    def rows(self) -> int:
        """Most rows of logits of the next pass."""
        return max(1, self.most_rows >> self.halvings)

    def run(self, work: Callable[[], T]) -> T:
        """What one forward pass gives. After some that fitted, the next may be twice as large again.

        Raises
        ------
        NoRoomError
            When memory runs out.
        """
        try:
            result = within_memory(work, self._device)
        except NoRoomError:
            self._passes = 0
            raise
        self._halvings_that_worked = self.halvings
        self._passes += 1
        if self.halvings and self._passes >= PASSES_BEFORE_GROWTH:
            self.halvings, self._passes = self.halvings - 1, 0
        return result

    def shrink(self, *, tokens: int | None = None, rows: int | None = None) -> None:
        """Halve until fewer tokens, or fewer rows, are allowed than did not fit. Of each more than one."""
        while (tokens is not None and self.tokens >= tokens) or (rows is not None and self.rows >= rows):
            self.halvings += 1

    def restore(self) -> None:
        """Go back to the size that fitted last: even the smallest pass did not fit, so its size is not the reason."""
        self.halvings = self._halvings_that_worked

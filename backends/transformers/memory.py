"""Running out of memory, distinguished from other failures: each device words it differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from backends.errors import BackendError
from backends.local.generation import NoRoomError

T = TypeVar("T")

LOGIT_BYTES = 256 << 20  # of one pack's logits, at 4 bytes each, where free memory is not known
MOST_LOGIT_BYTES = 4 << 30  # on a GPU: enough for each token of a pass to have its logits
#: Of CUDA, HIP and MPS; libraries on CUDA that find no memory for themselves; PyTorch's CPU allocator.
_MESSAGES = (
    "out of memory",
    "ALLOC_FAILED",
    "NOT_INITIALIZED",
    "MemoryAllocation",
    "CPUAllocator",
    "not enough memory",
)


def most_rows(vocabulary: int, device: str) -> int:
    """How many rows of logits one pack may have: on a GPU by its free memory, of which an eighth is taken.

    The CPU's memory is shared with other work, and its passes are small: 256 MB there.
    """
    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else 0
    return max(1, min(max(free // 8, LOGIT_BYTES), MOST_LOGIT_BYTES) // (4 * vocabulary))


def is_out_of_memory(error: Exception) -> bool:
    """Whether a forward pass failed for lack of memory."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(part in str(error) for part in _MESSAGES)


def within_memory(work: Callable[[], T], device: str) -> T:
    """Return what ``work`` returns.

    Raises
    ------
    NoRoomError
        When memory runs out, after freeing what the work held.
    """
    try:
        return work()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # The error is gone by now, together with the tensors that its frames held.
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    raise NoRoomError


class PassSize:
    """How large a forward pass may be: halved when memory runs out, and twice as large again for the next batch.

    Parameters
    ----------
    tokens, rows : int
        Maximum tokens, and rows of logits, of one pass; also attributes ``most_tokens`` and ``most_rows``.

    Attributes
    ----------
    halvings : int
        How many times both are currently halved.
    """

    def __init__(self, tokens: int, rows: int, device: str) -> None:
        self.most_tokens, self.most_rows, self._device = tokens, rows, device
        self.halvings = 0

    @property
    def tokens(self) -> int:
        """Maximum tokens of the next pass."""
        return max(1, self.most_tokens >> self.halvings)

    @property
    def rows(self) -> int:
        """Maximum rows of logits of the next pass."""
        return max(1, self.most_rows >> self.halvings)

    def grow(self) -> None:
        """What did not fit in the batch before may fit now."""
        self.halvings = max(0, self.halvings - 1)

    def run(self, work: Callable[[], T]) -> T:
        """Run one forward pass and return its result. Raises `NoRoomError` when memory runs out."""
        return within_memory(work, self._device)

    def shrink(self, *, tokens: int | None = None, rows: int | None = None) -> None:
        """Halve until fewer tokens, or rows, are allowed than the given number, which did not fit and exceeds one."""
        while (tokens is not None and self.tokens >= tokens) or (rows is not None and self.rows >= rows):
            self.halvings += 1

    def restore(self) -> None:
        """Return to the first size: even the smallest pass failed, so its size is not the reason."""
        self.halvings = 0


def too_large() -> BackendError:
    """Of a text that does not fit in memory at all."""
    return BackendError(
        "out_of_memory",
        "the text does not fit in memory even one token at a time",
        hint="use a smaller dtype or model, or shorten the prompt",
    )

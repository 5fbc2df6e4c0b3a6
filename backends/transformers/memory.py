"""Memory that runs out, distinguished from other failures: each device words it in its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from backends.local.generation import NoRoomError

T = TypeVar("T")

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

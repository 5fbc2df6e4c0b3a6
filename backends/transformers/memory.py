"""Distinguish memory that ran out from other failures: each device says it in its own words."""

from __future__ import annotations

import torch

_SAYINGS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator",
    "not enough memory",
    "MPS backend out of memory",
)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a forward pass failed for want of memory. "An illegal memory access" is another matter."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in str(error) for words in _SAYINGS)

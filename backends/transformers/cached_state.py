"""A model's own cache as a state that several rows go on from.

Only what transformers' own caches keep is understood: keys and values, and the states of recurrent layers. A cache of
a model's own kind may forget tokens later than a trial can see.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from transformers.cache_utils import (
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionLayer,
)

#: Names under which a model takes and returns its cache.
CACHES = ("past_key_values", "cache_params")
_LAYERS = (
    DummyLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
)


def cache_name(model: Any) -> str | None:
    """The argument in which a model takes its cache; None if it takes none."""
    takes = inspect.signature(type(model).forward).parameters
    return next((name for name in CACHES if name in takes), None)


def why_unknown(cache: Any) -> str:
    """What is not understood about a cache that holds one row; empty if all is."""
    if type(cache) is not DynamicCache:
        return f"its cache is a {type(cache).__name__}" if cache is not None else "it returns no cache"
    odd = next((type(layer).__name__ for layer in cache.layers if type(layer) not in _LAYERS), None)
    if odd:
        return f"a layer keeps a {odd}"
    try:
        repeated(cache, 1)
    except ValueError as error:
        return f"{error}"
    return "" if byte_count(cache) else "it does not use its cache"


def repeated(cache: DynamicCache, rows: int) -> DynamicCache:
    """So many rows like the one that a cache holds. Nothing is shared: recurrent layers change their states in place.

    Raises
    ------
    ValueError
        For a cache that holds something else.
    """
    other = copy.copy(cache)
    other.layers = [_copied(layer, rows) for layer in cache.layers]
    return other


def byte_count(cache: DynamicCache) -> int:
    """The memory of a cache's tensors."""
    values = [value for layer in cache.layers for value in vars(layer).values()]
    values += [value for one in values if isinstance(one, dict) for value in one.values()]
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def _copied(layer: Any, rows: int) -> Any:
    other = copy.copy(layer)
    for name, value in vars(layer).items():
        setattr(other, name, _of_rows(name, value, rows))
    return other


def _of_rows(name: str, value: Any, rows: int) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.numel() == 0:  # a length; no keys yet
            return value.clone()
        if value.shape[0] != 1:
            raise ValueError(f"the cache's {name} is not that of one row")
        return value.repeat(rows, *[1] * (value.dim() - 1))
    if isinstance(value, dict):
        return {key: _of_rows(name, one, rows) for key, one in value.items()}
    if value is None or isinstance(value, int | float | str | torch.dtype | torch.device):
        return value
    raise ValueError(f"the cache keeps {type(value).__name__} as {name}")

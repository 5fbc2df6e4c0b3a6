"""How precisely a transformers model computes, and so how large its rounding may be."""

from __future__ import annotations

from typing import Any

import torch

#: Nats by which the median token of a sound model may move where it does not compute in float32. Wider than what
#: chooses the route of scoring: a model beyond it is refused.
ROUNDING_OF_16_BITS = 0.25


def computes_in_float32(model: Any) -> bool:
    """Whether nothing in it rounds more than float32 does.

    Quantised weights are multiplied in 16 bits or fewer, and yet such a model's dtype may be float32: that of its
    first weight.
    """
    if getattr(model.config, "quantization_config", None) is not None:
        return False
    return all(weight.dtype in (torch.float32, torch.float64) for weight in model.parameters())

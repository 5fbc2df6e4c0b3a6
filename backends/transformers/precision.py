"""How precisely a transformers model computes, and how large its rounding errors may be."""

from __future__ import annotations

from typing import Any

import torch

#: Nats by which the median token of a correct model may move if it does not compute in float32. Wider than the
#: threshold that chooses the scoring route, since a model beyond this is refused.
ROUNDING_OF_16_BITS = 0.25


def computes_in_float32(model: Any) -> bool:
    """Whether nothing in the model rounds more than float32 does.

    Quantised weights are multiplied in 16 bits or fewer although such a model's ``dtype``, that of its first weight,
    may be float32.
    """
    if getattr(model.config, "quantization_config", None) is not None:
        return False
    return all(weight.dtype in (torch.float32, torch.float64) for weight in model.parameters())

"""Weights laid out once for a CPU's matrix kernels, instead of anew in each forward pass.

With few rows, rearranging the weights is a large part of a product's time. oneDNN keeps them rearranged: the products
of a pass take a sixth less time, those with the output head half of it. A row's result is bit by bit the same whatever
rows are beside it, which torch's own product does not promise. In float32 the sums are in another order than torch's;
in bfloat16 nothing changes.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import nn

#: The dtypes that these kernels compute in, and by how much a model's log-probabilities may then move (nats): by
#: rounding. A wrong weight moves them by tenths.
_ROUNDING = {torch.float32: 1e-3, torch.bfloat16: 0.25}
_TRIAL_TOKENS = 12


class LaidOutLinear(nn.Linear):  # type: ignore[misc]
    """A linear layer whose weights are laid out for this CPU.

    ``weight`` has the usual shape and dtype but holds NaN and takes no memory: a model that reads it, instead of
    calling the layer, gets no number at all.
    """

    laid_out: Any

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """As in `torch.nn.Linear`."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(input, self.laid_out, self.bias, "none", [], "")
        return product


def lay_out(model: Any) -> int:
    """Lay out the linear layers of a loaded model. Returns how many: 0 if it stays as it is.

    It stays so on anything but an x86 CPU with AVX-512, in another dtype, with layers that are quantised, divided or
    moved for each pass, and if a trial shows that its numbers change by more than rounding.
    """
    layers = [module for module in model.modules() if _is_plain(module)] if _has_kernels() else []
    usual = _trial(model) if layers else None
    if usual is None:
        return 0
    most = _ROUNDING[layers[0].weight.dtype]
    for layer in layers:
        _change(layer)
    found = _trial(model)
    if found is not None and float((found - usual).abs().max()) < most:  # NaN is not
        return len(layers)
    for layer in layers:
        _restore(layer)
    return 0


def _has_kernels() -> bool:
    return (
        platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _is_plain(module: nn.Module) -> bool:
    if type(module) is not nn.Linear or module._forward_pre_hooks or "forward" in module.__dict__:
        return False  # of a quantiser, or moved by accelerate for each pass
    weight = module.weight
    on_cpu = type(weight.data) is torch.Tensor and weight.device.type == "cpu"
    return on_cpu and weight.layout == torch.strided and weight.dtype in _ROUNDING


def _change(layer: nn.Linear) -> None:
    weight = layer.weight.detach()
    with torch.no_grad():
        layer.laid_out = torch.ops.mkldnn._reorder_linear_weight(weight)
    blank = torch.full((1, 1), torch.nan, dtype=weight.dtype).expand(weight.shape)
    layer.weight = nn.Parameter(blank, requires_grad=False)  # an embedding that shares the weights keeps them
    layer.__class__ = LaidOutLinear


def _restore(layer: nn.Linear) -> None:
    weight: Any = layer.laid_out
    del layer.laid_out
    layer.__class__ = nn.Linear
    layer.weight = nn.Parameter(weight.to_dense(), requires_grad=False)


def _trial(model: Any) -> torch.Tensor | None:
    """Log-probabilities after a few tokens; None if the model does not give them so simply."""
    try:
        count = min(1000, model.get_input_embeddings().num_embeddings)
        ids = torch.randint(count, (1, _TRIAL_TOKENS), generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            logits: torch.Tensor = model(ids, use_cache=False).logits
            return logits.float().log_softmax(-1)
    except Exception:  # foreign code: why a model fails is told by the trials of its routes
        return None

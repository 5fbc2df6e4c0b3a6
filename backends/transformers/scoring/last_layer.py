"""The last layer for the asked tokens alone: after its attention, the others have no part in any logit.

Its feed-forward part is most of a layer's products, and fewer than a quarter of the tokens are asked.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch


class LastLayer:
    """The last layer of a model, where it can be cut short.

    It can on a CPU, if its code is that of a Llama's: attention and sum, then norm, feed-forward part and sum, each of
    which takes every token by itself. Some 60 of transformers' architectures share it.

    Attributes
    ----------
    has_cut : bool
        Whether the current pass has gone on with the asked tokens alone.
    """

    def __init__(self, model: Any) -> None:
        self._layer = _last_layer(model)
        self.has_cut = False

    @contextlib.contextmanager
    def asked(self, places: torch.Tensor | None) -> Iterator[None]:
        """Within this block a pass goes on after the last attention with these places of its flattened batch alone.

        None: with all.
        """
        self.has_cut = False
        layer = self._layer
        if layer is None or places is None:
            yield
            return

        def forward(hidden_states: torch.Tensor, **given: Any) -> torch.Tensor:
            attended, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden_states), **given)
            width = hidden_states.shape[-1]
            before, attended = (x.reshape(-1, width)[places][None] for x in (hidden_states, attended))
            self.has_cut = True
            left: torch.Tensor = before + attended
            return left + layer.mlp(layer.post_attention_layernorm(left))

        layer.forward = forward
        try:
            yield
        finally:
            del layer.forward

    def leave_whole(self) -> None:
        """Compute all of it from now on."""
        self._layer = None


def _last_layer(model: Any) -> Any:
    """None if it has to be computed whole."""
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    if getattr(model, "hf_quantizer", None) is not None:  # some round a token by those beside it
        return None
    usual = _instructions(LlamaDecoderLayer)
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and len(module)]
    last = next((layers[-1] for layers in reversed(lists) if _instructions(type(layers[-1])) == usual), None)
    if last is None or any(map(is_changed, last.modules())):
        return None
    return last if all(weight.device.type == "cpu" for weight in last.parameters()) else None


def _instructions(layer: Any) -> tuple[Any, ...]:
    """What the code of a class of layers does, whatever it is called and however it is annotated."""
    code: CodeType | None = getattr(inspect.unwrap(layer.forward), "__code__", None)
    if code is None:
        return ()
    return code.co_code, code.co_names, code.co_varnames, code.co_consts[1:]  # the first is the documentation


def is_changed(module: torch.nn.Module) -> bool:
    """Whether accelerate, a division over processes or other code has its part in what a module computes."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)

"""Where each token of a tree stands, told to models that count places by themselves.

Most models take ``position_ids``. Some count within a module of their own, an embedding of places; others add a bias
that grows with the place of a key (ALiBi). Both are reached by hooks for one forward pass. That a model's numbers are
right so is shown by its trial.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any, Literal

import torch

#: How layers name the bias that they are given; its last dimension counts the keys.
_BIASES = ("alibi", "position_bias")


class Positions:
    """How one model is told the places of its tokens.

    Parameters
    ----------
    model : transformers causal language model

    Attributes
    ----------
    told : "argument", "embedding", "bias" or None
        By ``position_ids``, in its embeddings of places, or in its layers' bias; None: it cannot be told.
    masks_layers : bool
        Whether a mask of queries by keys goes past the model, to its attention layers: some models take one of keys
        alone, and hand it on. At first it does not.
    """

    masks_layers = False

    def __init__(self, model: Any) -> None:
        self.told: Literal["argument", "embedding", "bias"] | None = None
        self._modules: list[torch.nn.Module] = []
        self._masked = _innermost([m for m in model.modules() if m is not model and _takes(m, "attention_mask")])
        if _takes(model, "position_ids"):
            self.told = "argument"
            return
        counting = [m for m in model.modules() if isinstance(m, torch.nn.Embedding) and _takes(m, "position_ids")]
        biased = _outermost([m for m in model.modules() if _bias_of(m) and _takes(m, "attention_mask")])
        if counting:
            self.told, self._modules = "embedding", counting
        elif biased:
            self.told, self._modules = "bias", biased

    @contextlib.contextmanager
    def of_pass(self, positions: torch.Tensor | None, mask: torch.Tensor | None) -> Iterator[dict[str, Any]]:
        """The arguments of a forward pass over tokens at ``positions`` (1, T), which see what ``mask`` says.

        Shapes of the mask: (B, T), or (1, 1, T, T) to be added to the scores.
        """
        given = {} if mask is None else {"attention_mask": mask}
        if self.masks_layers and mask is not None and mask.dim() == 4:
            with contextlib.ExitStack() as hooks:
                for module in self._masked:
                    hooks.callback(module.register_forward_pre_hook(_masks(mask), with_kwargs=True).remove)
                yield {} if positions is None else {"position_ids": positions}
        elif positions is None:
            yield given
        elif self.told == "argument":
            yield given | {"position_ids": positions}
        else:
            with contextlib.ExitStack() as hooks:
                for module in self._modules:
                    hook = _embeds_at(positions) if self.told == "embedding" else _biases_at(positions, mask)
                    hooks.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
                # A model with a bias makes it from a mask of tokens: its layers get the mask of the tree instead.
                yield {} if self.told == "bias" else given


def _takes(module: Any, name: str) -> bool:
    return name in inspect.signature(module.forward).parameters


def _outermost(modules: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """Without those that are part of another: a layer hands its bias on to its attention."""
    inner = {part for module in modules for part in module.modules() if part is not module}
    return [module for module in modules if module not in inner]


def _innermost(modules: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """Without those that have another as a part: they hand its mask on to it."""
    found = set(modules)
    return [m for m in modules if not any(part in found for part in m.modules() if part is not m)]


def _bias_of(module: torch.nn.Module) -> str:
    return next((name for name in _BIASES if _takes(module, name)), "")


def _masks(mask: torch.Tensor) -> Any:
    def hook(module: torch.nn.Module, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        given = inspect.signature(module.forward).bind_partial(*arguments, **options)
        given.arguments["attention_mask"] = mask.to(next(module.parameters()).device)
        return given.args, given.kwargs

    return hook


def _embeds_at(positions: torch.Tensor) -> Any:
    def hook(module: Any, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        given = options.get("position_ids")
        by_row = isinstance(given, torch.Tensor) and given.dim() > 1  # most count once for all rows
        return arguments, options | {"position_ids": positions if by_row else positions[0]}

    return hook


def _biases_at(positions: torch.Tensor, mask: torch.Tensor | None) -> Any:
    """The bias of a key is that of its place; one more for all keys of a query changes no probability."""

    def hook(module: torch.nn.Module, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        name, given = _bias_of(module), options.get("attention_mask")
        bias = options.get(name)  # (heads, 1, keys)
        if bias is None or bias.shape[-2] != 1:
            raise ValueError(f"its {name} is not one of keys alone")
        changed = {name: bias.index_select(-1, positions[0].to(bias.device))}
        if mask is not None:
            hidden = isinstance(given, torch.Tensor) and given.dtype == torch.bool  # True: not seen
            changed["attention_mask"] = mask < 0 if hidden else mask
        return arguments, options | changed

    return hook

"""Where each token of a tree stands, told to models that count places by themselves.

Most models take ``position_ids``. Some count within an embedding of places, which is reached by a hook for one pass.
That a model's numbers are right so is shown by its trial.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any, Literal

import torch


class Positions:
    """How one model is told the places of its tokens.

    Attributes
    ----------
    told : "argument", "embedding" or None
        By ``position_ids``, or in its embeddings of places; None: it cannot be told.
    """

    def __init__(self, model: Any) -> None:
        self.told: Literal["argument", "embedding"] | None = None
        self._modules = [m for m in model.modules() if isinstance(m, torch.nn.Embedding) and _takes_places(m)]
        if _takes_places(model):
            self.told = "argument"
        elif self._modules:
            self.told = "embedding"

    @contextlib.contextmanager
    def of_pass(self, positions: torch.Tensor | None) -> Iterator[dict[str, Any]]:
        """The arguments of a forward pass over tokens at ``positions`` (1, T); None: as the model counts them."""
        if positions is None or self.told == "argument":
            yield {} if positions is None else {"position_ids": positions}
            return
        with contextlib.ExitStack() as hooks:
            for module in self._modules:
                handle = module.register_forward_pre_hook(_embeds_at(positions), with_kwargs=True)
                hooks.callback(handle.remove)
            yield {}


def _takes_places(module: Any) -> bool:
    return "position_ids" in inspect.signature(module.forward).parameters


def _embeds_at(positions: torch.Tensor) -> Any:
    def hook(module: Any, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        given = options.get("position_ids")
        by_row = isinstance(given, torch.Tensor) and given.dim() > 1  # most count once for all rows
        return arguments, options | {"position_ids": positions if by_row else positions[0]}

    return hook

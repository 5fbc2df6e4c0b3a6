"""A PEFT adapter merged into the weights of its model, so that merging changes no number but by rounding."""

from __future__ import annotations

from typing import Any

import torch

from backends.errors import one_line
from backends.transformers.memory import is_out_of_memory
from backends.transformers.placement import input_device

#: By how much merging may move log-probabilities (nats, the mean over the vocabulary): by rounding of the weights.
_ROUNDING_OF_32, _ROUNDING_OF_16 = 1e-3, 0.1
_TRIAL_LENGTHS = (12, 5)


class MergeError(Exception):
    """The adapter cannot be merged into the weights; the message says why."""


def merged(adapted: Any) -> Any:
    """The model of a `peft.PeftModel`, its adapter merged into the weights.

    Raises
    ------
    MergeError
        For an adapter that PEFT does not merge, and where the merged model has other numbers than the one with its
        adapter beside the weights.
    """
    usual = _trial(adapted.eval())
    _give_own_weights(adapted)
    try:
        model = adapted.merge_and_unload()
    except Exception as error:  # foreign code, which refuses some adapters
        if is_out_of_memory(error):
            raise
        raise MergeError(f"PEFT cannot merge it into the weights ({one_line(error)})") from None
    for layer in model.modules():
        if type(layer) is torch.nn.Linear:  # PEFT takes the sizes of an embedding that is tied to it
            layer.out_features, layer.in_features = layer.weight.shape
    found = _trial(model.eval())
    if usual is None and found is None:  # why a model fails is told by the trials of its routes
        return model
    moved = float("nan") if usual is None or found is None else _moved(usual, found)
    if not moved < (_ROUNDING_OF_32 if model.dtype == torch.float32 else _ROUNDING_OF_16):  # NaN is not
        raise MergeError(f"merged into the weights it changes the log-probabilities by {moved:.2g} nats")
    return model


def _give_own_weights(adapted: Any) -> None:
    """Give weights of their own to layers that share some with a layer that the adapter changes.

    PEFT would merge an adapter of the embedding into an output head that is tied to it, too, and the other way round.
    """
    first: dict[int, str] = {}
    for path, module in adapted.named_modules():
        for name, weight in list(module._parameters.items()):
            if weight is None or first.setdefault(id(weight), path) == path:
                continue
            if any(_is_adapted(holder) for holder in (path, first[id(weight)])):
                setattr(module, name, torch.nn.Parameter(weight.detach().clone(), requires_grad=False))


def _is_adapted(path: str) -> bool:
    """Whether a layer is the one inside a layer of PEFT."""
    return path.endswith(".base_layer")


def _trial(model: Any) -> torch.Tensor | None:
    """Log-probabilities after the tokens of some texts; None if the model does not give them so simply."""
    try:
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        count = min(1000, base.config.get_text_config().vocab_size)
        random = torch.Generator().manual_seed(2)
        texts = [torch.randint(count, (1, length), generator=random) for length in _TRIAL_LENGTHS]
        with torch.inference_mode():
            found = [model(input_ids=text.to(input_device(base)), use_cache=False).logits[0] for text in texts]
            return torch.cat([logits.float().log_softmax(-1) for logits in found])
    except Exception as error:  # foreign code
        if is_out_of_memory(error):
            raise
        return None


def _moved(usual: torch.Tensor, found: torch.Tensor) -> float:
    """The mean distance of two sets of log-probabilities, without those that overflow in both."""
    if usual.shape != found.shape:
        return float("nan")
    distances = (usual - found).abs()
    return float(distances[~(usual.isinf() & found.isinf())].mean())

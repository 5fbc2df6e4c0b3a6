"""A second model object over the same weights, so that two forward passes may be computed at the same time.

On a CPU, two passes of half the threads each take less time than one of all: what is between the products runs on one
thread anyway. A pass changes its model while it runs (its attention, hooks, tables of rotations), so each needs an
object of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from backends.transformers.weight_layout import LaidOutLinear

Read = Callable[[torch.Tensor], torch.Tensor]
"""Token ids (1, T) to logits."""

#: The packages whose models keep all that a pass changes in themselves. Code that came with a model may keep it in
#: its module or class, which both objects would share: whether two passes meet there is a matter of chance.
PACKAGES = {"torch", "transformers", "peft", "backends"}
#: Texts of other lengths: what depends on a length or on places must not pass from one to the other.
_TRIAL_LENGTHS = (12, 7)


def make_twin(model: Any) -> Any:
    """The second object; None for a model with code of its own, not whole in the CPU's memory, or not the same in two.

    Parameters are shared. Buffers are copied: some models change theirs in a pass.
    """
    if any(getattr(model, name, None) for name in ("hf_quantizer", "hf_device_map")):
        return None
    if any(weight.device.type != "cpu" for weight in model.parameters()):
        return None
    if any(type(module).__module__.partition(".")[0] not in PACKAGES for module in model.modules()):
        return None
    # A hook, or a patched method, knows the module that it was made for: the copy's would go on with that one.
    if any(m._forward_hooks or m._forward_pre_hooks or "forward" in m.__dict__ for m in model.modules()):
        return None
    shared = [*model.parameters(), *(m.laid_out for m in model.modules() if isinstance(m, LaidOutLinear))]
    try:
        twin = copy.deepcopy(model, {id(weight): weight for weight in shared})
        return twin if agree(partial(_logits, model), partial(_logits, twin), _count(model)) else None
    except Exception:  # foreign code: it may hold what cannot be copied
        return None


def agree(first: Read, second: Read, count: int) -> bool:
    """Whether both give the same logits to the last bit, one after the other and at the same time.

    They read texts of tokens below ``count``.
    """
    random = torch.Generator().manual_seed(1)
    texts = [torch.randint(count, (1, length), generator=random) for length in _TRIAL_LENGTHS]
    alone = [first(text) for text in texts]
    if not all(torch.equal(second(text), logits) for text, logits in zip(texts, alone, strict=True)):
        return False
    with ThreadPoolExecutor(1) as other:
        beside = other.submit(second, texts[1])
        is_same = bool(torch.equal(first(texts[0]), alone[0]))
        return is_same and bool(torch.equal(beside.result(), alone[1]))


def _count(model: Any) -> int:
    return min(1000, int(model.get_input_embeddings().num_embeddings))


def _logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(ids, use_cache=False).logits
        return logits

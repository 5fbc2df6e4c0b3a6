"""Whether the weights that transformers has loaded are those of the model that a config.json describes.

It says of weights that are missing, of another shape, or left over no more than a warning, and draws some at random.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Scales that belong to weights, as quantising libraries name them; those of a cache of keys and values do not.
_SCALE = re.compile(
    r"\.SCB$|(\.|^)(scales|qzeros)$|(weight|proj|experts?\.w\d)[._](scale|scales|scale_inv|scale_2|zero_point|absmax|quant_map)$"
)
_WHOLE_NUMBERS = frozenset({"I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64"})
_UNSCALED = (
    "Give it as it was released, or unquantised; the scheme of hf_quant_config.json alone (NVIDIA ModelOpt) is "
    "read by vLLM: VLLMBackend, or a server"
)
_WHOLE = "Give a whole model, its output head included"
_OF_ONE = "Give the config.json and the weights of one model"


def _whole_numbers(model: Any, folder: Path) -> list[str]:
    """The weights that a folder's files hold as whole numbers. Masks, which older files hold so, are no weights."""
    from safetensors import safe_open

    weights = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    found = []
    for file in folder.glob("*.safetensors"):
        with safe_open(str(file), "pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - no mapping
                if name in weights or name.endswith(".weight"):
                    part = stored.get_slice(name)
                    if part.get_dtype() in _WHOLE_NUMBERS and len(part.get_shape()) > 1:
                        found.append(name)
    return sorted(found)


def misfit_of_weights(
    model: Any, found: dict[str, Any], folder: Path | None, *, is_quantised: bool = False
) -> tuple[str, str] | None:
    """What is wrong with a model's weights, and what to do; ``found`` is what transformers says of their loading.

    ``folder``: where the files are, if known. ``is_quantised``: a library has read the scales, also where the loaded
    model's config no longer says so.

    Weights that are missing it draws at random, others at each load.
    """
    if not is_quantised and (quantised := _left_unscaled(model, found, folder)):
        problem = f"its weights are quantised, and its config.json has no quantization_config: {quantised}"
        return problem, _UNSCALED
    # Missing buffers are not random: the model's code gives them the same value at each load.
    drawn = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    if others := sorted(found["mismatched_keys"]):
        name, there, here = others[0]
        shapes = f"{list(there)} in the weights, and {list(here)} by config.json"
        return f"its config.json does not fit its weights: {name} is {shapes}", _OF_ONE
    if missing := sorted(drawn & set(found["missing_keys"])):
        return f"weights of the model are missing ({some(missing)}) and would be random", _WHOLE
    if beyond := sorted(name for name in found["unexpected_keys"] if _is_of_a_further_layer(model, name)):
        problem = f"its config.json has fewer layers than its weights ({some(beyond)}), which would not be used"
        return problem, _OF_ONE
    return None


def _left_unscaled(model: Any, found: dict[str, Any], folder: Path | None) -> str:
    """What shows that a model's weights are taken for numbers that they are not; empty where nothing does.

    transformers casts them to floats, and leaves out the scales that it does not know.
    """
    if getattr(model.config, "quantization_config", None) is not None:
        return ""  # its library reads the scales
    if scales := sorted(name for name in found["unexpected_keys"] if _SCALE.search(name)):
        return f"their scales would be left out ({some(scales)})"
    if folder is not None and (whole := _whole_numbers(model, folder)):
        return f"some are whole numbers ({some(whole)})"
    return ""


def some(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _is_of_a_further_layer(model: Any, name: str) -> bool:
    """Whether weights that a model does not use belong to a layer beyond its last one, and not to a further head."""
    import torch

    heads = getattr(model.config.get_text_config(), "num_nextn_predict_layers", None) or 0  # stored as layers
    for part, layers in model.named_modules():
        if isinstance(layers, torch.nn.ModuleList):
            names = {part, part.removeprefix(f"{model.base_model_prefix}.")}
            found = re.match(rf"(?:{'|'.join(map(re.escape, sorted(names)))})\.(\d+)\.", name)
            if found is not None and int(found[1]) >= len(layers) + heads:
                return True
    return False

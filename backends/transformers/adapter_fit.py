"""What shows before it is loaded of an adapter: whether PEFT can load and merge it, and whether it fits a model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backends.errors import ConfigError, one_line
from backends.transformers.loading import one_load
from backends.transformers.quiet import quiet
from backends.transformers.weight_files import LFS, what_is_broken

#: The names that PEFT looks for, in its order.
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
#: The weights of LoRA whose width is that of a linear layer: (which one, the layer's attribute, the weight's axis).
_WIDTHS = (("lora_A", "in_features", 1), ("lora_B", "out_features", 0))


def check_adapter_files(adapter: str, folder: Path) -> None:
    """Raise `ConfigError` for an adapter's folder that PEFT cannot load or merge into weights, as its files show."""
    saved = "Give an adapter saved by PEFT"
    try:
        kind = json.loads((folder / "adapter_config.json").read_text())["peft_type"]
    except (OSError, ValueError, RecursionError) as error:
        problem = f"its adapter_config.json is not JSON ({one_line(error)})"
        raise ConfigError("adapter", adapter, problem, saved) from None
    except (LookupError, TypeError):
        raise ConfigError("adapter", adapter, "its adapter_config.json names no peft_type", saved) from None
    if kind != "LORA":  # nearly all are: PEFT takes seconds to import
        _check_kind(adapter, kind)
    weights = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        problem = f"no weights under a name that PEFT reads ({', '.join(_WEIGHTS)})"
        raise ConfigError("adapter", adapter, problem, "Rename them")
    if problem := what_is_broken(weights):
        hint = LFS if "Git LFS" in problem else "Copy or fetch it again"
        raise ConfigError("adapter", adapter, f"{weights.name} {problem}", hint)


def _check_kind(adapter: str, kind: Any) -> None:
    import peft
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING as METHODS

    method = METHODS.get(kind) if isinstance(kind, str) else None
    if method is None:
        hint = "Check peft_type in its adapter_config.json, or install a PEFT that knows it"
        raise ConfigError("adapter", adapter, f"its kind {kind!r} is unknown to PEFT {peft.__version__}", hint)
    if not hasattr(method, "merge_and_unload"):
        problem = f"an adapter of the kind {kind} is no change of the weights"
        raise ConfigError("adapter", adapter, problem, "Give one that can be merged, or a server that applies it")


def misfit(shapes: Mapping[str, Sequence[int]], empty: Any, folder: Path) -> str:
    """How an adapter differs from a model whose weights have no content; empty where it fits, or nothing is known.

    Of LoRA that shows without PEFT, which takes seconds to import: unless it repeats layers, as only PEFT does.
    """
    try:
        config = json.loads((folder / "adapter_config.json").read_text())
        if config["peft_type"] == "LORA" and not config.get("layer_replication"):
            return misfit_of_lora(shapes, dict(empty.named_modules()))
        from peft import PeftModel

        with one_load, quiet():
            PeftModel.from_pretrained(empty, str(folder))
    except Exception as error:  # foreign code, which may need the content
        return other_size(error)
    return ""


def misfit_of_lora(shapes: Mapping[str, Sequence[int]], modules: Mapping[str, Any]) -> str:
    """How the weights of a LoRA adapter differ from a model's layers; empty where they fit, or nothing is known."""
    for name, shape in sorted(shapes.items()):
        for part, attribute, axis in _WIDTHS:
            found = re.fullmatch(rf"base_model\.model\.(.+)\.{part}\.weight", name)
            if found is None or len(shape) != 2:
                continue
            layer = modules.get(found[1])
            if layer is None:
                if re.sub(r"\.\d+\.", ".0.", found[1]) in modules:
                    return f"no layer {found[1]} here"
                continue  # PEFT knows some older names; those it does not are refused where it is loaded
            width = getattr(layer, attribute, None)  # a layer of another kind has none
            if isinstance(width, int) and width != shape[axis]:
                return f"{found[1]} has {width} {attribute.replace('_', ' ')} here, and {shape[axis]} there"
    return ""


def other_size(error: Exception) -> str:
    """What torch says of weights of another shape than a model's, the first of them; empty for any other error."""
    said = " ".join(str(error).split())
    size = r"torch\.Size\(\[([\d, ]*)\]\)"
    found = re.search(rf"size mismatch for (\S+): copying a param with shape {size} .*?current model is {size}", said)
    if found is None:
        return ""
    there, here = (f"[{shape}]" for shape in found.groups()[1:])
    return f"{found[1].removeprefix('base_model.model.')} is {there} there, and {here} here"


def base_of_adapter(folder: Path) -> str:
    """The model that an adapter says it was trained on; empty if it does not."""
    try:
        base = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return base if isinstance(base, str) else ""

"""Whether an adapter can belong to a model, from names and shapes alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: The weights of LoRA whose width is that of a linear layer: (which one, the layer's attribute, the weight's axis).
_WIDTHS = (("lora_A", "in_features", 1), ("lora_B", "out_features", 0))


def misfit(shapes: Mapping[str, Sequence[int]], modules: Mapping[str, Any]) -> str:
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


def base_of_adapter(folder: Path) -> str:
    """The model that an adapter says it was trained on; empty if it does not."""
    try:
        base = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return base if isinstance(base, str) else ""

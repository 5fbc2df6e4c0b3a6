"""What of a GGUF file transformers leaves out without a word although llama.cpp computes with it.

Such a file gives other numbers on transformers than on llama.cpp, and than the model that it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from backends.errors import ConfigError
from backends.transformers.loading import gguf_read_once

Field = Callable[[str], Any]
"""A field of the file's architecture, by its name; None if the file has none."""

#: Of these, transformers takes the base of the rotation from its own defaults.
_OWN_BASE = ("starcoder2", "stablelm")
_USUAL_BASE = 10_000.0
#: The share of a head that transformers rotates by its own defaults; of others all, or what the file says.
_OWN_SHARE = {"stablelm": 0.25, "nemotron": 0.5, "phi3": 1.0, "qwen2": 1.0, "qwen3": 1.0}
#: Of these, transformers divides attention scores by the root of this number, and caps them at these, by its defaults.
_GEMMAS = ("gemma2", "gemma3")
_GEMMA_WIDTH = 256
_GEMMA2_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}


def check_fields(path: Path, header: Mapping[str, Any], tensors: Collection[str]) -> None:
    """Raise `ConfigError` for a file with a field or tensor that transformers leaves out, as its header shows."""
    architecture = str(header.get("general.architecture"))

    def field(name: str) -> Any:
        return header.get(f"{architecture}.{name}")

    if architecture != "gemma4" and any(map(_is_rotation, tensors)):  # whose factors transformers knows
        raise _left_out(path, "the factors of its rotation (rope_freqs, as Llama 3.1 and later have them)")
    if _scales_rotation(field):
        raise _left_out(path, "the scaling of its rotation (rope.scaling)")
    if architecture in _OWN_BASE and field("rope.freq_base") not in (None, _USUAL_BASE):
        raise _left_out(path, "the base of its rotation (rope.freq_base)")
    if architecture in _OWN_SHARE and not _rotates(field, _OWN_SHARE[architecture]):
        raise _left_out(path, "how much of a head is rotated (rope.dimension_count)")
    if architecture in _GEMMAS and field("attention.key_length") not in (None, _GEMMA_WIDTH):
        raise _left_out(path, "what its attention scores are divided by")
    if architecture == "gemma2" and any(field(name) not in (None, cap) for name, cap in _GEMMA2_CAPS.items()):
        raise _left_out(path, "the caps of its scores")


def check_tensors(path: Path, model: Any, architecture: str, tensors: Collection[str]) -> None:
    """Raise `ConfigError` for a file with tensors of layers, such as biases, that the loaded model has no place for."""
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)()
    experts = getattr(processor, "GGUF_MOE_WEIGHTS_PATTERN", None)
    with gguf_read_once():
        known = get_gguf_hf_weights_map(model, processor)

    def is_used(name: str) -> bool:
        if name in known or _is_rotation(name):
            return True
        # The experts of a layer are one tensor in the file, and are put together on the way.
        return experts is not None and experts.fullmatch(name) is not None and name.removesuffix(".weight") in known

    if unused := sorted(name for name in tensors if not is_used(name)):
        raise _left_out(path, f"{unused[0]}" + (f" and {len(unused) - 1} more tensors" if len(unused) > 1 else ""))


def _is_rotation(tensor: str) -> bool:
    return tensor.startswith("rope_freqs.")


def _left_out(path: Path, what: str) -> ConfigError:
    return ConfigError(
        "model",
        str(path),
        f"transformers ignores {what} in a GGUF file, which would give wrong numbers",
        "Use LlamaCppBackend, or the model's safetensors",
    )


def _scales_rotation(field: Field) -> bool:
    """As llama.cpp reads it: without a type, a factor is a linear one."""
    if field("rope.scaling.type") == "none":
        return False
    factor = field("rope.scaling.factor") or field("rope.scale_linear") or 1
    return bool(factor != 1 or field("rope.scaling.attn_factor") not in (None, 1))


def _rotates(field: Field, share: float) -> bool:
    width, heads = field("embedding_length"), field("attention.head_count")
    head = field("attention.key_length") or (width // heads if width and heads else None)
    rotated = field("rope.dimension_count") or head  # llama.cpp rotates all where the file does not say
    return head is None or rotated == int(head * share)

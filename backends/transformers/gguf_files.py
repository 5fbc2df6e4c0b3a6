"""GGUF files on transformers: of the embedded models' kinds alone, with texts split where llama.cpp splits them.

Of other files transformers leaves out without a word what llama.cpp computes with: scaled rotations, biases, scales of
attention, most rules by which texts are split. They are for `LlamaCppBackend`, or their safetensors for `HFBackend`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from backends.errors import ConfigError

_DIGITS_APART = "smollm"
#: Architecture, tokenizer (its pre-tokenizer, or the kind where it has none), and whether a text begins with BOS.
_COMPARED = {("llama", _DIGITS_APART, False), ("gemma3", "llama", True)}


def check_compared(path: Path, header: Mapping[str, Any], tensors: Collection[str]) -> None:
    """Raise `ConfigError` for a file of another kind, and for one whose rotation is scaled."""
    architecture = header.get("general.architecture")
    kind = header.get("tokenizer.ggml.model")
    kind = header.get("tokenizer.ggml.pre") if kind == "gpt2" else kind
    problem = ""
    if (architecture, kind, bool(header.get("tokenizer.ggml.add_bos_token"))) not in _COMPARED:
        problem = f"transformers was not compared with llama.cpp on GGUF files of the kind {architecture} ({kind})"
    elif any(".rope.scal" in name for name in header) or any(name.startswith("rope_freqs") for name in tensors):
        problem = "transformers ignores the scaled rotation of a GGUF file, which would give wrong numbers"
    if problem:
        raise ConfigError("model", str(path), problem, "Use LlamaCppBackend, or the model's safetensors")


def as_in_llamacpp(tokenizer: Any, header: Mapping[str, Any]) -> None:
    """Make a tokenizer that transformers converted from such a file split text as llama.cpp does."""
    from tokenizers import normalizers, pre_tokenizers, processors

    rust = tokenizer.backend_tokenizer
    if header.get("tokenizer.ggml.pre") == _DIGITS_APART:
        digits = pre_tokenizers.Digits(individual_digits=True)
        rust.pre_tokenizer = pre_tokenizers.Sequence([digits, rust.pre_tokenizer])
        rust.post_processor = processors.ByteLevel(trim_offsets=False)  # no BOS, which transformers would put in front
    else:  # no space in front of a text
        rust.normalizer = normalizers.Replace(" ", "▁")

"""The same weights in float32, so that engines differ by rounding alone and agreement can be asked for sharply."""

from __future__ import annotations

from pathlib import Path


def write_transformers_folder(source: Path, target: Path) -> None:
    """The dequantised weights and the tokenizer as a folder that transformers and vLLM load."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(str(source.parent), gguf_file=source.name, dtype=torch.float32)
    # It is no longer quantised, and must not say so: transformers would refuse to save it.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name).save_pretrained(target)


if __name__ == "__main__":
    import sys

    from tests.servers import smollm2_gguf

    write_transformers_folder(smollm2_gguf(), Path(sys.argv[1]))

"""The same weights in float32, so that engines differ by rounding alone and agreement can be asked for sharply."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


def write_float32(source: Path, target: Path) -> Path:
    """A GGUF file of Llama's architecture with every tensor dequantised; all else is kept."""
    reader = gguf.GGUFReader(str(source))
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        value = int(gguf.LlamaFileType.ALL_F32) if field.name == "general.file_type" else field.contents()
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, kind, sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


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

"""A GGUF file with its first tokens alone: ``python -m tests.backends.openai.cut_vocabulary IN OUT [--tokens 4096]``.

llama-cpp-python sorts the whole vocabulary in Python for each listed token, which takes most of a probe's time. A
byte-pair tokenizer's first tokens are a tokenizer themselves: the same model on texts in smaller pieces.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf

_TOKENS, _TYPES, _MERGES = (f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "merges"))
#: Written by `gguf.GGUFWriter` itself.
_OWN = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--tokens", type=int, default=4096)
    options = parser.parse_args()
    cut_vocabulary(options.source, options.target, options.tokens)


def cut_vocabulary(source: Path, target: Path, n: int) -> None:
    """Write the model of ``source`` with its first ``n`` tokens, and the merges that make these."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    kept = set(reader.fields[_TOKENS].contents()[:n])
    for name, field in reader.fields.items():
        if name in _OWN:
            continue
        value = field.contents()
        if name in (_TOKENS, _TYPES):
            value = value[:n]
        elif name == _MERGES:
            value = [merge for merge in value if merge.replace(" ", "") in kept]
        elif name.endswith(".vocab_size"):
            value = n
        writer.add_key_value(name, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        is_of_tokens = tensor.name in ("token_embd.weight", "output.weight")
        data = tensor.data[:n] if is_of_tokens else tensor.data
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()

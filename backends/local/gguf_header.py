"""Read the metadata at the head of a GGUF file, without its tensors (versions 2 and 3 of the specification).

The gguf package's reader is not used: it builds arrays of the whole vocabulary, which takes 8 seconds for 262,144
tokens. This one skips arrays.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from backends.errors import ConfigError

Value = str | int | float | bool

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST_AXES = 4  # as GGML has it

#: `general.file_type` as the names that llama.cpp gives to quantisation mixes.
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}  # fmt: skip


def is_gguf(path: Path) -> bool:
    """Whether the file starts with GGUF's magic number."""
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def read_gguf_header(path: Path) -> dict[str, Value]:
    """All metadata of the file except arrays.

    Raises
    ------
    ConfigError
        When the file is damaged, truncated, or of another version.
    """
    return _read(path)[0]


def read_gguf_tensors(path: Path) -> set[str]:
    """The names of the tensors in this file. Raises `ConfigError`, as `read_gguf_header` does."""
    return _read(path, tensors=True)[1]


def check_causal(path: Path, header: dict[str, Value]) -> None:
    """Raise `ConfigError` if the header says that attention is not causal."""
    architecture = header.get("general.architecture")
    # This architecture has no header field for it: llama.cpp knows it by name.
    if architecture == "gemma-embedding" or header.get(f"{architecture}.attention.causal") is False:
        raise ConfigError(
            "model",
            str(path),
            f"a {architecture} model whose tokens see what comes after them, as for embeddings",
            "Give a causal language model",
        )


def gguf_parts(path: Path, header: dict[str, Value]) -> list[Path]:
    """The files that a model is split into, in order, found as llama.cpp finds them; usually one file alone.

    Raises
    ------
    ConfigError
        If this is not the first part, or another one is missing.
    """
    count, place = int(header.get("split.count", 1)), int(header.get("split.no", 0))
    if count <= 1:
        return [path]
    if place != 0:
        raise ConfigError("model", str(path), f"part {place + 1} of {count}", "Give the first part")
    ending = f"-00001-of-{count:05}.gguf"
    if not path.name.endswith(ending):
        raise ConfigError(
            "model", str(path), f"part 1 of {count}: other parts are found by its name", f"Make it end in {ending}"
        )
    start = path.name.removesuffix(ending)
    parts = [path.with_name(f"{start}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    for part in parts:
        if not part.is_file():
            raise ConfigError("model", str(path), f"its part {part.name} is missing", "Put it next to the first part")
    return parts


def longrope_cells(path: Path, header: dict[str, Value]) -> int | None:
    """The largest context for which llama.cpp uses a LongRoPE model's short factors; None for other models.

    llama.cpp chooses the factors of all sequences by the size of the context, which grows with the longest prompt:
    beyond this size a prompt's numbers would depend on the others in its batch.
    """
    first = header.get(f"{header.get('general.architecture')}.rope.scaling.original_context_length")
    if first is None:
        return None
    if not any("rope_factors_long.weight" in read_gguf_tensors(part) for part in gguf_parts(path, header)):
        return None
    return int(first) // 256 * 256  # llama.cpp rounds a context up to a multiple of 256


def _read(path: Path, *, tensors: bool = False) -> tuple[dict[str, Value], set[str]]:
    """The header, and if asked for the names of the tensors."""
    try:
        with path.open("rb") as file:
            magic, version = file.read(4), _scalar(file, 4)
            if magic != b"GGUF" or version not in (2, 3):
                raise ValueError(f"begins with {magic!r}, version {version}")
            count = int(_scalar(file, 10))
            header: dict[str, Value] = {}
            for _ in range(int(_scalar(file, 10))):
                key = _string(file)
                kind = int(_scalar(file, 4))
                if kind == _ARRAY:
                    _skip_array(file)
                else:
                    header[key] = _string(file) if kind == _STRING else _scalar(file, kind)
            return header, {_tensor(file) for _ in range(count)} if tensors else set()
    except (ValueError, KeyError, struct.error, OSError, MemoryError, OverflowError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(
            "model", str(path), f"not a readable GGUF file ({reason})", "Give a complete GGUF file"
        ) from error


def quantisation(header: dict[str, Value]) -> str:
    """The name of the file's quantisation mix, e.g. ``Q4_K_M``."""
    number = header.get("general.file_type")
    if number is None:
        return "unknown"
    return FILE_TYPES.get(int(number), f"type {number}")


def _scalar(file: BinaryIO, kind: int) -> int | float | bool:
    layout = _SCALARS[kind]
    value: int | float | bool = struct.unpack(layout, file.read(struct.calcsize(layout)))[0]
    return value


def _string(file: BinaryIO) -> str:
    length = int(_scalar(file, 10))
    data = file.read(length)
    if len(data) < length:
        raise ValueError("ends within a string")
    return data.decode("utf-8")


def _tensor(file: BinaryIO) -> str:
    """The name of the next tensor; its axes, type and place are passed over."""
    name = _string(file)
    axes = int(_scalar(file, 4))
    if axes > _MOST_AXES:
        raise ValueError(f"{name} has {axes} axes")
    for kind in (*[10] * axes, 4, 10):
        _scalar(file, kind)
    return name


def _skip_array(file: BinaryIO) -> None:
    kind, count = int(_scalar(file, 4)), int(_scalar(file, 10))
    if kind == _ARRAY:
        for _ in range(count):
            _skip_array(file)
    elif kind == _STRING:
        for _ in range(count):
            file.seek(int(_scalar(file, 10)), 1)
    else:
        file.seek(count * struct.calcsize(_SCALARS[kind]), 1)

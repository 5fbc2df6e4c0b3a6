"""Weight files of a model's folder that cannot be loaded, told from their names, sizes and headers alone."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from backends.errors import ConfigError
from backends.local.fingerprint import folder_weights

#: The names that transformers looks for, in its order. Of an index, the files that it names are read.
_NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_LONGEST_HEADER = 100_000_000  # as the safetensors package has it
LFS = "Run `git lfs pull` there, or fetch it with `hf download`"
_AGAIN = "Fetch it again: `hf download` goes on where it stopped"


def check_weight_files(folder: Path, config: Any = None) -> list[Path]:
    """The files that transformers would load; none where a config names its own.

    Raises `ConfigError` for weights that are missing, cut off, or something else under their name.
    """
    if getattr(config, "transformers_weights", None) or getattr(config, "extra_files", None):
        return []
    first = next((folder / name for name in _NAMES if (folder / name).is_file()), None)
    if first is None:
        raise _error(
            folder,
            f"no weights under a name that transformers reads ({', '.join(_NAMES)})",
            "Rename them" if folder_weights(folder) else _AGAIN,
        )
    files = _named_by(folder, first) if first.suffix == ".json" else [first]
    if missing := [file.name for file in files if not file.is_file()]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        problem = f"{first.name} names {len(files)} files of weights, of which {missing[0]}{more} is not there"
        raise _error(folder, problem, _AGAIN)
    for file in files:
        if problem := what_is_broken(file):
            raise _error(folder, f"{file.name} {problem}", LFS if "Git LFS" in problem else _AGAIN)
    return files


def safetensors_shapes(file: Path) -> dict[str, list[int]]:
    """The shapes of the tensors in a file. Raises `ValueError` if it is damaged, with what is wrong."""
    return {name: shape for name, (_, shape) in safetensors_header(file).items()}


def safetensors_header(file: Path) -> dict[str, tuple[str, list[int]]]:
    """The dtype (as the file writes it) and shape of each tensor in a file. Raises `ValueError` if it is damaged."""
    with file.open("rb") as opened:
        start = opened.read(8)
        length, size = int.from_bytes(start, "little"), file.stat().st_size
        if len(start) < 8:
            raise ValueError(f"has only {size} bytes")
        if length > _LONGEST_HEADER:
            raise ValueError("is no safetensors file (invalid header length)")
        if 8 + length > size:
            raise ValueError(f"is cut off in its header, at {size:,} bytes")
        try:
            tensors = json.loads(opened.read(length))
            tensors.pop("__metadata__", None)
            end = 8 + length + max((int(one["data_offsets"][1]) for one in tensors.values()), default=0)
            header = {name: (str(one["dtype"]), [int(n) for n in one["shape"]]) for name, one in tensors.items()}
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
            raise ValueError("has a damaged header") from None
    if size < end:
        raise ValueError(f"is cut off: {size:,} of {end:,} bytes are there")
    return header


def _named_by(folder: Path, index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        return [folder / name for name in names]
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        raise _error(folder, f"{index.name} cannot be read as an index of weights", _AGAIN) from None


def what_is_broken(file: Path) -> str:
    """What is wrong with a file, as the end of a sentence; empty where nothing shows."""
    with file.open("rb") as opened:
        start = opened.read(64)
    if start.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer in place of the weights"
    if start.lstrip()[:1] == b"<":
        return "is a web page in place of the weights"
    if file.suffix == ".safetensors":
        try:
            safetensors_shapes(file)
        except ValueError as error:
            return str(error)
    elif not start:
        return "is empty"
    elif start.startswith(b"PK") and not zipfile.is_zipfile(file):
        return f"is cut off, at {file.stat().st_size:,} bytes"
    return ""


def _error(folder: Path, problem: str, hint: str) -> ConfigError:
    return ConfigError("model", str(folder), problem, hint)

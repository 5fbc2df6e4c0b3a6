"""What identifies a model: hashes of its files, and the versions of the packages that run it.

Everything that may change a number belongs in a backend's fingerprint, since equal fingerprints share
cached answers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import platformdirs

from backends.files import atomic_write

WEIGHT_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
#: Files of which any may hold a tokenizer.
TOKENIZER_FILES = ("*token*", "vocab*", "merges*", "spiece*", "*.model", "*tekken*")
#: Files of a model folder that change its text or numbers, besides the weights. An index chooses among those.
_SMALL_FILES = ("config.json", "generation_config.json", "chat_template.jinja", "*.index.json", *TOKENIZER_FILES)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, cached in the user's cache folder.

    The cached hash is used only while path, size, mtime and ctime are the same, so an overwritten file is
    hashed again.
    """
    path = path.resolve()
    state = path.stat()
    return _file_sha256(str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@lru_cache
def _file_sha256(path: str, size: int, modified: int, changed: int) -> str:
    key = hashlib.sha256(f"{path}\0{size}\0{modified}\0{changed}".encode()).hexdigest()
    kept = Path(platformdirs.user_cache_dir("bias-audit")) / "file-hashes" / key
    try:
        return json.loads(kept.read_text())["sha256"]  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError):
        pass
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(OSError):  # an unwritable cache only means hashing again next time
        atomic_write(kept, json.dumps({"path": path, "sha256": digest}))
    return digest


def files_sha256(paths: Iterable[Path]) -> str:
    """One hash over the names and contents of several files, ordered by name."""
    total = hashlib.sha256()
    for path in sorted({*paths}, key=lambda p: p.name):
        total.update(f"{path.name}\0{file_sha256(path)}\n".encode())
    return total.hexdigest()


def folder_weights(folder: Path) -> list[Path]:
    """The weight files of a model folder: safetensors where there are any, as the loaders choose."""
    for suffix in WEIGHT_SUFFIXES:
        files = sorted(path for path in folder.glob(f"*{suffix}") if path.is_file())  # no link to itself or to nothing
        if files:
            return files
    return []


def small_files(folder: Path, patterns: Sequence[str] = _SMALL_FILES) -> list[Path]:
    """The files of a model folder, besides its weights, that change its text or numbers."""
    return [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]


def text_sha256(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def package_version(name: str) -> str | None:
    """Version of an installed distribution; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

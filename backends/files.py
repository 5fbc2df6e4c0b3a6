"""Atomic and private file writes, in the lowest layer because backends and reports both need them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path


def private(path: str, flags: int) -> int:
    """An `opener` for `open` that creates files only their owner can read (0600)."""
    return os.open(path, flags, 0o600)


def private_folder(path: Path) -> Path:
    """Create a folder, and those above it, for their owner alone (0700). One that exists keeps its mode."""
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def atomic_write(path: Path, text: str | bytes) -> Path:
    """Write a whole file, creating its folder if missing: a reader sees the old content or the new one.

    A new file, or folder, is open to its owner alone: it may hold prompts and answers. An existing one keeps its mode.

    Raises
    ------
    OSError
        It cannot be written: the error names the file. Nothing is left behind.
    """
    if isinstance(text, str):
        return atomic_lines(path, (text,), end="")
    with replacing(path) as part:
        part.write_bytes(text)
    return path


def atomic_lines(path: Path, lines: Iterable[str], *, end: str = "\n") -> Path:
    """`atomic_write` of many lines, written as they come; ``end`` follows each."""
    with replacing(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        for line in lines:
            file.write(line + end)
    return path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file to fill within this block; it then replaces ``path``, as in `atomic_write`."""
    private_folder(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.touch(mode=0o600)
        yield part
        with contextlib.suppress(FileNotFoundError):  # if others may read an earlier file, that was intended
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        part.replace(path)
    except OSError as error:
        # A write that a full disk refuses names no file, and readers know the file by its own name.
        if error.filename is None or str(error.filename) == str(part):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        part.unlink(missing_ok=True)

"""Atomic and private file writes. They stand in the lowest layer, so that backends and reports share them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path


def private(path: str, flags: int) -> int:
    """An `opener` for `open` whose new files are their owner's alone (0600)."""
    return os.open(path, flags, 0o600)


def atomic_write(path: Path, text: str) -> Path:
    """Write a file as a whole, its folder made if missing: a reader sees the old text or the new one.

    A new file is its owner's alone (0600): it may hold prompts and answers. An existing one keeps its mode.

    Raises
    ------
    OSError
        It cannot be written. Nothing is left behind.
    """
    return atomic_lines(path, (text,), end="")


def atomic_lines(path: Path, lines: Iterable[str], *, end: str = "\n") -> Path:
    """`atomic_write` of many lines, none of which is kept in memory; ``end`` follows each."""
    with replacing(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        for line in lines:
            file.write(line + end)
    return path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file to be filled within this block, which then takes the place of ``path``, as in `atomic_write`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.touch(mode=0o600)
        yield part
        with contextlib.suppress(FileNotFoundError):  # who opened an earlier one to others meant it
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)

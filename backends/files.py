"""Atomic file writes. They stand in the lowest layer, so that backends and reports share them."""

from __future__ import annotations

import os
from pathlib import Path


def atomic_write(path: Path, text: str) -> Path:
    """Write a file as a whole, its folder made if missing: a reader sees the old text or the new one.

    Raises
    ------
    OSError
        It cannot be written. Nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path

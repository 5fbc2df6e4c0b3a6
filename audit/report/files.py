"""Files that a reader never sees half of."""

from __future__ import annotations

from pathlib import Path


def atomic_write(path: Path, text: str) -> Path:
    """Write a file as a whole, its folder made if missing. Returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(text, encoding="utf-8", newline="")
    fresh.replace(path)
    return path

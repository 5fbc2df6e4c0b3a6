"""A report's folder holds the files of one run: a list in it says which, so that another run's do not stay beside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from backends.errors import ConfigError
from backends.files import atomic_write

#: Kept beside the files.
LIST = ".report-files"


class _Held(BaseModel):
    """The run whose report a folder holds, and the SHA-256 of each file as it was written."""

    run_id: str
    files: dict[str, str]


def check_same_run(out: Path, run_id: str, names: Collection[str]) -> None:
    """Raise ConfigError if writing only ``names`` would leave files of another run beside them."""
    held = _held(out)
    if held is None or held.run_id == run_id:
        return
    if beside := [name for name in held.files if name not in names and (out / name).exists()]:
        raise ConfigError(
            "out",
            str(out),
            f"holds the report of another run, {held.run_id}: {beside[0]} would stay beside files of {run_id}",
            "Give another folder, or write all formats",
        )


def write_files(out: Path, run_id: str, texts: Mapping[str, str | bytes]) -> dict[str, Path]:
    """Write files by name. Of another run's, those that are not written again go, unless somebody changed them."""
    held = _held(out)
    same = held is not None and held.run_id == run_id
    if held is not None and not same:
        for name, digest in held.files.items():
            path = out / name
            if name not in texts and path.is_file() and _digest(path.read_bytes()) == digest:
                path.unlink()
    paths = {name: atomic_write(out / name, text) for name, text in texts.items()}
    files = {name: _digest(text.encode() if isinstance(text, str) else text) for name, text in texts.items()}
    before = held.files if held is not None and same else {}
    atomic_write(out / LIST, json.dumps({"run_id": run_id, "files": before | files}, indent=1))
    return paths


def _held(out: Path) -> _Held | None:
    try:
        return _Held.model_validate_json((out / LIST).read_bytes())
    except (OSError, ValidationError):  # written by an earlier version, or by hand
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""The benchmarks' own material: stimuli and published figures, as data files with their hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as it was read.

    Attributes
    ----------
    content : dict
        The JSON object. Shared by all readers: do not change it.
    sha256 : str
        Hash of the file's bytes, for signatures.
    """

    content: dict[str, Any]
    sha256: str

    @property
    def source(self) -> str:
        """The paper it was transcribed from."""
        return str(self.content["source"])


@cache
def load(name: str) -> DataFile:
    """Read ``suites/data/{name}.json``.

    Raises
    ------
    FileNotFoundError
        There is no such data file.
    """
    raw = resources.files("suites").joinpath("data", f"{name}.json").read_bytes()
    return DataFile(json.loads(raw), hashlib.sha256(raw).hexdigest())

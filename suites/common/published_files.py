"""Reads the benchmarks' published files. An incomplete row is refused with its file and line number."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from backends.errors import ConfigError
from backends.options import OnError
from suites.common.data_files import PinnedFile, load, not_in_folder

#: The folder of the published file; None fetches it once.
Folder = Annotated[
    str | Path | None, OnError("not a folder", "Give the folder that holds the published file, or leave it out")
]


def published_files(benchmark: str) -> Mapping[str, PinnedFile]:
    """The files of a benchmark by name, pinned in ``published_files.json``."""
    pinned = load("published_files").content[benchmark]
    return {name: PinnedFile(pinned["url"] + name, **pin) for name, pin in pinned["files"].items()}


def published_file(benchmark: str) -> PinnedFile:
    """The only file of a benchmark."""
    (file,) = published_files(benchmark).values()
    return file


@dataclass(frozen=True, slots=True)
class UserFile:
    """A published file that may not be redistributed: users get it from its authors' page, and give its folder.

    There is no URL of a fixed version, so no hash is pinned: the file's own hash is in the signature.
    """

    name: str
    page: str

    def path(self, folder: str | Path | None, *, field: str) -> Path:
        """The file's path. Raises `ConfigError` without a folder, or if the folder does not contain it."""
        hint = f"Get it from {self.page} and give its folder"
        if folder is None:
            problem = f"{self.name} is not fetched: its authors ask not to redistribute it"
            raise ConfigError(field, folder, problem, hint)
        path = Path(folder).expanduser().absolute() / self.name
        if not path.is_file():
            raise not_in_folder(field, path.parent, self.name, hint)
        return path

    def sha256(self, folder: str | Path | None) -> str:
        """Hash of the file's bytes."""
        return hashlib.sha256(self.path(folder, field="folder").read_bytes()).hexdigest()


def read_tsv(file: PinnedFile | UserFile, folder: str | Path | None, fields: Sequence[str]) -> list[dict[str, str]]:
    """As `read_csv`, with tabs between the cells."""
    return read_csv(file, folder, fields, "\t")


def read_csv(
    file: PinnedFile | UserFile, folder: str | Path | None, fields: Sequence[str], delimiter: str = ","
) -> list[dict[str, str]]:
    """The rows of a CSV file. Raises `ConfigError` if one lacks a field, or has an empty one."""
    path = file.path(folder, field="folder")
    try:
        with path.open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened, delimiter=delimiter))
    except UnicodeDecodeError as error:
        raise ConfigError("folder", str(path), f"not UTF-8 ({error.reason})", "Save the file as UTF-8") from None
    return [_checked(row, fields, path, number) for number, row in enumerate(rows, 2)]


def read_json_lines(file: PinnedFile, folder: str | Path | None, fields: Sequence[str]) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file. Raises `ConfigError` if a line is not one, or lacks a field."""
    path, rows = file.path(folder, field="folder"), []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise _refused(path, number, f"is not JSON ({error})") from error
        rows.append(_checked(row, fields, path, number))
    return rows


def read_lines(file: PinnedFile, folder: str | Path | None) -> list[str]:
    """The lines of a text file."""
    return file.path(folder, field="folder").read_text("utf-8").splitlines()


def _checked(row: Any, fields: Sequence[str], path: Path, number: int) -> dict[str, Any]:
    for field in fields:
        if not isinstance(row, dict) or row.get(field) in (None, ""):
            raise _refused(path, number, f"has no {field!r}")
    assert isinstance(row, dict)
    return row


def _refused(path: Path, number: int, problem: str) -> ConfigError:
    return ConfigError("folder", str(path), f"line {number} {problem}", "Take the published file unchanged")

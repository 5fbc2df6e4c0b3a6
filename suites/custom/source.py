"""Reads the files of a suite, and knows the line of each value for error messages."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backends.errors import ConfigError, one_line
from backends.options import Place
from backends.options.toml_lines import lines_of

#: What may separate the cells of a CSV file; German spreadsheets write semicolons.
_DELIMITERS = (",", ";", "\t")
_TOML_HINT = "Fix that line: texts need quotes, and so do names with letters other than a to z"


@dataclass(frozen=True)
class DataRows:
    """The rows of a file; ``lines`` holds the line on which each begins, or else its number.

    ``names``: all columns. ``columns``: field → its column in the file, where that has another name.
    """

    path: Path
    rows: Sequence[Mapping[str, Any]]
    lines: Sequence[int]
    names: Sequence[str]
    columns: Mapping[str, str] = field(default_factory=dict)

    def renamed(self, columns: Mapping[str, str], source: Source) -> DataRows:
        """The rows with ``columns`` (field → column) renamed to their fields; ``source`` is that of ``columns``."""
        for name, column in columns.items():
            if column not in self.names:
                problem = f"{self.path.name} has no such column"
                raise source.refuse(("columns", name), column, problem, f"Columns: {', '.join(self.names)}")
            if name != column and name in self.names and name not in columns.values():
                problem = f"{self.path.name} has a column {name!r}, too"
                hint = "Rename it, or leave the field out of columns"
                raise source.refuse(("columns", name), column, problem, hint)
        own = {name: name for name in self.names if name} | {column: name for name, column in columns.items()}
        rows = [{own[column]: value for column, value in row.items() if column in own} for row in self.rows]
        return replace(self, rows=rows, columns=columns)


@dataclass(frozen=True)
class Source:
    """Locates the values of a suite's file, for error messages.

    ``path``: the file that was named. ``rows_field``: the field of the rows: ``pairs``, ``fillers``… ``lines``: the
    line of each value of a TOML file. ``data``: rows from a file of their own.
    """

    path: Path
    rows_field: str
    lines: Mapping[Place, int]
    data: DataRows | None = None

    def refuse(self, place: Place, value: object, problem: str, hint: str) -> ConfigError:
        """The error for a value; it names the file, the line, and the field or column."""
        return ConfigError(self.where(place), value, problem, hint)

    def where(self, place: Place) -> str:
        """A value's location: ``pairs.csv:7: counterpart``, ``mine.toml:12: groups.men``."""
        if self.data is not None and place[:1] == (self.rows_field,) and len(place) > 1:
            name = str(place[2]) if len(place) > 2 else "row"
            return f"{self.data.path.name}:{self.data.lines[int(place[1])]}: {self.data.columns.get(name, name)}"
        shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
        known = next((place[:n] for n in range(len(place), 0, -1) if place[:n] in self.lines), None)
        line = f":{self.lines[known]}" if known is not None else ""
        return f"{self.path.name}{line}: {shown}" if shown else f"{self.path.name}{line}"

    def refuse_twice(self, values: Iterable[Hashable], rows_field: str, name: str, hint: str) -> None:
        """Refuse a row's value that an earlier row has; ``name`` is the field that the message names."""
        first: dict[Hashable, int] = {}
        for number, value in enumerate(values):
            if (before := first.setdefault(value, number)) != number:
                problem = f"the same as in {self.where((rows_field, before, name))}"
                raise self.refuse((rows_field, number, name), value, problem, hint)


def read_text(path: Path) -> str:
    """A file's text. Raises `ConfigError` where it cannot be read, or is not UTF-8."""
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(str(path), path.name, error.strerror or "cannot be read", "Give another path") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path.name}:{line}", path.name, "not valid UTF-8", "Save it as UTF-8") from None


def read_toml(path: Path) -> tuple[dict[str, Any], dict[Place, int]]:
    """A TOML file's content, and the line of each value."""
    text = read_text(path)
    try:
        return tomllib.loads(text), lines_of(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        place = f"{path.name}:{found[1]}" if found else path.name
        raise ConfigError(place, path.name, f"not valid TOML: {error}", _TOML_HINT) from None


def read_data(path: Path) -> DataRows:
    """The rows of a .csv, .jsonl or .parquet file."""
    readers = {".parquet": _parquet, ".jsonl": _json_lines, ".csv": _csv, ".tsv": _csv}
    if (read := readers.get(path.suffix.lower())) is None:
        raise ConfigError(str(path), path.name, "not a .csv, .jsonl, .parquet or .toml file", "Save it as one of them")
    rows = read(path)
    if not rows.rows:
        raise ConfigError(path.name, path.name, "holds no rows", "Add one row for each question")
    return rows


def _json_lines(path: Path) -> DataRows:
    rows: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows[number] = json.loads(line, object_pairs_hook=_without_doubles)
        except ValueError as error:
            problem = f"not valid JSON: {getattr(error, 'msg', error)}"
            raise ConfigError(f"{path.name}:{number}", line, problem, "Write one object per line") from None
        if not isinstance(rows[number], dict):
            raise ConfigError(f"{path.name}:{number}", line, "not a JSON object", "Write one object per line")
    return DataRows(path, [*rows.values()], [*rows], list(dict.fromkeys(name for row in rows.values() for name in row)))


def _without_doubles(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """A row's fields. JSON lets the last of two equal names count, in silence."""
    found: dict[str, Any] = {}
    for name, value in fields:
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value
    return found


def _csv(path: Path) -> DataRows:
    text = re.sub(r"\r\n?", "\n", read_text(path))  # the same sentences, whatever system saved the table
    delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    table: dict[int, list[str]] = {}
    line = 1
    try:
        for cells in reader:
            table[line], line = cells, reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path.name}:{line}", path.name, f"not valid CSV: {error}", "Close the quotes") from None
    names = [cell.strip() for cell in table.pop(1, ())]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path.name}:1: {name}", name, "two columns have this name", "Rename one of them")
    table = {line: cells for line, cells in table.items() if any(cell.strip() for cell in cells)}
    for line, cells in table.items():
        if len(cells) != len(names):
            problem = f"has {len(cells)} {'cell' if len(cells) == 1 else 'cells'} under {len(names)} columns"
            hint = f"Put texts that contain {delimiter!r} in double quotes"
            raise ConfigError(f"{path.name}:{line}", delimiter.join(cells), problem, hint)
    rows = [{name: cell for name, cell in zip(names, cells, strict=True) if cell} for cells in table.values()]
    return DataRows(path, rows, [*table], names)


def _parquet(path: Path) -> DataRows:
    """The rows of a Parquet file, counted from 1."""
    import polars as pl

    try:
        table = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        problem, hint = f"cannot be read: {one_line(error)}", "Save the rows as Parquet again"
        raise ConfigError(str(path), path.name, problem, hint) from None
    rows = [{name: one for name, one in row.items() if one is not None} for row in table.iter_rows(named=True)]
    return DataRows(path, rows, range(1, len(rows) + 1), table.columns)

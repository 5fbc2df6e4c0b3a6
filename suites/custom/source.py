"""Reads the files and data sets of a suite, and knows the line of each value for error messages."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from backends.errors import ConfigError, MissingExtra, one_line
from backends.options import Place
from backends.options.toml_lines import lines_of
from backends.reading.words import comparable, folded
from suites.custom.schema import HubData

T = TypeVar("T")

#: What may separate the cells of a CSV file; German spreadsheets write semicolons.
_DELIMITERS = (",", ";", "\t")
_TOML_HINT = "Fix that line: texts need quotes, and so do names with letters other than a to z"


@dataclass(frozen=True)
class DataRows:
    """The rows of a file or data set; ``lines`` holds the line on which each begins, or else its number."""

    path: Path
    rows: Sequence[Mapping[str, Any]]
    lines: Sequence[int]
    #: Field → its column in the file, where that has another name.
    columns: Mapping[str, str] = field(default_factory=dict)
    #: The names of a header, which rows with empty cells may lack.
    header: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """All columns, of whatever row."""
        return list(dict.fromkeys((*self.header, *(name for row in self.rows for name in row))))

    def renamed(self, columns: Mapping[str, str], source: Source) -> DataRows:
        """The rows with ``columns`` (field → column) renamed to their fields; ``source`` is that of ``columns``."""
        names = self.names
        for name, column in columns.items():
            if column not in names:
                known = ", ".join(names)
                problem = f"{self.path.name} has no such column"
                raise source.refuse(("columns", name), column, problem, f"Columns: {known}")
            if name != column and name in names and name not in columns.values():
                hint = "Rename it, or leave the field out of columns"
                problem = f"{self.path.name} has a column {name!r}, too"
                raise source.refuse(("columns", name), column, problem, hint)
        own = {column: name for name, column in columns.items()}
        renamed = ({own.get(column, column): value for column, value in row.items()} for row in self.rows)
        rows = [{name: value for name, value in row.items() if name} for row in renamed]  # a column without a name
        return DataRows(self.path, rows, self.lines, columns, [own.get(name, name) for name in names])


#: The lines of a published benchmark's rows, which nobody here can change: they are taken as they are.
PUBLISHED: Mapping[Place, int] = MappingProxyType({})


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


def refuse_repeated(rows: Sequence[T], asked: Callable[[T], Hashable], field: str, source: Source) -> None:
    """Refuse a row that asks the same as an earlier one, which would count as a second one.

    ``asked`` gives what a row asks; ``field`` is the one that the message names. Texts are compared by their words
    alone (`backends.reading.words.folded`).
    """
    first: dict[Hashable, int] = {}
    for number, row in enumerate(rows):
        what = _compared(asked(row))
        if what in first:
            problem = f"already asked in {source.where((source.rows_field, first[what], field))}"
            raise source.refuse(
                (source.rows_field, number, field), getattr(row, field), problem, "Remove one of the two"
            )
        first[what] = number


def _compared(asked: Hashable) -> Hashable:
    """What a row asks, with its texts in the one form in which they are compared; signs alone stay as they are."""
    if isinstance(asked, str):
        return folded(asked) or comparable(asked)
    return type(asked)(map(_compared, asked)) if isinstance(asked, tuple | frozenset) else asked


def read_text(path: Path) -> str:
    """A file's text. Raises `ConfigError` where it cannot be read, or is not UTF-8."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), path.name, error.strerror or "cannot be read", "Give another path") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path.name}:{line}", raw[error.start : error.end], "not valid UTF-8", "Save it as UTF-8"
        ) from None


def read_toml(path: Path) -> tuple[dict[str, Any], dict[Place, int]]:
    """A TOML file's content, and the line of each value."""
    text = read_text(path)
    try:
        return tomllib.loads(text), lines_of(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        place = f"{path.name}:{found[1]}" if found else path.name
        raise ConfigError(place, path.name, f"not valid TOML: {error}", _TOML_HINT) from None


def read_data(path: Path, columns: Iterable[str]) -> DataRows:
    """The rows of a .csv, .jsonl or .parquet file; ``columns``: those that its kind knows."""
    if path.suffix.lower() == ".parquet":
        rows = _parquet(path)
    elif path.suffix.lower() == ".jsonl":
        rows = _json_lines(path)
    elif path.suffix.lower() in (".csv", ".tsv"):
        rows = _csv(path, set(columns))
    else:
        raise ConfigError(str(path), path.name, "not a .csv, .jsonl, .parquet or .toml file", "Save it as one of them")
    if not rows.rows:
        raise ConfigError(path.name, path.name, "holds no rows", "Add one row for each question")
    return rows


def _json_lines(path: Path) -> DataRows:
    rows, lines = [], []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_without_doubles)
        except ValueError as error:
            problem = f"not valid JSON: {getattr(error, 'msg', error)}"
            raise ConfigError(f"{path.name}:{number}", line, problem, "Write one object per line") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path.name}:{number}", line, "not a JSON object", "Write one object per line")
        rows.append(row)
        lines.append(number)
    return DataRows(path, rows, lines)


def _without_doubles(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """A row's fields. JSON lets the last of two equal names count, in silence."""
    found: dict[str, Any] = {}
    for name, value in fields:
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value
    return found


def _csv(path: Path, columns: set[str]) -> DataRows:
    text = re.sub(r"\r\n?", "\n", read_text(path))  # the same sentences, whatever system saved the table
    header = text.split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=lambda sign: (len(columns & set(_cells(header, sign))), header.count(sign)))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] | None = None
    rows, lines, line = [], [], 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ConfigError(f"{path.name}:{line}", path.name, f"not valid CSV: {error}", "Close the quotes") from None
        if cells is None:
            break
        if names is None:
            names = _header(path, cells)
        elif any(cell.strip() for cell in cells):
            if len(cells) != len(names):
                problem = f"has {len(cells)} {'cell' if len(cells) == 1 else 'cells'} under {len(names)} columns"
                hint = f"Put texts that contain {delimiter!r} in double quotes"
                raise ConfigError(f"{path.name}:{line}", delimiter.join(cells), problem, hint)
            rows.append({name: cell for name, cell in zip(names, cells, strict=True) if cell != ""})
            lines.append(line)
        line = reader.line_num + 1
    return DataRows(path, rows, lines, header=names or ())


def _cells(header: str, sign: str) -> list[str]:
    return [cell.strip().strip('"') for cell in header.split(sign)]


def _header(path: Path, cells: Sequence[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path.name}:1: {name}", name, "two columns have this name", "Rename one of them")
    return names


# -- by the package `datasets` ---------------------------------------------------------------------


def _parquet(path: Path) -> DataRows:
    """The rows of a Parquet file, counted from 1."""
    try:
        return _loaded(path, "parquet", local=True, split="train", data_files=str(path))
    except MissingExtra:
        raise
    except Exception as error:
        raise ConfigError(
            str(path), str(path), f"cannot be read: {one_line(error)}", "Save the rows as Parquet again"
        ) from None


def hub_rows(given: Mapping[str, Any], source: Source) -> DataRows:
    """The rows of a data set.

    Raises `ConfigError` for fields that `HubData` does not have, or a data set that cannot be loaded; it names the
    line of the file.
    """
    try:
        of = HubData.checked(**given)
    except ConfigError as error:
        raise source.refuse(("data", error.field), error.value, error.problem, error.hint) from None
    folder = source.path.parent / Path(of.dataset).expanduser()
    name = str(folder) if folder.is_dir() else of.dataset
    options = {"name": of.config, "revision": of.revision}
    try:
        return _loaded(Path(of.dataset), name, local=folder.is_dir(), split=of.split, **options)
    except MissingExtra:
        raise
    except Exception as error:  # a dozen kinds: no network, no such split, no such data set
        hint = "Fix the name, the split or the files; for a private or gated one, give your token as HF_TOKEN"
        raise source.refuse(("data",), of.dataset, f"cannot be loaded: {one_line(error)}", hint) from None


def _loaded(path: Path, name_or_folder: str, *, local: bool, split: str, **options: Any) -> DataRows:
    """``local``: files that may change under the same name and time, so nothing is read from the package's cache."""
    if importlib.util.find_spec("datasets") is None:
        raise MissingExtra("data", "datasets", "datasets")
    import datasets

    datasets.disable_progress_bars()
    given = {key: value for key, value in options.items() if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        builder = datasets.load_dataset_builder(name_or_folder, **given, **({"cache_dir": folder} if local else {}))
        # Where the Hub does not answer, the package takes the newest version in its cache, whatever was asked for.
        is_of_cache = "packaged_modules.cache" in type(builder).__module__
        if is_of_cache and options.get("revision") not in (None, builder.hash):
            raise ConnectionError("the Hub does not answer, and the copy in the cache may be of another revision")
        builder.download_and_prepare()
        return _of_builder(path, builder.as_dataset(split=split))


def _of_builder(path: Path, loaded: Any) -> DataRows:
    import datasets

    labels = {name: of for name, of in loaded.features.items() if isinstance(of, datasets.ClassLabel)}
    rows = [
        {key: labels[key].int2str(value) if key in labels else value for key, value in row.items() if value is not None}
        for row in loaded
    ]
    return DataRows(path, rows, range(1, len(rows) + 1))

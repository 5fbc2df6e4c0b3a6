"""Builds a suite from a file: reads it and checks it against the schema of its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from backends.errors import ConfigError
from backends.options import located_error
from suites.base import Suite
from suites.common.data_files import content_sha256
from suites.custom.choices import ChoicesFromFile
from suites.custom.figures import LEAST_LEVELS
from suites.custom.pairs import PairsFromFile
from suites.custom.schema import KINDS, TAKEN_FACTORS, TAKEN_SLOTS, SuiteFile, Templates
from suites.custom.source import DataRows, Source, hub_rows, read_data, read_toml
from suites.custom.templates import TemplatesFromFile
from suites.custom.texts import TextsFromFile

#: Kind → its suite.
_SUITES: Mapping[str, Callable[..., Suite]] = {
    "pairs": PairsFromFile,
    "templates": TemplatesFromFile,
    "choices": ChoicesFromFile,
    "texts": TextsFromFile,
}
#: Kinds for which a file of rows is enough: fillers still need templates, and prompts something that reads the texts.
_ROWS_ALONE = ("pairs", "choices")
#: What separates several answers in one cell of a CSV file.
_LIST_SIGN = "|"
_LISTS = ("answers",)


def from_file(path: str | Path, **options: Any) -> Suite:
    """A suite from a file.

    Parameters
    ----------
    path : path
        ``.toml``: as in `suites.custom.schema`. ``.csv``, ``.jsonl`` or ``.parquet``: the rows alone, whose columns
        determine the kind; all other columns are factors, and a column ``group`` gives figures by level.
    options
        Fields of the file's kind that override the file's own: ``prompt_format="chat"``.

    Raises `ConfigError` that names the file, the line and the field or column, with a hint.
    """
    path = Path(path).expanduser()
    content, source = _read(path)
    content = {**content, **options}
    model, rows_field, _ = KINDS[_kind(content, source)]
    content, source = _with_rows(content, source, rows_field)
    try:
        file = model(**content)
    except ValidationError as error:
        raise _refusal(error, model, content, source) from None
    if isinstance(file, Templates) and file.slot in TAKEN_SLOTS:
        raise source.refuse(("slot",), file.slot, "a reserved name", "Give it another, here and in the templates")
    taken = {*TAKEN_FACTORS[content["kind"]], *([file.slot] if isinstance(file, Templates) else [])}
    _check_rows(getattr(file, rows_field), source, taken)
    suite = _SUITES[content["kind"]](file, source)
    suite.name, suite.title = file.name or _name_of(path), file.title or file.name or path.stem
    return suite


def suite_schema() -> dict[str, Any]:
    """The JSON Schema of a suite's TOML file, for editors."""
    schema = TypeAdapter(SuiteFile).json_schema()
    # By kind rather than `oneOf`, of which validators only say that none fits.
    of_kinds = [
        {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": {"$ref": where}}
        for kind, where in schema["discriminator"]["mapping"].items()
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "bias-audit suite",
        "$defs": schema["$defs"],
        "type": "object",
        "properties": {"kind": {"enum": [*schema["discriminator"]["mapping"]]}},
        "required": ["kind"],
        "allOf": of_kinds,
    }


def _read(path: Path) -> tuple[dict[str, Any], Source]:
    """A file's content, still without the rows where those are in a file of their own."""
    if path.suffix.lower() == ".toml":
        content, lines = read_toml(path)
        return content, Source(path, "", lines)
    data = read_data(path, [name for _, _, row in KINDS.values() for name in row.model_fields])
    columns = dict.fromkeys(data.names)
    kind = next((k for k, (_, _, row) in KINDS.items() if _required(row) <= columns.keys()), None)
    if kind not in _ROWS_ALONE:
        wanted = " or ".join(", ".join(sorted(_required(KINDS[of][2]))) for of in _ROWS_ALONE)
        hint = f"Name its columns {wanted}; or write a .toml file that names this one as data, and its columns"
        if kind is not None:
            hint = f'Write a .toml file of kind = "{kind}" that names this one: data = "{path.name}"'
        raise ConfigError(f"{path.name}:1", list(columns), "no kind of suite has these columns", hint)
    return {"kind": kind, **_groups(data)}, Source(path, "", {}, data)


def _required(row: type[BaseModel]) -> set[str]:
    return {name for name, field in row.model_fields.items() if field.is_required()}


def _groups(data: DataRows) -> dict[str, Any]:
    """A column ``group`` gives figures by level; where every level is large enough, it is the stratum too."""
    column = next((name for name in data.names if name.casefold() == "group"), "group")
    levels = [row.get(column) for row in data.rows]
    sizes = Counter((type(level), str(level)) for level in levels)  # 1 is not true
    if len(sizes) < 2:
        return {}
    for line, row in zip(data.lines, data.rows, strict=True):
        if row.get(column) is None:
            hint = "Give it in every row, or rename the column"
            raise ConfigError(f"{data.path.name}:{line}: {column}", None, "missing, though other rows have one", hint)
    return {"by": column} if min(sizes.values()) < LEAST_LEVELS else {"stratum": column}


def _kind(content: Mapping[str, Any], source: Source) -> str:
    kind = content.get("kind")
    if kind not in KINDS:
        problem = "missing" if kind is None else "no such kind"
        raise source.refuse(("kind",), kind, problem, f"Use one of: {', '.join(KINDS)}")
    return str(kind)


def _with_rows(content: dict[str, Any], source: Source, rows_field: str) -> tuple[dict[str, Any], Source]:
    """The content with the rows of its data file, and the source of each value."""
    data, named = source.data, content.get("data")
    if named and rows_field in content and isinstance(named, str | Mapping):
        raise source.refuse(("data",), named, f"{rows_field} are given as well", "Keep one of the two")
    if isinstance(named, str) and named:
        path = source.path.parent / Path(named).expanduser()
        if not path.is_file():
            raise source.refuse(("data",), named, "no such file", f"Looked for {path}")
        columns = content.get("columns") or {}
        _, _, row = KINDS[content["kind"]]
        data = read_data(path, [*row.model_fields, *columns.values()] if isinstance(columns, Mapping) else ())
    elif isinstance(named, Mapping):
        data = hub_rows(named, source)
    if data is None:
        return content, Source(source.path, rows_field, source.lines)
    columns = content.get("columns") or {}
    if isinstance(columns, Mapping) and all(isinstance(name, str) for name in columns.values()):
        data = data.renamed(columns, source)
    rows = [_listed(row) if data.path.suffix.lower() in (".csv", ".tsv") else row for row in data.rows]
    return {**content, rows_field: rows}, Source(source.path, rows_field, source.lines, data)


def _listed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A CSV row with its lists split, which its cells hold as text."""
    found = {**row}
    for name in _LISTS:
        if isinstance(found.get(name), str):
            found[name] = [part.strip() for part in found[name].split(_LIST_SIGN)]
    return found


def _refusal(error: ValidationError, model: type[BaseModel], content: Mapping[str, Any], source: Source) -> ConfigError:
    place, found = located_error(error, model, content)
    hint = f"Put {_LIST_SIGN!r} between them" if source.data and place[-1:] == ("answers",) else found.hint
    return source.refuse(place, found.value, found.problem, hint)


def _check_rows(rows: Any, source: Source, taken: Collection[str]) -> None:
    """Refuse a file without rows, an id given twice, and a factor with a reserved name."""
    if not rows:
        hint = f'Write them as [[{source.rows_field}]], or name a file: data = "….csv"'
        raise source.refuse((), None, f"has no {source.rows_field}", hint)
    first: dict[str, int] = {}
    for number, row in enumerate(rows):
        for name in row.factors:
            if name in taken:
                place = (source.rows_field, number, name)
                raise source.refuse(place, row.factors[name], "a reserved name", "Rename it")
        row_id = row.id or str(number + 1)
        if row_id in first:
            problem = f"also the id of {source.where((source.rows_field, first[row_id], 'id'))}"
            raise source.refuse((source.rows_field, number, "id"), row_id, problem, "Give each row an id of its own")
        first[row_id] = number


def _name_of(path: Path) -> str:
    """A suite's name from a file's; characters that a name may not contain become hyphens.

    A file's name without any that it may contain, as in Japanese, becomes a number of its own.
    """
    found = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._+-") else "-" for sign in path.stem)
    return found.strip("._+-") or f"suite-{content_sha256(path.stem)[:6]}"

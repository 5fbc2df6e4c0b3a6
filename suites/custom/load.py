"""Builds a suite from a file: reads it and checks it against the schema of its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from backends.errors import ConfigError
from suites.base import Suite
from suites.common.data_files import content_sha256
from suites.custom.choices import ChoicesFromFile
from suites.custom.figures import LEAST_LEVELS, FromFile, checked
from suites.custom.pairs import PairsFromFile
from suites.custom.schema import Filler, Head, Pairs, SuiteFile, Texts
from suites.custom.source import DataRows, Source, read_data, read_toml
from suites.custom.templates import TemplatesFromFile
from suites.custom.texts import TextsFromFile

#: Kind → its suite.
_SUITES: Mapping[str, type[FromFile]] = {
    "pairs": PairsFromFile,
    "templates": TemplatesFromFile,
    "choices": ChoicesFromFile,
    "texts": TextsFromFile,
}
#: Kinds for which a file of rows is enough, and the columns by which they are known: fillers still need templates,
#: and prompts something that reads the texts.
_ROWS_ALONE = {"pairs": ("counterpart", "stereotype"), "choices": ("answers", "question")}


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
    kind = str(content.get("kind", ""))
    if kind not in _SUITES:
        problem, hint = "no such kind" if kind else "missing", f"Use one of: {', '.join(_SUITES)}"
        raise source.refuse(("kind",), content.get("kind"), problem, hint)
    content, source = _with_rows(content, source, _SUITES[kind].kind.rows_field)
    file = checked(_SUITES[kind].kind, content, source)
    _check_rows(file, source)
    own = {"name": file.name or _name_of(path), "title": file.title or file.name or path.stem}
    return _SUITES[kind].of(file.model_copy(update=own), source)


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
    data = read_data(path)
    for kind, columns in _ROWS_ALONE.items():
        if {*columns} <= {*data.names}:
            return {"kind": kind, **_groups(data)}, Source(path, "", {}, data)
    wanted = " or ".join(map(", ".join, _ROWS_ALONE.values()))
    hint = f'Name its columns {wanted}; or write a .toml file that names this one: data = "{path.name}"'
    raise ConfigError(f"{path.name}:1", list(data.names), "no kind of suite has these columns", hint)


def _groups(data: DataRows) -> dict[str, Any]:
    """A column ``group`` gives figures by level; where every level is large enough, it is the stratum too."""
    column = next((name for name in data.names if name.casefold() == "group"), "group")
    sizes = Counter((type(row.get(column)), str(row.get(column))) for row in data.rows)  # 1 is not true
    if len(sizes) < 2:
        return {}
    return {"by": column} if min(sizes.values()) < LEAST_LEVELS else {"stratum": column}


def _with_rows(content: dict[str, Any], source: Source, rows_field: str) -> tuple[dict[str, Any], Source]:
    """The content with the rows of its data file, and the source of each value."""
    data, named, columns = source.data, content.get("data"), content.get("columns") or {}
    if isinstance(named, str) and named:
        if rows_field in content:
            raise source.refuse(("data",), named, f"{rows_field} are given as well", "Keep one of the two")
        path = source.path.parent / Path(named).expanduser()
        if not path.is_file():
            raise source.refuse(("data",), named, "no such file", f"Looked for {path}")
        data = read_data(path)
    if data is None:
        return content, Source(source.path, rows_field, source.lines)
    if isinstance(columns, Mapping) and all(isinstance(name, str) for name in columns.values()):
        data = data.renamed(columns, source)
    return {**content, rows_field: data.rows}, Source(source.path, rows_field, source.lines, data)


def _check_rows(file: Head, source: Source) -> None:
    """Refuse a file without rows, an id given twice, and what is asked twice."""
    if not file.rows:
        hint = f'Write them as [[{file.rows_field}]], or name a file: data = "….csv"'
        raise source.refuse((), None, f"has no {file.rows_field}", hint)
    may_repeat = isinstance(file, Pairs | Texts)
    if not (file.repeated and may_repeat) and not (isinstance(file, Texts) and file.is_stored):
        hint = "Remove one of the two" + (", or allow it with repeated = true" if may_repeat else "")
        source.refuse_twice((row.asked for row in file.rows), file.rows_field, file.rows[0].asking, hint)
    own = (row.id or (row.text if isinstance(row, Filler) else str(n)) for n, row in enumerate(file.rows, 1))
    source.refuse_twice(own, file.rows_field, "id", "Give each row an id of its own")


def _name_of(path: Path) -> str:
    """A suite's name from a file's; characters that a name may not contain become hyphens.

    A file's name without any that it may contain, as in Japanese, becomes a number of its own.
    """
    found = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._+-") else "-" for sign in path.stem)
    return found.strip("._+-") or f"suite-{content_sha256(path.stem)[:6]}"

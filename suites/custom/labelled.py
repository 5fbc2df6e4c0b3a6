"""Texts that people have labelled, from a file: by them, a rater of one's own question is tested."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from backends.errors import ConfigError
from suites.common.data_files import content_sha256
from suites.common.labelled_texts import LabelledText, LabelledTexts
from suites.custom.source import read_data

_COLUMNS = ("text", "label", "group")


def labelled_texts(path: str | Path) -> LabelledTexts:
    """Texts with the labels that people gave them, by which a rater is tested before its own labels count.

    Parameters
    ----------
    path : path
        A .csv, .jsonl or .parquet file with the columns ``text``, ``label`` (one of the rubric's) and, if wanted,
        ``group``: then the texts of a label come about each group, the first about one group beside the first about
        each other, and so on. Best, they are the same text about another group.

    Raises `ConfigError` that names the file, the line and the column.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise ConfigError("labelled", str(path), "no such file", f"Looked for {path.absolute()}")
    data = read_data(path, _COLUMNS)
    has_groups = any("group" in row for row in data.rows)
    found: list[LabelledText] = []
    asked: dict[str, str] = {}
    for line, row in zip(data.lines, data.rows, strict=True):
        for name in _COLUMNS if has_groups else _COLUMNS[:2]:
            if not isinstance(row.get(name), str) or not str(row[name]).strip():
                hint = "Give a text" if name in data.names else f"Columns: {', '.join(data.names)}"
                raise ConfigError(f"{path.name}:{line}: {name}", row.get(name), "missing, or not a text", hint)
        text, label = str(row["text"]), str(row["label"])
        place = f"{path.name}:{line}"
        if text in asked:
            problem = f"also labelled in {asked[text]}: it would count twice"
            raise ConfigError(f"{place}: text", text, problem, "Remove one of the two")
        asked[text] = place
        found.append(LabelledText("", text, label, str(row["group"]) if has_groups else None, place))
    return LabelledTexts(_in_places(found), content_sha256([dict(row) for row in data.rows]), {})


def _in_places(texts: list[LabelledText]) -> tuple[LabelledText, ...]:
    """The texts, those of a label that stand in the same place about each group with one number."""
    places: dict[tuple[str, str | None], int] = defaultdict(int)
    numbered = []
    for one in texts:
        places[one.label, one.group] += 1
        number = f"{one.label} {places[one.label, one.group]}"
        numbered.append(LabelledText(number, one.text, one.label, one.group, one.place))
    return tuple(numbered)

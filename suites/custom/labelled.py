"""Texts that people have labelled, from a file: by them, a rater of one's own question is tested."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from backends.errors import ConfigError
from suites.common.data_files import content_sha256
from suites.common.raters import LabelledText, LabelledTexts
from suites.custom.source import Source, read_data


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
    data = read_data(path)
    source = Source(path, "texts", {}, data)
    columns = ["text", "label", *(["group"] if "group" in data.names else [])]
    for number, row in enumerate(data.rows):
        for name in columns:
            if not isinstance(row.get(name), str) or not row[name].strip():
                hint = "Give a text" if name in data.names else f"Columns: {', '.join(data.names)}"
                raise source.refuse(("texts", number, name), row.get(name), "missing, or not a text", hint)
    source.refuse_twice((row["text"] for row in data.rows), "texts", "text", "Remove one of the two: it counts once")
    found = []
    places = Counter[tuple[str, str | None]]()  # those in the same place about each group have one number
    for line, row in zip(data.lines, data.rows, strict=True):
        label, group = row["label"], row.get("group")
        places[label, group] += 1
        number_of = f"{label} {places[label, group]}"
        found.append(LabelledText(number_of, row["text"], label, group, f"{path.name}:{line}"))
    return LabelledTexts(tuple(found), content_sha256([dict(row) for row in data.rows]), {})

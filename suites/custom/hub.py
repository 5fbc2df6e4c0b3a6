"""Rows read by the package `datasets`: of a Parquet file, a data set on the Hugging Face Hub, or a folder like one."""

from __future__ import annotations

import importlib.util
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.errors import ConfigError, MissingExtra, one_line
from suites.custom.schema import HubData
from suites.custom.source import DataRows, Source


def parquet_rows(path: Path) -> DataRows:
    """The rows of a Parquet file, counted from 1."""
    try:
        return _rows(path, "parquet", local=True, split="train", data_files=str(path))
    except MissingExtra:
        raise
    except Exception as error:
        if _NO_ROWS in str(error):
            raise ConfigError(path.name, path.name, "holds no rows", "Add one row for each question") from None
        problem = f"cannot be read: {_said(error)}"
        raise ConfigError(str(path), str(path), problem, "Save the rows as Parquet again") from None


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
        return _rows(Path(of.dataset), name, local=folder.is_dir(), split=of.split, **options)
    except MissingExtra:
        raise
    except Exception as error:  # a dozen kinds: no network, no such split, no such data set
        field, problem, hint = _cause(error)
        raise source.refuse(("data", field), getattr(of, field), problem, hint) from None


class _OtherVersionError(Exception):
    """The Hub did not answer, and what is in the cache is not the asked revision."""


def _rows(path: Path, name_or_folder: str, *, local: bool, split: str, **options: Any) -> DataRows:
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
            raise _OtherVersionError
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


#: What the package says of a split or slice without rows.
_NO_ROWS = "corresponds to no data"


def _cause(error: Exception) -> tuple[str, str, str]:
    """The field that an error is about, the problem in the package's words, and a hint."""
    if isinstance(error, _OtherVersionError):
        problem = "the Hub does not answer, and the copy in the cache may be of another revision"
        return "revision", problem, "Connect, or give the 40 digits of the commit that is in the cache"
    said = f"{type(error).__name__}: {_said(error)}"
    fields = {"split": "split|no data", "revision": "Revision", "config": "BuilderConfig|Config name"}
    field = next((name for name, words in fields.items() if re.search(words, said)), "dataset")
    hint = "Fix the name, the split or the files; for a private or gated one, give your token as HF_TOKEN"
    return field, f"cannot be loaded: {said}", hint


def _said(error: Exception) -> str:
    return one_line(error).removeprefix(f"{type(error).__name__}: ").rstrip(".")

"""Rows read by the package `datasets`: of a Parquet file, a data set on the Hugging Face Hub, or a folder like one."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.errors import ConfigError, MissingExtra, one_line
from suites.custom.schema import HubData
from suites.custom.source import DataRows, Source


def parquet_rows(path: Path) -> DataRows:
    """The rows of a Parquet file, counted from 1."""
    return _rows(path, str(path), "parquet", local=True, data_files=str(path), split="train")


def hub_rows(given: Mapping[str, Any], source: Source) -> DataRows:
    """The rows of a data set.

    Raises
    ------
    ConfigError
        For fields that `HubData` does not have, or a data set that cannot be loaded; it names the line of the file.
    """
    try:
        of = HubData.checked(**given)
    except ConfigError as error:
        raise source.refuse(("data", error.field), error.value, error.problem, error.hint) from None
    folder = source.path.parent / Path(of.dataset).expanduser()
    name = str(folder) if folder.is_dir() else of.dataset
    options = {key: value for key, value in (("name", of.config), ("revision", of.revision)) if value is not None}
    try:
        return _rows(Path(of.dataset), of.dataset, name, local=folder.is_dir(), split=of.split, **options)
    except MissingExtra:
        raise
    except ConfigError as error:
        raise source.refuse(("data",), of.dataset, error.problem, error.hint) from None


def _rows(path: Path, shown: str, name: str, *, local: bool, **options: Any) -> DataRows:
    """``local``: files that may change under the same name and time, so nothing is read from the package's cache."""
    if importlib.util.find_spec("datasets") is None:
        raise MissingExtra("data", "datasets", "datasets")
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        return _loaded(path, shown, name, {**options, "cache_dir": cache} if local else options)


def _loaded(path: Path, shown: str, name: str, options: Mapping[str, Any]) -> DataRows:
    import datasets

    try:
        loaded = datasets.load_dataset(name, **options)
    except Exception as error:  # a dozen kinds: no network, no such split, not a Parquet file
        problem = f"cannot be loaded: {one_line(error)}"
        raise ConfigError(str(path), shown, problem, "Fix the name, the split or the file") from None
    labels = {name: of for name, of in loaded.features.items() if isinstance(of, datasets.ClassLabel)}
    rows = [
        {key: labels[key].int2str(value) if key in labels else value for key, value in row.items() if value is not None}
        for row in loaded
    ]
    if not rows:
        raise ConfigError(str(path), shown, "holds no rows", "Name another split")
    return DataRows(path, rows, range(1, len(rows) + 1))

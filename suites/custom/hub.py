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
    try:
        return _rows(path, "parquet", local=True, split="train", data_files=str(path))
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
        return _rows(Path(of.dataset), name, local=folder.is_dir(), split=of.split, **options)
    except MissingExtra:
        raise
    except Exception as error:  # a dozen kinds: no network, no such split, no such data set
        hint = "Fix the name, the split or the files; for a private or gated one, give your token as HF_TOKEN"
        raise source.refuse(("data",), of.dataset, f"cannot be loaded: {one_line(error)}", hint) from None


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

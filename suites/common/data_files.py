"""Data files: the suites' own material, which ships here, and published files that are fetched once.

A published file is used only if it has the pinned sha256, so that a figure never depends on data that
changed under the same name. A printed figure belongs to a design: a variant, templates, expressions, a prompt format.
It is shown beside a measure when the two designs agree in every aspect, or differ only where the source states the
difference.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import platformdirs

from backends.errors import ConfigError
from backends.options import OnError
from suites.presentation import PublishedSource

#: The folder of the published file; None fetches it once.
Folder = Annotated[
    str | Path | None, OnError("not a folder", "Give the folder that holds the published file, or leave it out")
]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as it was read.

    ``content``: the JSON object. Shared by all users: do not modify it. ``sha256``: hash of the file's bytes, for
    signatures.
    """

    content: dict[str, Any]
    sha256: str


def content_sha256(content: object) -> str:
    """The hash of JSON values, independent of the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@cache
def load(name: str) -> DataFile:
    """Read ``suites/data/{name}.json``. Raises `FileNotFoundError` if no data file has this name."""
    raw = resources.files("suites").joinpath("data", f"{name}.json").read_bytes()
    return DataFile(json.loads(raw), hashlib.sha256(raw).hexdigest())


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A public file at a fixed place, with the sha256 of its bytes, or the id that git gives them.

    ``page``: instead of these, where users get a file that its authors ask not to redistribute.
    """

    url: str
    sha256: str = ""
    git_blob: str = ""
    page: str = ""

    @property
    def name(self) -> str:
        """The file's name, the last part of the URL."""
        return self.url.rsplit("/", 1)[-1]

    def path(self, folder: str | Path | None, *, field: str = "folder") -> Path:
        """The path of the verified file.

        ``folder``: one that contains the file, directly or under the last folders of its URL, so that a copy of the
        repository works too; None: the cache, filled from the network the first time. ``field``: the option that named
        it, for messages.

        Raises `ConfigError` if the file is missing, cannot be fetched, or has another hash.
        """
        if folder is None:
            return self._fetched(field)
        place, parts = Path(folder).expanduser().absolute(), urlsplit(self.url).path.strip("/").split("/")
        paths = (place.joinpath(*parts[start:]) for start in range(len(parts) - 1, -1, -1))
        found = next((path for path in paths if path.is_file()), None)
        if found is None:
            hint = f"Put it there from {self.page or self.url}"
            raise ConfigError(field, str(place), f"{place} is no folder, or holds no file {self.name}", hint)
        return self._checked(found, field, f"Take the unchanged file from {self.url}")

    def _checked(self, path: Path, field: str, hint: str) -> Path:
        raw = path.read_bytes()
        if self.git_blob:
            found, wanted, name = hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest(), self.git_blob, "git's id"
        else:
            found, wanted, name = hashlib.sha256(raw).hexdigest(), self.sha256, "its sha256"
        if found != wanted and not self.page:
            raise ConfigError(field, str(path), f"{name} is {found}, not the published {wanted}", hint)
        return path

    def _fetched(self, field: str) -> Path:
        import pooch
        from requests.exceptions import RequestException

        if self.page:
            problem = f"{self.name} is not fetched: its authors ask not to redistribute it"
            raise ConfigError(field, None, problem, f"Get it from {self.page} and give its folder")
        cache = platformdirs.user_cache_path("bias-audit") / "data" / (self.sha256 or self.git_blob)[:16]
        known = f"sha256:{self.sha256}" if self.sha256 else None
        try:
            found = Path(pooch.retrieve(self.url, known, fname=self.name, path=cache))
        except ValueError as error:  # what pooch raises for a wrong hash
            problem, hint = f"the fetched file is not the pinned one: {error}", "Give a folder with the right file"
            raise ConfigError(field, self.url, problem, hint) from error
        except (RequestException, OSError) as error:
            hint = "Give a folder that holds the file, by the suite's option in a config"
            raise ConfigError(field, self.url, f"it could not be fetched ({type(error).__name__})", hint) from error
        return self._checked(found, field, f"Remove {found}, or give a folder with the right file")


def published_files(benchmark: str) -> Mapping[str, PinnedFile]:
    """The files of a benchmark by name, pinned in ``published_files.json``."""
    pinned = load("published_files").content[benchmark]
    return {name: PinnedFile(pinned["url"] + name, **pin) for name, pin in pinned["files"].items()}


def published_file(benchmark: str) -> PinnedFile:
    """The only file of a benchmark."""
    (file,) = published_files(benchmark).values()
    return file


def read_csv(file: PinnedFile, folder: str | Path | None, delimiter: str = ",") -> list[dict[str, str]]:
    """The rows of a published CSV file."""
    path = file.path(folder)
    try:
        with path.open(encoding="utf-8", newline="") as opened:
            return list(csv.DictReader(opened, delimiter=delimiter))
    except UnicodeDecodeError as error:
        raise ConfigError("folder", str(path), f"not UTF-8 ({error.reason})", "Save the file as UTF-8") from None


def read_json_lines(file: PinnedFile, folder: str | Path | None) -> list[dict[str, Any]]:
    """The objects of a published JSON-lines file."""
    return [json.loads(line) for line in file.path(folder).read_text("utf-8").splitlines()]


#: What is asked and scored: what the paper says, or what the authors' released code does where the two differ.
Variant = Literal["paper", "as_released"]
#: An aspect of a design → its level, e.g. ``templates.implicit`` → ``paper``.
PublishedDesign = Mapping[str, str]
#: One unit of the last digit of a printed percentage with one decimal, as a share.
TENTH_OF_A_PERCENT = 0.001


def published_source(figures: str, design: PublishedDesign) -> PublishedSource | None:
    """The source of printed figures for a measured design; None where they may not be shown beside it.

    ``figures``: key of ``published_sources.json``, e.g. ``occugender/implicit``. ``design``: every aspect of the
    measured design that may change the quantity.
    """
    entry = load("published_sources").content["figures"][figures]
    for fitting in entry["designs"]:
        if all(design.get(aspect) == level for aspect, level in fitting["design"].items()):
            return PublishedSource(
                entry["paper"], entry["table"], entry["made_by"], entry.get("plus_minus", ""), fitting["difference"]
            )
    return None


def model_ids(published_model: str) -> tuple[str, ...]:
    """The repositories of a model named in a paper's table; none where the model is not available."""
    return tuple(load("published_sources").content["model_ids"].get(published_model, ()))


def refuse_own(**given: object) -> None:
    """Refuse options that ``variant="as_released"`` fixes. A value of None or False means that none was given."""
    for name, value in given.items():
        if value is not None and value is not False:
            hint = 'Leave it out, or use variant="paper"'
            raise ConfigError(name, value, 'fixed by variant="as_released"', hint)

"""Data files: the suites' own material, which ships here, and published files that are fetched once.

A published file is used only if it has the pinned sha256, so that a figure never depends on data that
changed under the same name.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import platformdirs

from backends.errors import ConfigError


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
    """Read ``suites/data/{name}.json``.

    Raises `FileNotFoundError` if no data file has this name.
    """
    raw = resources.files("suites").joinpath("data", f"{name}.json").read_bytes()
    return DataFile(json.loads(raw), hashlib.sha256(raw).hexdigest())


def not_in_folder(field: str, folder: Path, name: str, hint: str) -> ConfigError:
    """The error for a published file that a user's folder does not hold, or for what is no folder."""
    if folder.is_file():
        return ConfigError(field, str(folder), "a file, not a folder", f"Give the folder that holds {name}")
    if not folder.exists():
        return ConfigError(field, str(folder), "no such folder", f"It should hold {name}. {hint}")
    return ConfigError(field, str(folder), f"{folder} holds no file {name}", hint)


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A public file at a fixed place, with the sha256 of its bytes, or the id that git gives them."""

    url: str
    sha256: str = ""
    git_blob: str = ""

    @property
    def name(self) -> str:
        """The file's name, the last part of the URL."""
        return self.url.rsplit("/", 1)[-1]

    def path(self, folder: str | Path | None, *, field: str) -> Path:
        """The path of the verified file.

        Parameters
        ----------
        folder : path or None
            A folder that contains the file, directly or under the last folders of its URL, so that a copy of
            the repository works too; None: the cache, filled from the network the first time.
        field : str
            The option that named the folder, for messages.

        Raises `ConfigError` if the file is missing, cannot be fetched, or has another hash.
        """
        if folder is None:
            return self._fetched(field)
        path = self._in_folder(Path(folder).expanduser().absolute(), field)
        self._check(path, field, f"Take the unchanged file from {self.url}")
        return path

    def _check(self, path: Path, field: str, hint: str) -> None:
        raw = path.read_bytes()
        if self.git_blob:
            found, wanted, name = hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest(), self.git_blob, "git's id"
        else:
            found, wanted, name = hashlib.sha256(raw).hexdigest(), self.sha256, "its sha256"
        if found != wanted:
            raise ConfigError(field, str(path), f"{name} is {found}, not the published {wanted}", hint)

    def _in_folder(self, folder: Path, field: str) -> Path:
        parts = urlsplit(self.url).path.strip("/").split("/")
        for start in range(len(parts) - 1, -1, -1):
            if (path := folder.joinpath(*parts[start:])).is_file():
                return path
        raise not_in_folder(field, folder, self.name, f"Put it there from {self.url}")

    def _fetched(self, field: str) -> Path:
        import pooch
        from requests.exceptions import RequestException

        cache = platformdirs.user_cache_path("bias-audit") / "data" / (self.sha256 or self.git_blob)[:16]
        try:
            found = pooch.retrieve(
                self.url, f"sha256:{self.sha256}" if self.sha256 else None, fname=self.name, path=cache
            )
        except ValueError as error:  # what pooch raises for a wrong hash
            raise ConfigError(
                field, self.url, f"the fetched file is not the pinned one: {error}", "Give a folder with the right file"
            ) from error
        except (RequestException, OSError) as error:
            raise ConfigError(
                field,
                self.url,
                f"it could not be fetched ({type(error).__name__})",
                "Give a folder that holds the file, by the suite's option in a config",
            ) from error
        if self.git_blob:
            self._check(Path(found), field, f"Remove {found}, or give a folder with the right file")
        return Path(found)

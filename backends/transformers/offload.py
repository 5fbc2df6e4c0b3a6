"""A folder of its own for the parts of each loaded model that lie on the disk.

Their files are named after the parts alone: two models of one kind in one folder would read each other's weights.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import weakref
from pathlib import Path
from typing import Any, Self

import psutil

from backends.errors import ConfigError

_PREFIX = "bias-audit"


def check_folder(folder: str) -> None:
    """Raise `ConfigError` if parts could not be written to a folder, which need not exist yet."""
    place = Path(folder).absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        raise _cannot_be_written(folder, f"{place} is no folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise _cannot_be_written(folder, f"no permission for {place}")


class OwnFolder:
    """A new folder in ``parent`` while a model is loaded; removed then, or with the model of `keep_for`.

    Without a ``parent`` it is none. What killed processes of this machine left is removed: it may be as large as a
    model.
    """

    def __init__(self, parent: str | None) -> None:
        self.parent = parent
        self.path: Path | None = None
        self._is_kept = False

    def __enter__(self) -> Self:
        if self.parent is None:
            return self
        mine = f"{_PREFIX}.{socket.gethostname()}."
        try:
            Path(self.parent).mkdir(parents=True, exist_ok=True)
            for left in Path(self.parent).glob(f"{mine}*"):
                pid = left.name.removeprefix(mine).partition(".")[0]
                if pid.isdecimal() and not psutil.pid_exists(int(pid)):
                    shutil.rmtree(left, ignore_errors=True)
            self.path = Path(tempfile.mkdtemp(prefix=f"{mine}{os.getpid()}.", dir=self.parent))
        except OSError as error:
            raise _cannot_be_written(self.parent, error.strerror or str(error)) from None
        return self

    def keep_for(self, model: Any) -> None:
        """Keep it as long as ``model`` is there."""
        if self.path is not None:
            weakref.finalize(model, shutil.rmtree, self.path, ignore_errors=True)
            self._is_kept = True

    def __exit__(self, *_: object) -> None:
        if self.path is not None and not self._is_kept:
            shutil.rmtree(self.path, ignore_errors=True)


def _cannot_be_written(folder: str, why: str) -> ConfigError:
    return ConfigError(
        "offload_folder", folder, f"cannot be written ({why})", "Give a folder that this user can write to"
    )

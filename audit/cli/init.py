"""`audit init`: example audits and suites, to run and to change."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

import audit
from audit.report.formatting import say
from backends.errors import ConfigError

_PACKAGE = Path(audit.__file__).parent
#: Where the examples lie: in an installed wheel, and in the source tree.
_PLACES = (_PACKAGE / "examples", _PACKAGE.parent / "examples")
_NOT_COPIED = ("__pycache__", "*.png", "*.db", "audit-out")


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = Path("examples"),
) -> None:
    """Write example audits, suites, a plugin and schedules into a new folder: files to run and to change."""
    source = next(place for place in _PLACES if place.is_dir())
    if folder.exists():
        raise ConfigError("FOLDER", str(folder), "exists already", "Name a new one, e.g. audit init my-audits")
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    say(f"Examples are in {folder}. Planted answers, no model needed: audit run {folder / 'fake.py'}")
    say(f"A suite of your own from a file: audit run --suite {folder / 'suites' / 'religion.csv'} --model fake")

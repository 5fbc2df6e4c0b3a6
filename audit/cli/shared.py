"""What the verbs share: exit codes, common options, opening a store, printing rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backends.errors import ConfigError

if TYPE_CHECKING:
    from audit.store import Store

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130  # and 3, by a gate that found a regression

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="Audit config: a .py file with an Audit, or a .toml file.")
]
Db = Annotated[Path, typer.Option("--db", help="Store of answers and runs.")]
DEFAULT_DB = Path("audit.db")
RunName = Annotated[str, typer.Option("--run", help="A run of the store, or `last`.")]
Subgroups = Annotated[bool, typer.Option("--details", help="Also single occupations and other levels.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines on stdout.")]


def open_store(db: Path, *, read_only: bool = True) -> Store:
    """The store at ``db``, which must exist."""
    from audit.store import Store

    db = db.expanduser()
    if not db.exists():
        raise ConfigError("--db", str(db), "no such store", "Run an audit first, or give the path of its store")
    return Store.open(db, read_only=read_only)


def print_rows(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Rows as a table, or as JSON."""
    if as_json:
        typer.echo(json.dumps(list(rows)))
        return
    if not rows:
        typer.echo("none")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(name) is None else str(row[name]) for name in columns))
    Console().print(table)

"""What the commands share: exit codes, common options, opening a store, printing rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.report.plain_text import plain_console, say, say_json
from backends.errors import ConfigError

if TYPE_CHECKING:
    from audit.store import Store

__all__ = ["say", "say_json"]

OK, FAILED, USAGE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141  # a gate that found a regression exits with 3

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="Audit config: a .py file with an Audit, or a .toml file.")
]
Db = Annotated[Path, typer.Option("--db", help="Store of answers and runs, or a config that names it.")]
DEFAULT_DB = Path("audit.db")
RunName = Annotated[str, typer.Option("--run", help="A run of the store, or `last`.")]
Subgroups = Annotated[bool, typer.Option("--details", help="Include single occupations and other levels.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def open_store(db: Path, *, read_only: bool = True) -> Store:
    """Open the store at ``db``, which may be a config. Raises `ConfigError` if there is none."""
    from audit.store import Store

    path = store_path(db)
    if not path.exists():
        hint = "Run an audit first, or give the path of its store or of its config"
        raise ConfigError("--db", str(path), "no such store", hint)
    return Store.open(path, read_only=read_only)


def store_path(db: Path) -> Path:
    """The path of the store, given that path or an audit config."""
    from audit import load_audit

    return load_audit(db).db if db.suffix in (".py", ".toml") else db.expanduser()


def tell_on_terminal(line: str) -> None:
    """Show what a backend says while it is waited for; a line that ends in a carriage return is replaced."""
    text, is_shown = line.rstrip("\r"), sys.stderr.isatty()
    end = "" if is_shown and line != text else "\n"
    if is_shown or text:
        print(f"\r\x1b[K{text}" if is_shown else text, end=end, file=sys.stderr, flush=True)


def print_rows(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows as a table, or as JSON."""
    if as_json:
        say_json(list(rows))
        return
    if not rows:
        say("none")
        return
    from rich.table import Table

    from audit.report.plain_text import one_line

    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(name) is None else one_line(str(row[name])) for name in columns))
    plain_console().print(table)

"""`audit cache`: inspecting the store of answers."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.shared import DEFAULT_DB, FAILED, OK, Db, Json, open_store, print_rows, say, say_json, store_path
from backends.errors import ConfigError

cache = typer.Typer(no_args_is_help=True, help="Inspect the store of answers.")


@cache.command()
def stats(db: Db = DEFAULT_DB, as_json: Json = False) -> None:
    """Count what the store holds."""
    with open_store(db) as store:
        counts = store.stats()
    if as_json:
        say_json(counts)
        return
    models = counts.pop("models")
    for name, value in counts.items():
        say(f"{name:12} {value:,}")
    print_rows([{"fingerprint": model["fingerprint_id"], "answers": model["answers"]} for model in models], False)


@cache.command()
def verify(db: Db = DEFAULT_DB) -> None:
    """Read every row, check its checksum and hash its key again. Damaged rows are quarantined."""
    with open_store(db) as store:
        found = store.answers.verify()
    if found.damaged:  # opened for writing only now, since a damaged file may be read-only
        with open_store(db, read_only=False) as store:
            found = store.answers.verify()
    damaged, problems = len(found.damaged), len(found.file_problems)
    say(f"{found.answers:,} answers read, {damaged} damaged and quarantined, {problems} file problems")
    for line in (*(f"damaged: {key} (will be asked again)" for key in found.damaged), *found.file_problems):
        say(line, to_stderr=True)
    raise typer.Exit(OK if found.sound else FAILED)


@cache.command()
def explain(key: Annotated[str, typer.Argument(help="An answer's key.")], db: Db = DEFAULT_DB) -> None:
    """Print everything stored under a key: the model, the question, the answer, and its failures."""
    with open_store(db) as store:
        found = store.answers.inspect(key)
    if found is None:
        hint = "`audit show FIGURE-ID` prints the keys of a figure"
        raise ConfigError("KEY", key, "nothing is stored under this key", hint)
    say_json(found, indent=2)


@cache.command()
def backup(
    target: Annotated[Path, typer.Argument(help="A path that does not exist yet.")], db: Db = DEFAULT_DB
) -> None:
    """Copy the store, also while an audit is writing to it."""
    with open_store(db) as store:
        store.backup(target)
    say(target)


@cache.command()
def merge(
    target: Annotated[Path, typer.Argument(help="The store to merge into. It is created if it does not exist.")],
    sources: Annotated[list[Path], typer.Argument(help="Stores whose answers are added. They stay as they are.")],
    store_shards: Annotated[
        int | None, typer.Option(min=1, max=256, help="Divide the answers of a new TARGET among N files.")
    ] = None,
) -> None:
    """Add the answers of other stores to one, checking each row and key. The first answer under a key is final.

    Damaged rows are quarantined in TARGET and listed; they will be asked again. Runs and failures are not copied.
    """
    from audit.store import Store

    if not target.absolute().parent.is_dir():
        raise ConfigError("TARGET", str(target), "its folder does not exist", "Correct the path, or create the folder")
    with contextlib.ExitStack() as opened:
        stores = [opened.enter_context(open_store(source)) for source in sources]  # all, before anything is written
        into = opened.enter_context(Store.open(store_path(target), shards=store_shards))
        damaged = 0
        for source in stores:
            found = into.merge(source)
            damaged += len(found.damaged)
            counts = f"{found.new:,} new, {found.answers - found.new:,} known, {len(found.damaged):,} damaged"
            say(f"{source.path}: {found.answers:,} answers, {counts}")
            if found.others:
                say(f"known here with another answer, which counts: {len(found.others):,}", to_stderr=True)
            for key in found.damaged:
                say(f"damaged: {key} (not merged, will be asked again)", to_stderr=True)
    raise typer.Exit(FAILED if damaged else OK)

"""`audit gate`, `baseline` and `schedule`: a run against an earlier one, night after night."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.shared import DEFAULT_DB, ConfigFile, Db, Json, RunName, open_store, print_rows, say, store_path
from backends.errors import ConfigError

if TYPE_CHECKING:
    from audit.results import OpenFails

baselines = typer.Typer(no_args_is_help=True, help="Name runs that a gate compares with.")


def gate(
    baseline: Annotated[
        str | None,
        typer.Option(help="A saved baseline's name, a run id, or a report.json; if omitted, only limits are checked."),
    ] = None,
    run_id: Annotated[str, typer.Option("--run", help="The run to check, or `last`.")] = "last",
    db: Db = DEFAULT_DB,
    margin: Annotated[
        float | None, typer.Option(min=0, help="Harm up to this does not matter; default: as in the run's config.")
    ] = None,
    inconclusive_fails: Annotated[
        bool, typer.Option("--inconclusive-fails", help="Fail on every inconclusive check.")
    ] = False,
    inconclusive_passes: Annotated[
        bool, typer.Option("--inconclusive-passes", help="Pass even if missing answers may hide a regression.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write a Markdown summary here.")] = None,
    as_json: Json = False,
) -> None:
    """Check a run against a baseline and the config's limits. Exits with 3 if something regressed.

    Later nights need stronger evidence, so that the chance of any false alarm stays below 5 % over all of them.
    Too few items give "inconclusive" or "insufficient evidence", never "unchanged". If missing answers alone could hide
    a regression, the gate fails. A figure without a better side, such as the effect of a debiasing text, is checked
    only if the config's `margins` name it.
    """
    from audit.analysis.gate.stored import gate_run
    from audit.report.exports.gate import gate_json, gate_markdown, junit_xml
    from audit.report.terminal import print_gate
    from backends.files import atomic_write

    if inconclusive_fails and inconclusive_passes:
        raise ConfigError("--inconclusive-passes", True, "contradicts --inconclusive-fails", "Give one of them")
    open_fails: OpenFails = "all" if inconclusive_fails else "none" if inconclusive_passes else "missing"
    read_only = not os.access(store_path(db), os.W_OK)  # the night is recorded only if the store is writable
    with open_store(db, read_only=read_only) as store:
        checked = gate_run(store, store.runs.find(run_id), baseline, margin=margin, open_fails=open_fails)
    for path, text in ((junit, junit_xml), (markdown, gate_markdown)):
        if path is not None:
            atomic_write(path, text(checked))
    if as_json:
        say(gate_json(checked))
    elif sys.stdout.isatty():
        print_gate(checked)
    else:  # for a CI system's page
        say(gate_markdown(checked))
    raise typer.Exit(checked.exit_code)


@baselines.command("save")
def save_baseline(name: str, run_id: RunName = "last", db: Db = DEFAULT_DB) -> None:
    """Name a run as a baseline."""
    _point_baseline(name, run_id, db, is_new=True)


@baselines.command("promote")
def promote_baseline(name: str, run_id: RunName = "last", db: Db = DEFAULT_DB) -> None:
    """Point a baseline at a newer run; the earlier one stays in its history."""
    _point_baseline(name, run_id, db, is_new=False)


def _point_baseline(name: str, run_id: str, db: Path, *, is_new: bool) -> None:
    """Raises `ConfigError` if the run has no answer: no later run could be compared with it."""
    with open_store(db, read_only=False) as store:
        chosen = store.runs.find(run_id)
        result = store.runs.result(chosen)
        if result is not None and not result.has_answers:
            raise ConfigError("run", chosen, "it has no readable answer", "Choose another run: see `audit ls runs`")
        (store.runs.save_baseline if is_new else store.runs.promote_baseline)(name, chosen)
    say(f"{name} = {chosen}")


@baselines.command("list")
def list_baselines(db: Db = DEFAULT_DB, as_json: Json = False) -> None:
    """List the baselines."""
    with open_store(db) as store:
        saved = store.runs.baselines()
    rows = [{"name": b.name, "run": b.run_id, "since": b.since, "earlier": len(b.earlier)} for b in saved]
    print_rows(rows, as_json)


def schedule(
    config: ConfigFile,
    baseline: Annotated[
        str | None, typer.Option(help="Check the run against it: a name, a run id, or a report.json.")
    ] = None,
    on_regression: Annotated[
        str | None, typer.Option(help="Program called when the gate fails; it reads the gate's report (JSON) on stdin.")
    ] = None,
) -> None:
    """Run an audit as cron, systemd or a hosted CI should: examples/schedules has recipes for each.

    It writes the report, checks the run against the baseline and keeps the trend page up to date. Runs never overlap.
    Each outcome is recorded in a journal beside the store, and printed as a line. Exits with 0, 1 (not run, failed or
    incomplete), 3 (regressed) or 130 (interrupted).
    """
    from audit.schedule.scheduled_audit import run_scheduled

    raise typer.Exit(run_scheduled(config, baseline=baseline, on_regression=on_regression, on_line=say))

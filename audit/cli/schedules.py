"""`audit schedule`."""

from __future__ import annotations

from typing import Annotated

import typer

from audit.cli.shared import ConfigFile
from audit.report.formatting import say


def schedule(
    config: ConfigFile,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Check the run against it: a name, a run id, or a report.json.")
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

"""`audit schedule`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from audit.cli.shared import ConfigFile
from audit.report.formatting import say
from backends.errors import ConfigError


def schedule(
    config: ConfigFile,
    cron: Annotated[
        str | None,
        typer.Option(help='Local times as in crontab, e.g. "0 3 * * *"; with six fields, seconds come first.'),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="One run now, then exit: for cron, systemd and other schedulers.")
    ] = False,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Check each run against it: a name, a run id, or a report.json.")
    ] = None,
    missed: Annotated[
        Literal["run", "skip"],
        typer.Option(help="Missed runs: `run` performs one catch-up run, `skip` only records them."),
    ] = "run",
    on_regression: Annotated[
        str | None, typer.Option(help="Program called when the gate fails; it reads the gate's report (JSON) on stdin.")
    ] = None,
    webhook: Annotated[str | None, typer.Option(help="URL that gets the same report by POST.")] = None,
) -> None:
    """Run an audit at set times, check each run, and keep the trend page up to date.

    Runs never overlap. Each slot's outcome is recorded in a journal beside the store, and printed as a line. The config
    is read again at each slot. Ends on SIGINT or SIGTERM, with exit code 130.
    """
    from audit.schedule import Schedule
    from audit.schedule.scheduled_audit import ScheduledAudit, run_once, serve

    if once == (cron is not None):
        raise ConfigError("--cron", cron, "either --cron or --once is needed", 'Give --cron "0 3 * * *", or --once')
    audit = ScheduledAudit(config, baseline=baseline, on_line=say)
    slots = audit.slots(on_regression, webhook)
    raise typer.Exit(run_once(slots) if cron is None else serve(audit, Schedule(cron, slots, missed=missed)))

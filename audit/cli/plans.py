"""`audit plan`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from audit import load_audit
from audit.cli.shared import ConfigFile, Json, RunName
from audit.report.formatting import say, say_json
from backends.errors import ConfigError

Detect = Annotated[
    float | None,
    typer.Option("--detect", min=0, help="The smallest difference to detect. Without: what all items detect."),
]
#: Withdrawn options.
Within = Annotated[float | None, typer.Option("--within", hidden=True)]
Draws = Annotated[int | None, typer.Option("--draws", hidden=True)]


def plan(
    config: ConfigFile,
    detect: Detect = None,
    within: Within = None,
    draws: Draws = None,
    run_id: RunName = "last",
    as_json: Json = False,
) -> None:
    """Say what difference the items detect, and how many it takes to detect a given one.

    Without an option it says what difference all of the suites' items detect, and what asking them costs. The plan
    rests on a pilot: a run in the config's store, whose variance components show where the variance comes from.
    """
    from audit.prepare.forecast import plan_audit
    from audit.report.phrases.checks.forecast import plan_text

    if within is not None or draws is not None:
        option, given = ("--within", within) if within is not None else ("--draws", draws)
        hint = "Run with --until 0.03: it asks until half of every primary interval is within 0.03"
        raise ConfigError(option, given, "is no longer planned for", hint)
    planned = asyncio.run(plan_audit(load_audit(config), detect, run_id))
    say_json(planned.model_dump(mode="json"), indent=2) if as_json else say(plan_text(planned))

"""`audit plan`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from audit import load_audit
from audit.cli.shared import ConfigFile, Json, RunName
from audit.report.formatting import say, say_json

Detect = Annotated[float, typer.Option("--detect", min=0, help="The smallest difference to detect.")]


def plan(config: ConfigFile, detect: Detect, run_id: RunName = "last", as_json: Json = False) -> None:
    """Say how many occupations, templates and draws it takes to detect a difference, and what they cost.

    The plan rests on a pilot: a run in the config's store, whose variance components show where the variance comes
    from.
    """
    from audit.forecast import plan_audit

    planned = asyncio.run(plan_audit(load_audit(config), detect, run_id))
    say_json(planned.model_dump(mode="json"), indent=2) if as_json else say(planned.as_text())

"""`audit plan`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from audit import load_audit
from audit.cli.shared import ConfigFile, Json, RunName
from audit.report.formatting import say, say_json
from backends.errors import ConfigError

if TYPE_CHECKING:
    from audit.prepare.forecast.draw_allocation import AllocationPlan
    from audit.prepare.forecast.planning import SamplePlan

Detect = Annotated[
    float | None,
    typer.Option("--detect", min=0, help="The smallest difference to detect. Without: what all items detect."),
]
Within = Annotated[
    float | None, typer.Option("--within", min=0, help="Of drawn answers: half the width that intervals may have.")
]
Draws = Annotated[
    int | None, typer.Option("--draws", min=1, help="Of drawn answers: the budget, for the narrowest intervals.")
]


def plan(
    config: ConfigFile,
    detect: Detect = None,
    within: Within = None,
    draws: Draws = None,
    run_id: RunName = "last",
    as_json: Json = False,
) -> None:
    """Say how many occupations, templates and draws it takes to detect a difference, and what they cost.

    Without an option it says what difference all of the suites' items detect. The plan rests on a pilot: a run in the
    config's store, whose variance components show where the variance comes from. For models that are asked by drawn
    answers, --within 0.03 says how many items and draws of each bring the sampling error of the primary means to
    ±0.03, and --draws 4000 the best use of 4,000 draws.
    """
    from audit.prepare.forecast import allocate_draws, plan_audit
    from audit.report.phrases.checks.forecast import allocation_text, plan_text

    wishes = {"--detect": detect, "--within": within, "--draws": draws}
    given = [name for name, wish in wishes.items() if wish is not None]
    if len(given) > 1:
        raise ConfigError("plan", ", ".join(given), "only one goal can be planned for", "Give one of them")
    audit = load_audit(config)
    planned: AllocationPlan | SamplePlan
    if within is not None or draws is not None:
        planned = allocate_draws(audit, within=within, budget=draws, run_id=run_id)
        text = allocation_text(planned)
    else:
        planned = asyncio.run(plan_audit(audit, detect, run_id))
        text = plan_text(planned)
    say_json(planned.model_dump(mode="json"), indent=2) if as_json else say(text)

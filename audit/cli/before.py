"""`audit init`, `check`, `plan` and `suite-schema`: what comes before a model is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.run import ModelNames, OwnConfig, SuiteFiles, given_audit
from audit.cli.shared import OK, USAGE, Json, RunName, say, say_json
from backends.errors import ConfigError


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = Path("examples"),
) -> None:
    """Write example audits, suites, a plugin and schedules into a new folder: files to run and to change."""
    import shutil

    import audit

    package = Path(audit.__file__).parent  # in an installed wheel the examples lie in it, in the source tree beside it
    source = next(place for place in (package / "examples", package.parent / "examples") if place.is_dir())
    if folder.exists():
        raise ConfigError("FOLDER", str(folder), "exists already", "Name a new one, e.g. audit init my-audits")
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", "*.png", "*.db", "audit-out"))
    say(f"Examples are in {folder}. Planted answers, no model needed: audit run {folder / 'fake.py'}")
    say(f"A suite of your own from a file: audit run --suite {folder / 'suites' / 'religion.csv'} --model fake")


def check(
    config: OwnConfig = None,
    suite: SuiteFiles = None,
    model: ModelNames = None,
    bias: Annotated[float, typer.Option(min=0, max=1, help="How much bias is planted, 0 to 1.")] = 0.2,
    as_json: Json = False,
) -> None:
    """Try every suite of a config on made-up answers: report mistakes, unreadable answers, and whether bias is found.

    Local models are not loaded; only their tokenizers are, to check how they split prompt and continuation, and what
    their files show (weights missing or cut off, an unknown kind). Exits with 2 if there is a mistake.
    Without a config: audit check --suite pairs.csv
    """
    from audit.prepare.rehearsal import check_audit, tokenizer_checks
    from audit.report.phrases.planning import boundary_lines, rehearsal_lines

    audit = given_audit(config, suite or (), model or (("fake",) if suite else ()))
    found, of_config = check_audit(audit, bias)
    mistakes = [*(mistake for one in found for mistake in one.mistakes), *of_config]
    boundaries, of_tokens = ([], []) if mistakes else tokenizer_checks(audit)
    mistakes += of_tokens
    if as_json:
        suites = []
        for one in found:
            planted = [{"without": w.model_dump(mode="json"), "with": b.model_dump(mode="json")} for w, b in one.pairs]
            about = {"suite": one.suite, "questions": one.n_items, "unreadable": dict(one.unreadable)}
            suites.append({**about, "planted": planted})
        say_json({"mistakes": [str(mistake) for mistake in mistakes], "suites": suites})
    else:
        for line in (*rehearsal_lines(found, of_config), *boundary_lines(boundaries)):
            say(line)
        for mistake in of_tokens:
            say(f"Mistake: {mistake}")
        say("Mistakes: none." if not mistakes else f"Mistakes: {len(mistakes)}.")
    raise typer.Exit(USAGE if mistakes else OK)


def plan(
    config: OwnConfig = None,
    suite: SuiteFiles = None,
    model: ModelNames = None,
    detect: Annotated[
        float | None, typer.Option(min=0, help="The smallest difference to detect. Without: what all items detect.")
    ] = None,
    run_id: RunName = "last",
    as_json: Json = False,
) -> None:
    """Say what difference the items detect, and how many it takes to detect a given one.

    Without --detect it says what difference all of the suites' items detect, and what asking them costs. The plan
    rests on a pilot: a run in the config's store, whose variance components show where the variance comes from.
    """
    import asyncio

    from audit.prepare.forecast import plan_audit
    from audit.report.phrases.planning import plan_text

    planned = asyncio.run(plan_audit(given_audit(config, suite or (), model or ()), detect, run_id))
    say_json(planned.model_dump(mode="json"), indent=2) if as_json else say(plan_text(planned))


def suite_schema() -> None:
    """Print the JSON Schema of a suite's TOML file, for editors."""
    import json

    import suites

    say(json.dumps(suites.suite_schema(), indent=1, ensure_ascii=False))

"""`audit check` and `audit suite-schema`: checking suites before a model is asked."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from audit.cli.run import ModelNames, OwnConfig, SuiteFiles, given_audit
from audit.cli.shared import OK, USAGE, Json
from audit.report.formatting import say, say_json

Bias = Annotated[float, typer.Option(min=0, max=1, help="How much bias is planted, 0 to 1.")]


def check(
    config: OwnConfig = None,
    suite: SuiteFiles = None,
    model: ModelNames = None,
    bias: Bias = 0.2,
    as_json: Json = False,
) -> None:
    """Try every suite of a config on made-up answers: report mistakes, unreadable answers, and whether bias is found.

    Local models are not loaded; only their tokenizers are, to check how they split prompt and continuation, and what
    their files show (weights missing or cut off, an unknown kind). A hub id is looked up at the hub, or in the cache
    where HF_HUB_OFFLINE=1 is set or there is no network (HF_HOME, HF_TOKEN and HF_ENDPOINT count, too). Exits
    with 2 if there is a mistake. Without a config: audit check --suite pairs.csv
    """
    from audit.prepare.rehearsal import check_audit, tokenizer_checks
    from audit.report.phrases.checks.rehearsal import boundary_lines, rehearsal_lines

    audit = given_audit(config, suite or (), model or (("fake",) if suite else ()))
    found, of_config = check_audit(audit, bias)
    mistakes = [*(mistake for one in found for mistake in one.mistakes), *of_config]
    boundaries, of_tokens = ([], []) if mistakes else tokenizer_checks(audit)
    mistakes += of_tokens
    if as_json:
        suites = [
            {
                "suite": one.suite,
                "questions": one.n_items,
                "rater_tests": dict(one.rater_tests),
                "figures": len(one.specs),
                "levels": one.levels,
                "unreadable": dict(one.unreadable),
                "planted": [
                    {"without": without.model_dump(mode="json"), "with": biased.model_dump(mode="json")}
                    for without, biased in one.pairs
                ],
            }
            for one in found
        ]
        tokens = [{"model": one.model, "suite": one.suite, "boundaries": dict(one.counts)} for one in boundaries]
        say_json({"mistakes": [str(mistake) for mistake in mistakes], "suites": suites, "tokens": tokens})
    else:
        for line in rehearsal_lines(found, of_config):
            say(line)
        for line in boundary_lines(boundaries):
            say(line)
        for mistake in of_tokens:
            say(f"Mistake: {mistake}")
        say("Mistakes: none." if not mistakes else f"Mistakes: {len(mistakes)}.")
    raise typer.Exit(USAGE if mistakes else OK)


def suite_schema() -> None:
    """Print the JSON Schema of a suite's TOML file, for editors."""
    import suites

    say(json.dumps(suites.suite_schema(), indent=1, ensure_ascii=False))

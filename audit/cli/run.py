"""`audit run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from audit.cli.shared import FAILED, INTERRUPTED, OK, Json, say, say_json, tell_on_terminal
from backends.errors import ConfigError

if TYPE_CHECKING:
    from audit import Audit
    from audit.collect.executors import Executor

OwnConfig = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="Audit config: a .py file with an Audit, or a .toml file."),
]
SuiteFiles = Annotated[
    list[str] | None,
    typer.Option("--suite", help="Instead of CONFIG: a suite's .csv, .jsonl or .toml file, or its name (repeatable)."),
]
ModelNames = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Instead of CONFIG: a Hugging Face id, a folder, a .gguf file, URL#model, anthropic:MODEL, "
        "embedded:smollm2, fake; prefix NAME= to name it (repeatable).",
    ),
]


def run(
    config: OwnConfig = None,
    suite: SuiteFiles = None,
    model: ModelNames = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help='With --model URL#model: the environment variable that holds the server\'s key; "" for none. '
            "Default: OPENAI_API_KEY for https, none for http, ANTHROPIC_API_KEY for anthropic:MODEL."
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="With --model URL#model without log-probabilities: answers drawn for each question."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Number of items to ask of each suite: a balanced sample, the same for every model."),
    ] = None,
    small_sample: Annotated[
        bool, typer.Option("--small-sample", help="Accept a --limit that is too small to decide anything.")
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="decided|WIDTH",
            help="Ask in random order until the question is `decided`, or every primary mean is known within so much "
            "(0.03), up to --limit.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="With --until decided: the question is whether the model got worse than this run."),
    ] = None,
    models: Annotated[list[str] | None, typer.Option("-m", "--models", help="Only these models (repeatable).")] = None,
    suites: Annotated[list[str] | None, typer.Option("-s", "--suites", help="Only these suites (repeatable).")] = None,
    db: Annotated[Path | None, typer.Option(help="Store of answers; overrides the config's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the report; overrides the config's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed for sampling and resampling; overrides the config's.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count: requests, tokens, cache hits, time, cost. Sends nothing.")
    ] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="With --dry-run: take a short look at servers, to count closely.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", help="Ask only part I of N, chosen by prompt; `audit cache merge` joins the stores."
        ),
    ] = None,
    executor: Annotated[
        Literal["local", "ray"] | None,
        typer.Option(help="Where local models compute: in this process, or in actors of Ray (at RAY_ADDRESS)."),
    ] = None,
    as_json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the run's log on stderr.")] = False,
) -> None:
    """Run an audit and write its report.

    Without a config: audit run --suite pairs.csv --model embedded:smollm2

    Stored answers are not asked again: a run resumes after interruption, and a second run asks nothing.

    With --until decided a run first asks a random part of the items, and continues only while its question is open: did
    the model get worse than --baseline, are the config's limits kept, or else how do the models compare? Its intervals
    are wider than those of a run that asks everything, so that they hold wherever the run stops. The seed fixes the
    order: a repeated run asks the same items. --until 0.03 continues while a primary mean's sampling error is larger.
    """
    named = given_audit(config, suite or (), model or (), api_key_env, samples)
    options: dict[str, Any] = {
        "db": db,
        "out": out,
        "seed": seed,
        "limit": limit,
        "small_sample": small_sample or None,
        "until": until,
        "shard": shard,
        "executor": _executor(executor, named.executor),
    }
    given = {name: value for name, value in options.items() if value is not None}
    audit = named.only(models or (), suites or (), **given)
    if baseline is not None:
        audit.changed = {**audit.changed, "baseline": baseline}
    if dry_run:
        _estimate(audit, as_json, probe)
    else:
        raise typer.Exit(_run(audit, baseline, as_json=as_json, verbose=verbose))


def given_audit(
    config: Path | None,
    suites: Sequence[str],
    models: Sequence[str],
    api_key_env: str | None = None,
    samples: int | None = None,
) -> Audit:
    """The audit of a config, or of the suites and models named on the command line."""
    if config is not None:
        from audit import load_audit

        for option, value in (("--api-key-env", api_key_env), ("--samples", samples)):
            if value is not None:
                raise ConfigError(option, value, "a config is given", "Write it into the config's model")
        if suites or models:
            hint = "Give the config, or --suite and --model"
            raise ConfigError("--suite", str(config), "a config is given as well", hint)
        return load_audit(config)
    if not (suites or models):
        raise ConfigError("CONFIG", None, "no audit config", "Give a .py or .toml file, or --suite and --model")
    from audit.api.adhoc import adhoc_audit

    audit = adhoc_audit(suites, models, api_key_env=api_key_env, samples=samples)
    given = {"suite": list(suites), "model": list(models), "api_key_env": api_key_env, "samples": samples}
    audit.changed = {name: value for name, value in given.items() if value not in (None, [])}
    return audit


def _executor(name: Literal["local", "ray"] | None, configured: Executor | None) -> Executor | None:
    """Where the models compute; None where the config says. The config's options of a cluster stay."""
    if name is None:
        return None
    from audit.collect.executors import Executor
    from audit.collect.executors.ray import RayExecutor

    if name == "local":
        return Executor()
    return configured if isinstance(configured, RayExecutor) else RayExecutor()


def _estimate(audit: Audit, as_json: bool, probe: bool) -> None:
    import asyncio

    from audit.prepare.forecast import dry_run_audit, sample_power
    from audit.report.phrases.planning import estimate_text, power_text
    from backends.telling import TELL

    TELL.set(tell_on_terminal)
    estimate = asyncio.run(dry_run_audit(audit, ask=probe))
    if as_json:
        say_json(estimate.model_dump(mode="json"), indent=2)
    else:
        say("\n".join(filter(None, [estimate_text(estimate), power_text(sample_power(audit))])))


def _run(audit: Audit, baseline: str | None, *, as_json: bool, verbose: bool) -> int:
    """Run, report, and return the exit code."""
    import asyncio

    from audit.collect.progress import Display
    from audit.prepare.forecast import dry_run_audit
    from audit.report import write_report
    from audit.report.exports.json import report_data
    from audit.report.phrases.next_steps import commands_to_try, how_to_resume
    from audit.report.phrases.problems import problems_of, without_figures
    from audit.report.templating import lines
    from audit.report.terminal import print_result
    from audit.run import run_audit
    from backends.telling import TELL

    with Display(as_json=as_json, verbose=verbose) as display:
        TELL.set(display.tell)
        result = asyncio.run(run_audit(audit, baseline=baseline, on_event=display, verbose=verbose))
    has_figures = audit.shard is None and not result.is_unloaded
    paths = write_report(result, audit.out) if has_figures else {}
    if as_json:
        say_json(report_data(result))
    elif not has_figures:
        say("\n".join(without_figures(result)))
    else:
        print_result(result)
        say(f"\nReport: {paths['html']}")
        if not result.interrupted and result.has_answers:
            say("\n".join(commands_to_try(result)))
    if result.interrupted:
        say(how_to_resume(result), to_stderr=True)
        return INTERRUPTED
    unpaid = {model.name for model in result.models if "quota" in model.failures}
    rest = asyncio.run(dry_run_audit(audit)).models if unpaid else []
    for problem in (*problems_of(result), *lines("problems", "rest", rest, unpaid)):
        say(f"Problem: {problem}", to_stderr=True)
    return OK if result.complete else FAILED

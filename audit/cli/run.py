"""`audit run`."""

from __future__ import annotations

import contextlib
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
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Number of items to ask of each suite: a balanced sample, the same for every model."),
]
SmallSample = Annotated[
    bool, typer.Option("--small-sample", help="Accept a --limit that is too small to decide anything.")
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="decided|WIDTH",
        help="Ask in random order until the question is `decided`, or every primary mean is known within so much "
        "(0.03), up to --limit and --max-cost.",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", help="With --until decided: the question is whether the model got worse than this run."),
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
        "embedded:smollm2, fake; "
        "prefix NAME= to name it (repeatable).",
    ),
]
KeyEnv = Annotated[
    str | None,
    typer.Option(
        help='With --model URL#model: the environment variable that holds the server\'s key; "" for none. '
        "Default: OPENAI_API_KEY for https, none for http, ANTHROPIC_API_KEY for anthropic:MODEL."
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        min=1, help="With --model URL#model that gives no log-probabilities: draw this many answers per question."
    ),
]
Models = Annotated[list[str] | None, typer.Option("--models", "-m", help="Only these models (repeatable).")]
Suites = Annotated[list[str] | None, typer.Option("--suites", "-s", help="Only these suites (repeatable).")]
OwnDb = Annotated[Path | None, typer.Option("--db", help="Store of answers; overrides the config's.")]
OwnOut = Annotated[Path | None, typer.Option("--out", help="Folder for the report; overrides the config's.")]
Seed = Annotated[int | None, typer.Option(help="Seed for sampling and resampling; overrides the config's.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only count: requests, tokens, cache hits, time, cost. Sends nothing.")
]
Probe = Annotated[bool, typer.Option("--probe", help="With --dry-run: take a short look at servers, to count closely.")]
Resume = Annotated[
    bool,
    typer.Option("--resume/--fresh", help="Use stored answers, or ask everything again into a new store."),
]
Shard = Annotated[
    str | None,
    typer.Option(metavar="I/N", help="Ask only part I of N, chosen by prompt; `audit cache merge` joins the stores."),
]
Where = Annotated[
    Literal["local", "ray"] | None,
    typer.Option("--executor", help="Where local models compute: in this process, or in actors of a Ray cluster."),
]
Address = Annotated[
    str | None,
    typer.Option(help="With --executor ray: the cluster; auto is this machine's. Default: one of this machine alone."),
]
Actors = Annotated[
    int | None,
    typer.Option(
        min=1, help="With --executor ray: actors of each model. Default: as many as the cluster has room for."
    ),
]
StoreShards = Annotated[
    int | None,
    typer.Option(
        min=1, max=256, help="Divide a new store's answers among N files; with --executor ray each has its own process."
    ),
]
MaxCost = Annotated[
    float | None, typer.Option(min=0, help="Stop before a model costs more than this, in its prices' currency.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the run's log on stderr.")]


def run(
    config: OwnConfig = None,
    suite: SuiteFiles = None,
    model: ModelNames = None,
    api_key_env: KeyEnv = None,
    samples: Samples = None,
    limit: Limit = None,
    small_sample: SmallSample = False,
    until: Until = None,
    baseline: Baseline = None,
    models: Models = None,
    suites: Suites = None,
    db: OwnDb = None,
    out: OwnOut = None,
    seed: Seed = None,
    dry_run: DryRun = False,
    probe: Probe = False,
    resume: Resume = True,
    max_cost: MaxCost = None,
    shard: Shard = None,
    executor: Where = None,
    address: Address = None,
    actors: Actors = None,
    store_shards: StoreShards = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run an audit and write its report.

    Without a config: audit run --suite pairs.csv --model embedded:smollm2

    Stored answers are not asked again: a run resumes after interruption, and a second run asks nothing.

    With --until decided a run first asks a random part of the items, and continues only while its question is open: did
    the model get worse than --baseline, are the config's limits kept, or else how do the models compare? Its intervals
    are wider than those of a run that asks everything, so that they hold wherever the run stops. The seed fixes the
    order: a repeated run asks the same items. --until 0.03 continues while a primary mean's sampling error is larger.
    """
    options: dict[str, Any] = {
        "db": db,
        "out": out,
        "seed": seed,
        "limit": limit,
        "until": _number_or_text(until),
        "shard": shard,
        "store_shards": store_shards,
    }
    named = given_audit(config, suite or (), model or (), api_key_env, samples)
    options |= {"executor": _executor(executor, address, actors, named.executor)}
    given = {name: value for name, value in options.items() if value is not None}
    given |= {"small_sample": True} if small_sample else {}
    audit = named.only(models or (), suites or (), **given)
    if baseline is not None:
        audit.changed = {**audit.changed, "baseline": baseline}
    if not resume and audit.db.exists():
        raise ConfigError(
            "--fresh",
            str(audit.db),
            "this store holds answers",
            "Give --db a new path; stores are never deleted automatically",
        )
    if max_cost is not None:
        _limit_cost(audit, max_cost)
    if dry_run:
        _estimate(audit, as_json, probe)
    else:
        again = "the same command" if resume else "the same command without --fresh"
        raise typer.Exit(_run(audit, baseline, again, as_json=as_json, verbose=verbose))


def given_audit(
    config: Path | None,
    suites: Sequence[str],
    models: Sequence[str],
    api_key_env: str | None = None,
    samples: int | None = None,
) -> Audit:
    """The audit of a config, or of the suites and models named on the command line."""
    if config is not None:
        for option, value in (("--api-key-env", api_key_env), ("--samples", samples)):
            if value is not None:
                raise ConfigError(option, value, "a config is given", "Write it into the config's model")
    if config is not None and (suites or models):
        raise ConfigError(
            "--suite", str(config), "a config is given as well", "Give the config, or --suite and --model"
        )
    if config is not None:
        from audit import load_audit

        return load_audit(config)
    if not (suites or models):
        raise ConfigError("CONFIG", None, "no audit config", "Give a .py or .toml file, or --suite and --model")
    from audit.api.adhoc import adhoc_audit

    audit = adhoc_audit(suites, models, api_key_env=api_key_env, samples=samples)
    given = {"suite": list(suites), "model": list(models), "api_key_env": api_key_env, "samples": samples}
    audit.changed = {name: value for name, value in given.items() if value not in (None, [])}
    return audit


def _executor(
    name: Literal["local", "ray"] | None, address: str | None, actors: int | None, configured: Executor | None
) -> Executor | None:
    """Where the models compute; None where the config says. What is not given of a cluster stays as configured."""
    given: dict[str, Any] = {"address": address, "actors": actors}
    given = {option: value for option, value in given.items() if value is not None}
    if name == "ray" or (name is None and given):
        from audit.collect.executors.ray import RayExecutor

        if isinstance(configured, RayExecutor):
            return configured.changed(**given)
        if name == "ray":
            return RayExecutor(address=address, actors=actors)
    for option, value in given.items():
        raise ConfigError(f"--{option}", value, "nothing to give it to", "Add --executor ray, or leave it out")
    if name is None:
        return None
    from audit.collect.executors import LocalExecutor

    return LocalExecutor()


def _number_or_text(given: str | None) -> float | str | None:
    """A number where the text is one; the config checks what it means."""
    with contextlib.suppress(ValueError, TypeError):
        return float(given or "")
    return given


def _limit_cost(audit: Audit, max_cost: float) -> None:
    from backends.base import SupportsPrices

    audit.check()  # `endpoint` needs a valid address and key
    for name, backend in audit.models.items():
        if isinstance(backend, SupportsPrices) and backend.spent() is not None:
            backend.limit_cost(max_cost)
        elif backend.endpoint is not None:  # its cost cannot be tracked, so no limit could be enforced
            raise ConfigError("--max-cost", max_cost, f"models.{name} has no prices", "Give prices too")


def _estimate(audit: Audit, as_json: bool, probe: bool) -> None:
    import asyncio

    from audit.prepare.forecast import dry_run_audit, sample_power
    from audit.report.phrases.planning import estimate_text, power_text

    estimate = asyncio.run(dry_run_audit(audit, ask=probe))
    if as_json:
        say_json(estimate.model_dump(mode="json"), indent=2)
    else:
        say("\n".join(filter(None, [estimate_text(estimate), power_text(sample_power(audit))])))


def _run(audit: Audit, baseline: str | None, again: str, *, as_json: bool, verbose: bool) -> int:
    """Run, report, and return the exit code; ``again`` is how an interrupted run is resumed."""
    import asyncio

    from audit.collect.progress import Display
    from audit.report import write_report
    from audit.report.exports.json import report_data
    from audit.report.phrases.next_steps import commands_to_try, how_to_resume
    from audit.report.phrases.problems import problems_of, without_figures
    from audit.report.terminal import print_result
    from audit.run import run_audit
    from backends.telling import TELL

    TELL.set(tell_on_terminal)
    with Display(as_json=as_json, verbose=verbose) as display:
        result = asyncio.run(run_audit(audit, baseline=baseline, on_event=display, verbose=verbose))
    has_figures = audit.shard is None and not result.is_cut_off and not result.is_unloaded
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
        say(how_to_resume(result, again), to_stderr=True)
        return INTERRUPTED
    for problem in problems_of(result):
        say(f"Problem: {problem}", to_stderr=True)
    return OK if result.complete else FAILED

"""`audit run`."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from audit import Audit, load_audit
from audit.cli.shared import FAILED, INTERRUPTED, OK, Json, tell_on_terminal
from audit.report.formatting import say, say_json
from backends.base import SupportsPrices
from backends.errors import ConfigError
from backends.telling import TELL

if TYPE_CHECKING:
    from audit.collect.executors import Executor
    from audit.results import AuditResult

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
        _tell_where(audit)
        again = "the same command" if resume else "the same command without --fresh"
        store = db or config or audit.db
        raise typer.Exit(_run(audit, store, baseline, again, as_json=as_json, verbose=verbose))


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


def _tell_where(audit: Audit) -> None:
    """Say that nothing will run on a cluster, where one is named and all models are asked elsewhere."""
    from audit.collect.executors.ray import RayExecutor

    scorers = (scorer for suite in audit.suites.values() for scorer in suite.scorers.values())
    if isinstance(audit.executor, RayExecutor) and all(
        backend.device is None for backend in (*audit.models.values(), *scorers)
    ):
        say(
            "Ray computes no model of this audit: servers, planted and recorded answers are asked from here.",
            to_stderr=True,
        )


def _number_or_text(given: str | None) -> float | str | None:
    """A number where the text is one; the config checks what it means."""
    with contextlib.suppress(ValueError, TypeError):
        return float(given or "")
    return given


def _limit_cost(audit: Audit, max_cost: float) -> None:
    audit.check()  # `endpoint` needs a valid address and key
    for name, backend in audit.models.items():
        if isinstance(backend, SupportsPrices) and backend.spent() is not None:
            backend.limit_cost(max_cost)
        elif backend.endpoint is not None:  # its cost cannot be tracked, so no limit could be enforced
            raise ConfigError("--max-cost", max_cost, f"models.{name} has no prices", "Give prices too")


def _estimate(audit: Audit, as_json: bool, probe: bool) -> None:
    from audit.prepare.forecast import dry_run_audit, sample_power
    from audit.report.phrases.checks.forecast import estimate_text, power_text

    estimate = asyncio.run(dry_run_audit(audit, ask=probe))
    if as_json:
        say_json(estimate.model_dump(mode="json"), indent=2)
    else:
        say("\n".join(filter(None, [estimate_text(estimate), power_text(sample_power(audit))])))


def _run(audit: Audit, store: Path, baseline: str | None, again: str, *, as_json: bool, verbose: bool) -> int:
    """Run, report, and return the exit code; ``again`` is how an interrupted run is resumed."""
    from audit.collect.progress import Display
    from audit.report import write_report
    from audit.report.exports.json import report_data
    from audit.report.phrases import problems_of
    from audit.report.terminal import print_result
    from audit.run import run_audit

    TELL.set(tell_on_terminal)
    with Display(as_json=as_json, verbose=verbose) as display:
        result = asyncio.run(run_audit(audit, baseline=baseline, on_event=display, verbose=verbose))
    has_figures = audit.shard is None and not result.is_cut_off and not result.is_unloaded
    replaced = _replaced(audit.out, result) if has_figures else ""
    paths = write_report(result, audit.out) if has_figures else {}
    if as_json:
        say_json(report_data(result))
    elif not has_figures:
        for line in _without_report(audit, result):
            say(line)
    else:
        print_result(result)
        say(f"\nReport: {paths['html']}{replaced}")
        for line in () if result.interrupted or not result.has_answers else _follow_ups(result, store):
            say(line)
    if result.interrupted:
        say(_interrupted(result, again), to_stderr=True)
        return INTERRUPTED
    for problem in problems_of(result):
        say(f"Problem: {problem}", to_stderr=True)
    return OK if result.complete else FAILED


def _replaced(out: Path, result: AuditResult) -> str:
    """Which other models' or suites' report lay in the folder, and how it is written again; empty if none did."""
    from audit.results import AuditResult

    try:
        earlier = AuditResult.from_report((out / "report.json").read_bytes())
    except (OSError, ValueError):
        return ""
    asked = [sorted(model.name for model in one.models) for one in (earlier, result)]
    suites = [sorted(info.name for info in one.suites) for one in (earlier, result)]
    if (asked[0], suites[0]) == (asked[1], suites[1]) or earlier.source is None:
        return ""
    again = shlex.join(["audit", "report", earlier.run_id, "--db", earlier.source.db, "--out", "FOLDER"])
    return f"\nIt took the place of the report of {', '.join(asked[0])}, which this writes again: {again}"


def _interrupted(result: AuditResult, again: str) -> str:
    """How many answers an interrupted run stored, and how it is resumed."""
    from audit.report.phrases.counted import count
    from audit.report.phrases.next_steps import has_command, run_command

    new = count(sum(model.asked for model in result.models), "new answer")
    if result.source is not None and has_command(result.source):
        again = run_command(result.source)
    return f"Interrupted: {new} stored, and all earlier ones kept. To resume: {again}"


def _without_report(audit: Audit, result: AuditResult) -> Iterable[str]:
    from audit.report.phrases.checks.parts import cut_off_lines, part_lines

    if audit.shard is not None:
        return part_lines(result)
    if result.is_cut_off:
        return cut_off_lines(result)
    older = f"; what lies in {audit.out} is of an earlier one" if (audit.out / "report.html").exists() else ""
    return [f"No model could be loaded: there is no report of this run{older}."]


def _follow_ups(result: AuditResult, store: Path) -> Iterator[str]:
    """Commands to try next; ``store`` is the value of their --db option."""
    of_store = f"--db {shlex.quote(str(store))}"
    names = [shlex.quote(model.name) for model in result.models if not model.unloaded]
    from audit.report.phrases.next_steps import judged_against

    yield "Next:"
    if len(names) > 1:
        yield f"  audit compare {names[0]} {names[1]} {of_store} --run {result.run_id}"
    shown = next((m for m in result.measures if m.spec.primary and m.value is not None), None)
    if shown is not None:
        yield f"  audit show {shown.id} {of_store} --run {result.run_id}"
    if baseline := judged_against(result):
        yield f"  audit gate --baseline {shlex.quote(baseline)} {of_store}"
    else:
        yield f"  audit baseline save first {of_store}"

"""The command `audit`. Each command does one thing; this module holds the one `asyncio.run`.

Exit codes: 0 done; 1 incomplete or failed; 2 usage or config; 3 a gate found a regression; 130 interrupted.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from audit import load_audit
from backends.base import SupportsPrices
from backends.errors import AuditError, ConfigError

if TYPE_CHECKING:
    from audit.results import AuditResult
    from audit.store import Store

OK, FAILED, USAGE, REGRESSED, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Audit language models for gender bias: ask, keep, compare, judge.",
    epilog="Start with: audit run examples/demo.py --limit 200",
)
cache = typer.Typer(no_args_is_help=True, help="Look into the store of answers.")
baseline = typer.Typer(no_args_is_help=True, help="Name runs that a gate compares with.")
app.add_typer(cache, name="cache")
app.add_typer(baseline, name="baseline")

Config = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="Audit config: a .py file with an Audit, or a .toml file.")
]
Db = Annotated[Path, typer.Option("--db", help="Store of answers and runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines on stdout.")]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"bias-audit {importlib.metadata.version('bias-audit')}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before any command."""


@app.command()
def run(
    config: Config,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Ask about so many items of each suite: a balanced sample, the same for every model."),
    ] = None,
    models: Annotated[list[str] | None, typer.Option("--models", "-m", help="Only these models (repeatable).")] = None,
    suites: Annotated[list[str] | None, typer.Option("--suites", "-s", help="Only these suites (repeatable).")] = None,
    db: Annotated[Path | None, typer.Option("--db", help="Store of answers; overrides the config's.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the report; overrides the config's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of samples and resampling; overrides the config's.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count: requests, tokens, cache hits, time, cost.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--fresh", help="Use answers that are stored already, or ask everything again into a new store."
        ),
    ] = True,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="Stop before a model costs more than this, in its prices' currency.")
    ] = None,
    as_json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the run's log on stderr.")] = False,
) -> None:
    """Run an audit and write its report.

    What is stored is not asked again: an interrupted run goes on where it stopped, and a second run asks
    nothing.
    """
    from audit.collect.progress import Display
    from audit.estimate import dry_run_audit
    from audit.run import run_audit

    changes = {"db": db, "out": out, "seed": seed, "limit": limit}
    audit = load_audit(config).only(
        models or (), suites or (), **{name: value for name, value in changes.items() if value is not None}
    )
    if not resume and audit.db.exists():
        raise ConfigError(
            "--fresh", str(audit.db), "this store holds answers", "Give --db a new path; none is deleted for you"
        )
    if max_cost is not None:
        audit.check()  # an address or key that cannot be read has no endpoint
        for name, backend in audit.models.items():
            if isinstance(backend, SupportsPrices) and backend.spent() is not None:
                backend.limit_cost(max_cost)
            elif backend.endpoint is not None:  # its bill could pass any limit unseen
                raise ConfigError("--max-cost", max_cost, f"models.{name} has no prices", "Give prices too")
    if dry_run:
        estimate = asyncio.run(dry_run_audit(audit))
        typer.echo(estimate.model_dump_json(indent=2) if as_json else estimate.as_text())
        return
    with Display(as_json=as_json, verbose=verbose) as display:
        result = asyncio.run(run_audit(audit, on_event=display, verbose=verbose))
    paths = _write(result, audit.out)
    if as_json:
        typer.echo(result.model_dump_json())
    else:
        _print_terminal(result)
        typer.echo(f"\nReport: {paths['html']}")
    if result.interrupted:
        again = "the same command" if resume else "the same command without --fresh"
        typer.echo(f"Interrupted. What was answered is stored; {again} goes on.", err=True)
        raise typer.Exit(INTERRUPTED)
    for problem in result.problems:
        typer.echo(f"Problem: {problem}", err=True)
    raise typer.Exit(OK if result.complete else FAILED)


@app.command()
def report(
    run_id: Annotated[str, typer.Argument(help="A run of the store, or `last`.")] = "last",
    db: Db = Path("audit.db"),
    out: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path("audit-out"),
) -> None:
    """Write a stored run's report again: HTML, JSON, CSV and Markdown."""
    with _store(db) as store:
        result = _result(store, run_id)
    for path in _write(result, out).values():
        typer.echo(path)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="A model of the run.")],
    b: Annotated[str, typer.Argument(help="Another model of the run.")],
    run_id: Annotated[str, typer.Option("--run", help="A run of the store, or `last`.")] = "last",
    db: Db = Path("audit.db"),
    details: Annotated[bool, typer.Option("--details", help="Also single occupations and other levels.")] = False,
    as_json: Json = False,
) -> None:
    """Say how B differs from A, measure by measure, on the same items."""
    with _store(db) as store:
        result = _result(store, run_id)
    names = [m.name for m in result.models]
    for name in (a, b):
        if name not in names:
            raise ConfigError("model", name, "not in this run", f"Known: {', '.join(names)}")
    chosen = [
        c if c.a == a else _swapped(c)
        for c in result.comparisons
        if {c.a, c.b} == {a, b} and (details or not c.is_subgroup)
    ]
    if as_json:
        typer.echo(json.dumps([c.model_dump() for c in chosen]))
        return
    from audit.report.terminal import print_comparisons

    print_comparisons(chosen)


@app.command("ls")
def list_things(
    what: Annotated[str, typer.Argument(help="runs, models or suites")] = "runs",
    db: Db = Path("audit.db"),
    as_json: Json = False,
) -> None:
    """List the runs of a store, the models it holds answers of, or the suites that exist."""
    if what == "suites":
        import suites as known

        rows = [{"suite": n, "about": (getattr(known, n).__doc__ or "").strip().splitlines()[0]} for n in known.__all__]
    elif what == "runs":
        with _store(db) as store:
            rows = [{"run": r.id, "title": r.title, "started": r.started, "status": r.status} for r in store.runs.all()]
    elif what == "models":
        with _store(db) as store:
            rows = [
                {
                    "fingerprint": m["fingerprint_id"],
                    "kind": m["kind"],
                    "answers": m["answers"],
                    **(m["fingerprint"] or {}),
                }
                for m in store.stats()["models"]
            ]
    else:
        raise ConfigError("ls", what, "unknown", "Use runs, models or suites")
    _print_rows(rows, as_json)


@app.command()
def show(
    figure_id: Annotated[str, typer.Argument(help="A measure's id, from report.json or the report's hover text.")],
    run_id: Annotated[str, typer.Option("--run", help="A run of the store, or `last`.")] = "last",
    db: Db = Path("audit.db"),
    limit: Annotated[int, typer.Option(min=1, help="How many items to print.")] = 5,
    as_json: Json = False,
) -> None:
    """Show what is behind a figure: its prompts, raw answers and token log-probabilities."""
    from audit.report.provenance import evidence, evidence_text

    with _store(db) as store:
        found = evidence(store, _result(store, run_id), figure_id, limit)
    typer.echo(json.dumps(found) if as_json else evidence_text(found))


@app.command()
def gate(
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="A saved baseline's name, a run id, or a report.json; without: limits only."),
    ] = None,
    run_id: Annotated[str, typer.Option("--run", help="The run to judge, or `last`.")] = "last",
    db: Db = Path("audit.db"),
    margin: Annotated[
        float | None, typer.Option(min=0, help="Harm up to this does not matter; default: the run's config.")
    ] = None,
    inconclusive_fails: Annotated[bool, typer.Option(help="Fail on open questions too.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write a Markdown summary here.")] = None,
    as_json: Json = False,
) -> None:
    """Judge a run against a baseline and the config's limits. Exit code 3 when something regressed.

    Decided on intervals with correction for many figures: too few items give "inconclusive" or
    "insufficient evidence", never "unchanged". A figure that has no better side, such as the effect
    of a debiasing text, is judged only where the config's `margins` name it.
    """
    from audit.analysis.stored_gate import gate_run
    from audit.report.gate import gate_json, gate_markdown, junit_xml

    with _store(db) as store:
        found = gate_run(store, _run_id(store, run_id), baseline, margin=margin, inconclusive_fails=inconclusive_fails)
    for path, text in ((junit, junit_xml), (markdown, gate_markdown)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(found), "utf-8")
    typer.echo(gate_json(found) if as_json else gate_markdown(found))
    raise typer.Exit(found.exit_code)


@app.command()
def schedule(
    config: Config,
    cron: Annotated[
        str | None,
        typer.Option(help='Local times as in crontab, e.g. "0 3 * * *"; six fields: seconds first.'),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="One slot now, then exit: for cron, systemd and others who know the time.")
    ] = False,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Judge each run against it: a name, a run id, or a report.json.")
    ] = None,
    missed: Annotated[
        str, typer.Option(help="Slots that passed meanwhile: `run` catches up once for all, `skip` only notes them.")
    ] = "run",
    on_regression: Annotated[
        str | None, typer.Option(help="Program called when the gate fails; it reads the gate's report (JSON) on stdin.")
    ] = None,
    webhook: Annotated[str | None, typer.Option(help="URL that gets the same report by POST.")] = None,
) -> None:
    """Run an audit at set times, judge each run, and keep the trend page up to date.

    One run at a time. Each slot's outcome is kept in a journal beside the store, and printed as a line. The config is
    read anew at each slot. Ends by SIGINT or SIGTERM, with 130.
    """
    from audit.schedule.cron import Schedule
    from audit.schedule.scheduled_audit import ScheduledAudit, run_once, serve

    if once == (cron is not None):
        raise ConfigError("--cron", cron, "one of --cron and --once is needed", 'Give --cron "0 3 * * *", or --once')
    audit = ScheduledAudit(config, baseline=baseline, tell=typer.echo)
    slots = audit.slots(on_regression, webhook)
    raise typer.Exit(run_once(slots) if cron is None else serve(audit, Schedule(cron, slots, missed=missed)))


@app.command()
def history(
    db: Db = Path("audit.db"),
    title: Annotated[str | None, typer.Option(help="Only runs of the audit with this title.")] = None,
    measure: Annotated[str | None, typer.Option(help="Only this measure.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    details: Annotated[bool, typer.Option("--details", help="Also single occupations and other levels.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the trend page here instead.")] = None,
    as_json: Json = False,
) -> None:
    """Show each figure over the runs: value, interval, and what changed of model, engine or suite."""
    from audit.schedule.scheduled_audit import read_history

    with _store(db) as store:
        found = read_history(store, db, title, details=details).only(measure, model)
    if html is not None:
        from audit.report.trend import write_trend

        typer.echo(write_trend(found, html, title=title or "All audits of this store"))
    elif as_json:
        typer.echo(found.model_dump_json())
    else:
        from audit.report.terminal import print_history

        print_history(found)


@app.command()
def probe(
    url: Annotated[str, typer.Argument(help="Base URL of an OpenAI-style server, e.g. http://127.0.0.1:8000/v1")],
    model: Annotated[str, typer.Option("--model", help="Model name as the server knows it.")],
    api_key_env: Annotated[
        str, typer.Option(help='Environment variable that holds the key; "" for a server that asks for none.')
    ] = "OPENAI_API_KEY",
    as_json: Json = False,
) -> None:
    """Find out by experiment what a server can do and whether its log-probabilities are true."""
    from backends.openai import OpenAIBackend

    async def ask() -> Any:
        backend = OpenAIBackend(url, model=model, api_key_env=api_key_env)
        backend.check()
        try:
            return await backend.probe()
        finally:
            await backend.close()

    found = asyncio.run(ask())
    typer.echo(json.dumps(found.to_json()) if as_json else found.render_text())


@cache.command("stats")
def cache_stats(db: Db = Path("audit.db"), as_json: Json = False) -> None:
    """Count what the store holds."""
    with _store(db) as store:
        told = store.stats()
    if as_json:
        typer.echo(json.dumps(told))
        return
    for name, value in told.items():
        if name != "models":
            typer.echo(f"{name:12} {value:,}")
    _print_rows(
        [{"fingerprint": m["fingerprint_id"], "kind": m["kind"], "answers": m["answers"]} for m in told["models"]],
        False,
    )


@cache.command("verify")
def cache_verify(db: Db = Path("audit.db")) -> None:
    """Read every row, check its checksum and hash its key again. Damaged rows are set aside."""
    with _store(db) as store:
        found = store.answers.verify()
    if found.damaged:  # only now for writing: a file with problems of its own can be read and no more
        with _store(db, read_only=False) as store:
            found = store.answers.verify()
    typer.echo(
        f"{found.answers:,} answers read, {len(found.damaged)} damaged and set aside, "
        f"{len(found.file_problems)} file problems"
    )
    for key in found.damaged:
        typer.echo(f"damaged: {key} (will be asked again)", err=True)
    for problem in found.file_problems:
        typer.echo(f"file: {problem}", err=True)
    raise typer.Exit(OK if found.sound else FAILED)


@cache.command("explain")
def cache_explain(key: Annotated[str, typer.Argument(help="An answer's key.")], db: Db = Path("audit.db")) -> None:
    """Print everything known under a key: who was asked what, the answer, and its failures."""
    with _store(db) as store:
        told = store.answers.inspect(key)
    if told is None:
        raise ConfigError(
            "KEY", key, "nothing is stored under it", "`audit show FIGURE-ID` prints the keys of a figure"
        )
    typer.echo(json.dumps(told, indent=2, ensure_ascii=False))


@cache.command("backup")
def cache_backup(
    target: Annotated[Path, typer.Argument(help="A path that does not exist yet.")], db: Db = Path("audit.db")
) -> None:
    """Copy the store, also while an audit is writing to it."""
    with _store(db) as store:
        store.backup(target)
    typer.echo(target)


@baseline.command("save")
def baseline_save(
    name: str,
    run_id: Annotated[str, typer.Option("--run", help="A run, or `last`.")] = "last",
    db: Db = Path("audit.db"),
) -> None:
    """Name a run as a baseline."""
    with _store(db, read_only=False) as store:
        chosen = _run_id(store, run_id)
        store.runs.save_baseline(name, chosen)
    typer.echo(f"{name} = {chosen}")


@baseline.command("promote")
def baseline_promote(
    name: str,
    run_id: Annotated[str, typer.Option("--run", help="A run, or `last`.")] = "last",
    db: Db = Path("audit.db"),
) -> None:
    """Put a newer run behind a baseline's name; the earlier one stays in its history."""
    with _store(db, read_only=False) as store:
        chosen = _run_id(store, run_id)
        store.runs.promote_baseline(name, chosen)
    typer.echo(f"{name} = {chosen}")


@baseline.command("list")
def baseline_list(db: Db = Path("audit.db"), as_json: Json = False) -> None:
    """List the baselines."""
    with _store(db) as store:
        rows = [
            {"name": b.name, "run": b.run_id, "since": b.since, "earlier": len(b.earlier)}
            for b in store.runs.baselines()
        ]
    _print_rows(rows, as_json)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the command: turns errors into messages and exit codes."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # loading bars of libraries would run through the audit's own
    # Hundreds of thousands of rows live until the end: looking through them for cycles took a fifth of the time.
    gc.set_threshold(50_000, 20, 100)
    try:
        app(args=list(arguments) if arguments is not None else None, standalone_mode=True)
    except ConfigError as error:
        _fail(f"Error: {error}", USAGE)
    except AuditError as error:
        _fail(f"Error: {error}", FAILED)
    except KeyboardInterrupt:
        _fail("Interrupted.", INTERRUPTED)
    except BrokenPipeError:
        os._exit(OK)
    except OSError as error:
        if error.filename is None:
            raise
        _fail(f"Error: {error.filename}: {error.strerror}. Give another path, or free this one.", FAILED)
    sys.exit(OK)


def _fail(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(code)


def _store(db: Path, *, read_only: bool = True) -> Store:
    from audit.store import Store

    db = db.expanduser()
    if not db.exists():
        raise ConfigError("--db", str(db), "no such store", "Run an audit first, or give the path of its store")
    return Store.open(db, read_only=read_only)


def _run_id(store: Store, name: str) -> str:
    return store.runs.find(name)


def _result(store: Store, name: str) -> AuditResult:
    return store.runs.finished_result(store.runs.find(name))


def _write(result: AuditResult, out: Path) -> dict[str, Path]:
    from audit.report import write_report

    paths: dict[str, Path] = write_report(result, out)
    return paths


def _print_terminal(result: AuditResult) -> None:
    from audit.report.terminal import print_result

    print_result(result)


def _swapped(comparison: Any) -> Any:
    from audit.analysis.comparisons import swapped
    from audit.report.phrases import with_words

    return with_words([swapped(comparison)])[0]


def _print_rows(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(list(rows)))
        return
    if not rows:
        typer.echo("none")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(name) is None else str(row[name]) for name in columns))
    Console().print(table)

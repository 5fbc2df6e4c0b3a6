"""`audit report`, `compare`, `show`, `export`, `log-to`, `view`, `history`, `correlate`, `ls`: what a store holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from audit.cli.shared import DEFAULT_DB, Db, Json, RunName, Subgroups, open_store, print_rows, say, say_json
from backends.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from audit.report import Format
    from audit.report.exports.for_tools import Tool
    from audit.report.trackers import Tracker
    from audit.store import Store
    from backends.catalogue.plugins import PluginKind

#: The package of everything that is not a plugin.
OWN = "bias-audit"


def report(
    run_id: Annotated[str, typer.Argument(help="A run of the store, or `last`.")] = "last",
    db: Db = DEFAULT_DB,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the report; default: the run's.")] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="html, certificate, json, csv, markdown, latex, svg, pdf; repeatable."),
    ] = None,
) -> None:
    """Write a stored run's report again: HTML, one-sheet certificate, JSON, CSV, Markdown, LaTeX tables."""
    from audit import load_result

    for path in load_result(db, run_id).write(out, formats=cast("list[Format] | None", formats or None)).values():
        say(path)


def compare(
    a: Annotated[str, typer.Argument(help="A model of the run.")],
    b: Annotated[str, typer.Argument(help="Another model of the run.")],
    run_id: RunName = "last",
    db: Db = DEFAULT_DB,
    details: Subgroups = False,
    as_json: Json = False,
) -> None:
    """Show how two models differ, measure by measure, on the same items."""
    from audit import load_result
    from audit.report.figures import Figures
    from audit.report.phrases.comparisons import describe
    from audit.report.terminal import print_comparisons

    result = load_result(db, run_id)
    if a == b:
        raise ConfigError("model", b, "the same model twice", "Name two models; `audit gate` compares a model's runs")
    names = [model.name for model in result.models]
    for name in (a, b):
        if name not in names:
            raise ConfigError("model", name, "not in this run", f"Known: {', '.join(names)}")
    chosen = [c for c in result.comparisons if {c.a, c.b} == {a, b} and (details or not c.is_subgroup)]
    if as_json:
        say_json([{**comparison.model_dump(), "words": describe(comparison)} for comparison in chosen])
    else:
        print_comparisons(Figures(result), chosen)


def show(
    figure_id: Annotated[str, typer.Argument(help="A measure's id, from report.json or the report's hover text.")],
    run_id: RunName = "last",
    db: Db = DEFAULT_DB,
    limit: Annotated[int, typer.Option(min=1, help="How many items to print.")] = 5,
    as_json: Json = False,
) -> None:
    """Show the prompts, raw answers and token log-probabilities behind a figure."""
    from audit.report.provenance import provenance, provenance_text

    with open_store(db) as store:
        result = store.runs.finished_result(store.runs.find(run_id))
        behind = provenance(store, result, figure_id, limit)
    say_json(behind) if as_json else say(provenance_text(behind))


def export(
    file: Annotated[
        Path, typer.Argument(help="The file to write: .jsonl, .csv or .parquet (extra `frames`); with --for a folder.")
    ],
    run_id: RunName = "last",
    db: Db = DEFAULT_DB,
    suite: Annotated[str | None, typer.Option(help="Only this suite.")] = None,
    tool: Annotated[
        str | None, typer.Option("--for", help="Files for another tool: inspect, lm-eval or every-eval-ever.")
    ] = None,
    derived: Annotated[
        bool, typer.Option("--derived", help="Also rows computed from several items; they repeat those items' texts.")
    ] = False,
) -> None:
    """Write a run's items: prompts, answers, factors and quantities, one record per model and item."""
    from audit import load_result

    result = load_result(db, run_id)
    if tool is None:
        say(result.write_items(file, suite, derived=derived))
    else:
        for path in result.write_for(cast("Tool", tool), file, suite):
            say(path)


def log_to(
    tracker: Annotated[str, typer.Argument(help="mlflow, wandb or opentelemetry (extras of these names).")],
    run_id: RunName = "last",
    db: Db = DEFAULT_DB,
    project: Annotated[
        str, typer.Option(help="MLflow's experiment, W&B's project, OpenTelemetry's tracer.")
    ] = "bias-audit",
) -> None:
    """Log a run's figures to an experiment tracker, as its own environment variables configure it."""
    from audit import load_result

    say(load_result(db, run_id).log_to(cast("Tracker", tracker), project))


def view(
    db: Db = DEFAULT_DB,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 8321,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Browse a store: runs, models, items and answers, models side by side, the trend. For this machine only."""
    import socket
    import webbrowser

    try:
        import uvicorn

        from audit.report.view.app import view_app
    except ImportError:
        raise MissingExtra("audit view", "starlette and uvicorn", "view") from None
    from audit.report.page.trend_page import trend_page
    from audit.schedule.scheduled_audit import read_history

    with open_store(db) as store, socket.socket() as listening:
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError("--port", port, str(error.strerror).lower(), "Give another port") from None
        app = view_app(store, lambda: trend_page(read_history(store, store.path), "All audits of this store", runs="/"))
        address = f"http://127.0.0.1:{port}/"
        say(f"{store.path.name} is shown at {address} until Ctrl-C")
        if open_browser:
            webbrowser.open(address)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False)).run(sockets=[listening])


def history(
    db: Db = DEFAULT_DB,
    title: Annotated[str | None, typer.Option(help="Only runs of the audit with this title.")] = None,
    measure: Annotated[str | None, typer.Option(help="Only this measure.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    details: Subgroups = False,
    html: Annotated[Path | None, typer.Option(help="Write the trend page here instead.")] = None,
    as_json: Json = False,
) -> None:
    """Show each figure over time: value, interval, and what changed in model, engine or suite.

    For figures that a gate has checked, it also shows the change since the baseline, night by night, with intervals
    that hold for all nights together.
    """
    from audit.report import write_trend
    from audit.report.terminal import print_history
    from audit.schedule.scheduled_audit import read_history

    with open_store(db) as store:
        _check_title(store, title)
        chosen = read_history(store, store.path, title, details=details).only(measure, model)
    if html is not None:
        say(write_trend(chosen, html, title=title or "All audits of this store"))
    elif as_json:
        say_json(chosen.model_dump(mode="json"))
    else:
        print_history(chosen)


def _check_title(store: Store, title: str | None) -> None:
    titles = list(dict.fromkeys(run.title for run in store.runs.all()))
    if title is not None and title not in titles:
        raise ConfigError("--title", title, "no run has it", f"Known: {', '.join(titles)}")


def correlate(
    db: Db = DEFAULT_DB,
    title: Annotated[str | None, typer.Option(help="Only runs of the audit with this title.")] = None,
    as_json: Json = False,
) -> None:
    """Show how the suites' primary figures rank the store's models, and how far the rankings agree (Spearman)."""
    from audit.analysis.comparing.agreement import agreement
    from audit.analysis.history import stored_results
    from audit.report.terminal import print_agreement

    with open_store(db) as store:
        _check_title(store, title)
        found = agreement(stored_results(store, title))
    say_json(found.model_dump(mode="json")) if as_json else print_agreement(found)


def list_entries(
    what: Annotated[str, typer.Argument(help="runs, models, suites, backends or scorers")] = "runs",
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """List the runs of a store, the models whose answers it holds, or the available suites, backends and scorers.

    A scorer may also be a rater with a question of your own: [scorers.NAME] in a suite's file (audit suite-schema).
    """
    if what in ("suites", "backends", "scorers"):
        rows = [*_available(cast("PluginKind", what))]
    elif what == "runs":
        with open_store(db) as store:
            runs = store.runs.all()
        rows = [{"run": r.id, "title": r.title, "started": r.started[:19], "status": r.status} for r in runs]
    elif what == "models":
        with open_store(db) as store:
            models = store.stats()["models"]
        rows = [{"fingerprint": m["fingerprint_id"], "answers": m["answers"], **m["fingerprint"]} for m in models]
    else:
        raise ConfigError("ls", what, "unknown", "Use runs, models, suites, backends or scorers")
    print_rows(rows, as_json)


def _available(what: PluginKind) -> Iterator[dict[str, str]]:
    """Everything of that kind that a config can name, with the package that provides it."""
    from audit.config import own_kinds
    from backends.catalogue.plugins import plugins
    from suites import shipped_scorers

    kind = what.removesuffix("s")
    own = shipped_scorers()
    if what != "scorers":
        own = {name: _about(load) for name, load in own_kinds("suite" if what == "suites" else "backend").items()}
    for name, about in own.items():
        yield {kind: name, "about": about, "package": OWN}
    for name, plugin in plugins(what).items():
        about = f"not used: {OWN} has one of this name" if name in own else _about(plugin.load)
        yield {kind: name, "about": about, "package": ", ".join(plugin.packages)}


def _about(load: Callable[[], Any]) -> str:
    try:
        return (load().__doc__ or "").strip().split("\n")[0]
    except ConfigError as error:
        return str(error)

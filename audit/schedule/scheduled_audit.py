"""One scheduled run: the audit, its report, the gate, the trend page, and a command when something regressed."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import Timeout

from audit import Audit, load_audit
from audit.analysis.gate.stored import find_baseline, gate_run
from audit.analysis.history import History, gate_checks, history, stored_results
from audit.collect.scheduler import INTERRUPTED
from audit.report import write_report, write_trend
from audit.report.exports.gate import gate_json
from audit.results import GateReport
from audit.run import run_audit
from audit.schedule.journal import Journal, absences, now, outcome_line
from audit.store import Store
from backends.errors import ConfigError

_COMMAND_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a scheduled run ended: ``status`` as in the store, and the gate's report if one was applied."""

    run_id: str
    status: str
    gate: GateReport | None = None


def run_scheduled(
    config: Path, *, baseline: str | None, on_regression: str | None, on_line: Callable[[str], None]
) -> int:
    """Run an audit once, as a schedule does. Returns the exit code.

    Parameters
    ----------
    baseline : str, optional
        The run to compare with: see `audit.analysis.gate.stored.find_baseline`.
    on_regression : str, optional
        A command, called without a shell when the gate fails, with the gate's report (JSON) on its standard input.
    on_line : callable
        Called with one line of text for each outcome.

    Returns
    -------
    int
        0 done, 1 not run or incomplete, 3 regressed, 130 interrupted.

    Raises
    ------
    ConfigError
        If the config, the baseline or the command cannot be used.
    """
    audit = load_audit(config)
    audit.check()
    if baseline is not None:
        _check_baseline(audit.db, baseline)
    command = None if on_regression is None else _command(on_regression, baseline)

    def tell(entry: dict[str, Any]) -> None:
        if entry["event"] != "started":
            on_line(outcome_line(entry))
            _draw_trend(audit, on_line)

    journal = Journal(Journal.path_beside(audit.db), tell)
    entry = run_slot(lambda: _run(audit, baseline, on_line), journal, command)
    if entry.get("status") == "interrupted":
        return INTERRUPTED
    if entry.get("exit_code"):
        return int(entry["exit_code"])
    return 0 if entry.get("status") == "done" else 1


def run_slot(run: Callable[[], RunOutcome], journal: Journal, command: Sequence[str] | None = None) -> dict[str, Any]:
    """Run something once, unless another process does. Returns the journal's entry of its outcome.

    Earlier runs whose process was killed are recorded first.
    """
    slot, lock = now(), journal.lock()
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return journal.write("busy", slot, error="another process is running this audit")
    try:
        for killed in journal.unfinished():
            journal.write("killed", killed, error="its process ended before the run did")
        journal.write("started", slot)
        try:
            outcome = run()
        except Exception as error:  # a failed night is one that the journal tells of
            return journal.write("ended", slot, status="failed", error=f"{type(error).__name__}: {error}")
        gate = outcome.gate
        return journal.write(
            "ended",
            slot,
            status=outcome.status,
            run_id=outcome.run_id,
            gate=None if gate is None else gate.counts(),
            exit_code=None if gate is None else gate.exit_code,
            notified=[_notify(command, gate)] if command and gate is not None and gate.exit_code else [],
        )
    finally:
        lock.release()


def _run(audit: Audit, baseline: str | None, on_line: Callable[[str], None]) -> RunOutcome:
    """Run the audit, write its report, check it against the baseline."""
    result = asyncio.run(run_audit(audit, baseline=None if audit.until is None else baseline))
    if not (audit.out / "trend.html").exists():
        _draw_trend(audit, on_line)  # so that the first report can already link to it
    if not result.is_unloaded:
        write_report(result, audit.out)
    status = "interrupted" if result.interrupted else "done" if result.complete else "incomplete"
    if baseline is None or result.interrupted:
        return RunOutcome(result.run_id, status)
    with Store.open(audit.db) as store:  # the night is recorded there
        return RunOutcome(result.run_id, status, gate_run(store, result.run_id, baseline))


def _notify(command: Sequence[str], gate: GateReport) -> str:
    """Call the user's command. Returns how it ended, or why it failed."""
    try:
        ended = subprocess.run(
            command, input=gate_json(gate), text=True, timeout=_COMMAND_SECONDS, check=False, capture_output=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"command failed: {error}"
    return f"command: exit code {ended.returncode}"


def read_history(store: Store, db: Path, title: str | None = None, *, details: bool = False) -> History:
    """The history of a store, with the gaps that its schedule's journal records."""
    gaps = absences(store, Journal(Journal.path_beside(db)).entries(), title)
    found = history(stored_results(store, title), gaps, details=details)
    return found.model_copy(update={"checks": gate_checks(store, found.runs)})


def _draw_trend(audit: Audit, on_line: Callable[[str], None]) -> None:
    """Draw the trend page of the audit's runs. A failure is told, and the run counts all the same."""
    try:
        if audit.db.exists():
            with Store.open(audit.db, read_only=True) as store:
                found = read_history(store, audit.db, audit.title)
            write_trend(found, audit.out / "trend.html", title=audit.title)
    except Exception as error:
        on_line(f"The trend page could not be written: {type(error).__name__}: {error}")


def _check_baseline(db: Path, baseline: str) -> None:
    if Path(baseline).is_file():
        return
    if not db.exists():
        hint = "Run the audit once, then `audit baseline save`; or give a report.json"
        raise ConfigError("--baseline", baseline, f"there is no store {db} yet", hint)
    with Store.open(db, read_only=True) as store:
        find_baseline(store, baseline)


def _command(given: str, baseline: str | None) -> list[str]:
    """The words of a command, which must be there to be called."""
    if baseline is None:
        raise ConfigError("--on-regression", given, "there is no gate that could fail", "Give --baseline too")
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise ConfigError("--on-regression", given, str(error), "Fix its quotes") from None
    if not words or shutil.which(words[0]) is None:
        raise ConfigError("--on-regression", given, "no such program", "Give a program and its arguments")
    return words

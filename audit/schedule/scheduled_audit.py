"""What happens at a slot: reload the config, run it, write its report, check it against a baseline, draw the trend.

The other modules of this folder handle times, locks and the journal; this one handles audits.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import httpx

from audit import Audit, load_audit
from audit.analysis.gate.stored import find_baseline, gate_run
from audit.analysis.history import History, absences, history, stored_results, with_sequences
from audit.collect.shutdown import INTERRUPTED, ShutdownRequest
from audit.report import write_report, write_trend
from audit.results import AuditResult
from audit.run import run_audit
from audit.schedule.cron import Schedule
from audit.schedule.journal import Journal, now, outcome_line
from audit.schedule.slots import RunOutcome, Slots
from audit.store import Store
from backends.errors import ConfigError


class ScheduledAudit:
    """An audit that is run on a schedule.

    Parameters
    ----------
    config : Path
        Read again at every slot, so that edits take effect at the next one.
    baseline : str, optional
        The run to compare with: see `audit.analysis.gate.stored.find_baseline`.
    on_line : callable
        Called with one line of text for each outcome.

    Raises
    ------
    ConfigError
        If the config or the baseline is invalid now.
    """

    def __init__(self, config: Path, *, baseline: str | None, on_line: Callable[[str], None]) -> None:
        self._config, self._baseline, self._on_line = config, baseline, on_line
        self._audit = load_audit(config)
        self._audit.check()
        if baseline is not None:
            self._check_baseline(self._audit.db, baseline)
        self._stop: tuple[asyncio.AbstractEventLoop, ShutdownRequest] | None = None
        self._interrupted = False

    def slots(self, command: str | None = None, webhook: str | None = None) -> Slots:
        """The slots of this audit, with a journal beside the store.

        Raises
        ------
        ConfigError
            If ``command`` or ``webhook`` cannot be used, or there is no baseline, hence no gate.
        """
        if command is not None:
            _check_command(command)
        if webhook is not None and httpx.URL(webhook).scheme not in ("http", "https"):
            raise ConfigError("--webhook", webhook, "not a URL", "Give one that begins with https://")
        if (command or webhook) and self._baseline is None:
            option = "--on-regression" if command else "--webhook"
            raise ConfigError(option, command or webhook, "there is no gate that could fail", "Give --baseline too")
        journal = Journal(Journal.path_beside(self._audit.db), self._on_entry)
        return Slots(self.run, journal, command=command, webhook=webhook)

    def run(self) -> RunOutcome:
        """Load the config, run it, write its report, check it against the baseline."""
        self._audit = audit = load_audit(self._config)
        result = asyncio.run(self._run(audit))
        if not (audit.out / "trend.html").exists():
            self._draw_trend()  # so that the first report can already link to it
        if not result.is_cut_off and not result.is_unloaded:
            write_report(result, audit.out)
        status = "interrupted" if result.interrupted else "done" if result.complete else "incomplete"
        if self._baseline is None or result.interrupted:
            return RunOutcome(result.run_id, status)
        with Store.open(audit.db) as store:  # the night is recorded there
            return RunOutcome(result.run_id, status, gate_run(store, result.run_id, self._baseline))

    def interrupt(self, reason: str) -> None:
        """End the current run early; its answers are stored. Later runs ask nothing."""
        self._interrupted = True
        if self._stop is not None:
            loop, stop = self._stop
            with contextlib.suppress(RuntimeError):  # the run has ended
                loop.call_soon_threadsafe(stop.request, reason)

    def exit_now(self) -> NoReturn:
        """Exit with 130 without waiting for the current run, which counts as interrupted."""
        _, stop = self._stop or (None, ShutdownRequest())
        stop.exit_now()

    async def _run(self, audit: Audit) -> AuditResult:
        stop = ShutdownRequest()
        self._stop = (asyncio.get_running_loop(), stop)
        try:
            if self._interrupted:  # before this line, after the slot had started
                stop.request("interrupted")
            baseline = None if audit.until is None else self._baseline
            return await run_audit(audit, baseline=baseline, stop=stop)
        finally:
            self._stop = None

    def _on_entry(self, entry: dict[str, Any]) -> None:
        """Report an outcome, and redraw the trend."""
        if entry["event"] != "started":
            self._on_line(outcome_line(entry))
            self._draw_trend()

    def _draw_trend(self) -> None:
        """Draw the trend page. A failure is reported, and the schedule continues."""
        try:
            update_trend(self._audit)
        except Exception as error:
            self._on_line(f"The trend page could not be written: {type(error).__name__}: {error}")

    @staticmethod
    def _check_baseline(db: Path, baseline: str) -> None:
        if Path(baseline).is_file():
            return
        if not db.exists():
            hint = "Run the audit once, then `audit baseline save`; or give a report.json"
            raise ConfigError("--baseline", baseline, f"there is no store {db} yet", hint)
        with Store.open(db, read_only=True) as store:
            find_baseline(store, baseline)


def serve(audit: ScheduledAudit, schedule: Schedule) -> int:
    """Serve until SIGINT or SIGTERM, then end the current run and return the exit code.

    A second signal exits immediately: the slot counts as killed, its run as interrupted, and its answers are kept.
    Call it in the main thread.
    """
    stopping = threading.Thread(target=schedule.stop)

    def handle(number: int, _frame: object) -> None:
        if stopping.ident is not None:
            audit.exit_now()
        # In a thread: the interrupted code may hold locks that stopping needs.
        stopping.start()
        audit.interrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        schedule.serve()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    stopping.join()
    return INTERRUPTED


def run_once(slots: Slots) -> int:
    """Run one slot now. Returns the exit code: 0 done, 1 not run or incomplete, 3 regressed, 130 interrupted."""
    slots.record_killed()
    entry = slots.run_slot(now())
    if entry.get("status") == "interrupted":
        return INTERRUPTED
    if entry.get("exit_code"):
        return int(entry["exit_code"])
    return 0 if entry.get("status") == "done" else 1


def read_history(store: Store, db: Path, title: str | None = None, *, details: bool = False) -> History:
    """The history of a store, with the gaps that its schedule's journal records."""
    gaps = absences(store, Journal(Journal.path_beside(db)).entries(), title)
    return with_sequences(history(stored_results(store, title), gaps, details=details), store)


def update_trend(audit: Audit) -> Path | None:
    """Redraw the trend page of the audit's runs. Returns its path, or None if there is no store."""
    if not audit.db.exists():
        return None
    with Store.open(audit.db, read_only=True) as store:
        found = read_history(store, audit.db, audit.title)
    return write_trend(found, audit.out / "trend.html", title=audit.title)


def _check_command(command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError("--on-regression", command, str(error), "Fix its quotes") from None
    if not words or shutil.which(words[0]) is None:
        raise ConfigError("--on-regression", command, "no such program", "Give a program and its arguments")

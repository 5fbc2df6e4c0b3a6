"""Slots of a schedule: run the audit once, record the outcome, send notifications of a regression."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
from filelock import Timeout

from audit.analysis.gate.results import GateReport
from audit.report.exports import gate_json
from audit.schedule.journal import Journal

_WEBHOOK_TIMEOUT = 30.0
_COMMAND_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a scheduled run ended: ``status`` as in the store, and the gate's report if one was applied."""

    run_id: str
    status: str
    gate: GateReport | None = None


class Slots:
    """Runs an audit for one slot after another, each under the lock and with its outcome recorded.

    Parameters
    ----------
    run : callable
        Runs the audit and its gate once. An exception is recorded in the journal.
    journal : Journal
        Records each slot's outcome. The lock file lies beside it.
    command : str, optional
        Called without a shell when a gate fails, with the gate's report (JSON) on its standard input.
    webhook : str, optional
        URL to which the same report is posted.
    """

    def __init__(
        self,
        run: Callable[[], RunOutcome],
        journal: Journal,
        *,
        command: str | None = None,
        webhook: str | None = None,
    ) -> None:
        self._run, self.journal = run, journal
        self._command = shlex.split(command) if command else None
        self._webhook = webhook
        self._lock = journal.lock(".lock")

    def run_slot(self, slot: datetime) -> dict[str, Any]:
        """Run the audit for one slot, unless another process does. Returns the journal's entry of its outcome."""
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            return self.journal.write("busy", slot, error="another process is running this audit")
        try:
            self.journal.write("started", slot)
            try:
                outcome = self._run()
            except Exception as error:  # a failed night must not end the schedule
                return self.journal.write("ended", slot, status="failed", error=f"{type(error).__name__}: {error}")
            gate = outcome.gate
            return self.journal.write(
                "ended",
                slot,
                status=outcome.status,
                run_id=outcome.run_id,
                gate=None if gate is None else gate.counts(),
                exit_code=None if gate is None else gate.exit_code,
                notified=self._notify(gate) if gate is not None and gate.exit_code else [],
            )
        finally:
            self._lock.release()

    def record_killed(self) -> int:
        """Record the slots whose process was killed during the run. Returns how many."""
        try:
            with self._lock.acquire(blocking=False):  # so that two processes do not record the same slot
                killed = self.journal.unfinished()
                for slot in killed:
                    self.journal.write("killed", slot, error="its process ended before the run did")
                return len(killed)
        except Timeout:  # the run of the last slot has not ended
            return 0

    def _notify(self, gate: GateReport) -> list[str]:
        """Call the user's command and webhook. Returns their replies, or why they failed."""
        replies = []
        report = gate_json(gate)
        if self._command is not None:
            try:
                finished = subprocess.run(
                    self._command, input=report, text=True, timeout=_COMMAND_TIMEOUT, check=False, capture_output=True
                )
                replies.append(f"command: exit code {finished.returncode}")
            except (OSError, subprocess.SubprocessError) as error:
                replies.append(f"command failed: {error}")
        if self._webhook is not None:
            try:
                answer = httpx.post(
                    self._webhook,
                    content=report,
                    headers={"content-type": "application/json"},
                    timeout=_WEBHOOK_TIMEOUT,
                )
                replies.append(f"webhook: {answer.status_code}")
            except httpx.HTTPError as error:
                replies.append(f"webhook failed: {type(error).__name__}")
        return replies

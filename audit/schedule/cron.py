"""Audits at set times: one at a time, none forgotten, each run's outcome kept.

APScheduler says when. A lock file beside the store lets one run go on at a time, over all
processes. Every slot leaves a line in a journal: when it started, how it ended, what the gate
said. A slot that passed while nobody was there (the machine was off, the process was killed, the
run before took too long) is caught up once or skipped, as the user chose.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, EVENT_SCHEDULER_STARTED
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers import SchedulerNotRunningError
from apscheduler.schedulers.blocking import BlockingScheduler
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from filelock import FileLock, Timeout

from audit.analysis.gate_results import GateReport
from audit.report.gate import gate_json
from backends.errors import ConfigError

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_GRACE = 1  # seconds a slot may start late and still be on time
_WEBHOOK_TIMEOUT = 30.0
_COMMAND_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a scheduled run ended: ``status`` as in the store, and the gate's report if one was applied."""

    run_id: str
    status: str
    gate: GateReport | None = None


class _OncePerWallTime(OrTrigger):  # type: ignore[misc]
    """Leaves out the times that come again when clocks go back: they were slots an hour before."""

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        slot: datetime | None = super().get_next_fire_time(previous_fire_time, now)
        # APScheduler may leave `fold` on a time of which there is one only; by way of UTC it is right.
        while slot is not None and slot.astimezone(UTC).astimezone(slot.tzinfo).fold:
            slot = super().get_next_fire_time(slot, slot)
        return slot


def cron_trigger(cron: str) -> OrTrigger:
    """The times of a crontab expression, in local time.

    Five fields: minute, hour, day, month, day of week (0 and 7 are Sunday, as in cron; APScheduler
    alone would take 0 for Monday). Six fields: seconds first. As in cron, where both day and day of
    week are named one of them is enough, and what is not of every hour or minute comes once when clocks go back.

    Raises
    ------
    ConfigError
        When it cannot be read.
    """
    fields = cron.split()
    if len(fields) not in (5, 6):
        raise ConfigError("--cron", cron, f"{len(fields)} fields", 'Give five, e.g. "0 3 * * *", or seconds first')
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ["0", *fields]
    days: list[dict[str, str]]
    try:
        if day.startswith("*") or weekday.startswith("*"):
            days = [{"day": day, "day_of_week": _weekdays(weekday)}]
        else:
            days = [{"day": day}, {"day_of_week": _weekdays(weekday)}]
        times = [CronTrigger(second=second, minute=minute, hour=hour, month=month, **some) for some in days]
        return (OrTrigger if "*" in (minute[:1], hour[:1]) else _OncePerWallTime)(times)
    except ValueError as error:
        raise ConfigError("--cron", cron, str(error), 'Write it as in crontab, e.g. "0 3 * * 1-5"') from None


def _weekdays(field: str) -> str:
    """Cron's days of the week as names, which mean the same to everyone."""
    days: list[str] = []
    for part in field.lower().split(","):
        match = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?", part)
        if match is None:
            raise ValueError(f"cannot read the day of week {part!r}")
        every, first, last, step = match.groups()
        if every:
            start, end = 0, 6
        else:
            start = _day(first)
            end = _day(last) if last else (6 if step else start)
        if last in ("7", "sun") or end < start:
            end += 7
        days += [_DAYS[day % 7] for day in range(start, end + 1, int(step or 1))]
    return ",".join(dict.fromkeys(days))


def _day(name: str) -> int:
    if name in _DAYS:
        return _DAYS.index(name)
    if name.isdigit() and int(name) <= 7:
        return int(name) % 7
    raise ValueError(f"no day of week {name!r}")


class Journal:
    """Every slot of a schedule and what became of it: JSON lines, each written through to the disk.

    An entry has ``slot`` (ISO time), ``event`` (``started``, ``ended``, ``missed``, ``busy``,
    ``killed``) and, for ``ended``, ``status``, ``run_id``, ``gate`` (counts of verdicts),
    ``exit_code``, ``error`` and ``notified``. ``on_entry`` is called with each entry once it is kept.
    """

    def __init__(self, path: Path, on_entry: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.path, self._on_entry = path, on_entry

    @classmethod
    def path_beside(cls, db: Path) -> Path:
        """Where the journal of a store's schedule lies. A store has one schedule."""
        return db.with_name(f"{db.stem}-schedule.jsonl")

    def write(self, event: str, slot: datetime, **details: Any) -> dict[str, Any]:
        """Append an entry, and return it."""
        entry = {"at": _now().isoformat(), "slot": slot.isoformat(), "event": event, **details}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            # A kill may have cut the last line off: it must not swallow this one.
            if file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) and file.read(1) != b"\n":
                file.write(b"\n")
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if self._on_entry is not None:
            self._on_entry(entry)
        return entry

    def entries(self) -> list[dict[str, Any]]:
        """All entries, oldest first. A last line that a kill cut off is left out."""
        if not self.path.exists():
            return []
        return list(_whole_lines(self.path.read_text("utf-8")))

    def unended(self) -> list[datetime]:
        """Slots that started and never ended: their process was killed."""
        open_slots: dict[str, None] = {}
        for entry in self.entries():
            if entry["event"] == "started":
                open_slots[entry["slot"]] = None
            elif entry["event"] in ("ended", "killed"):
                open_slots.pop(entry["slot"], None)
        return [datetime.fromisoformat(slot) for slot in open_slots]

    def last_slot(self) -> datetime | None:
        """The latest slot that has an entry."""
        slots = [datetime.fromisoformat(entry["slot"]) for entry in self.entries()]
        return max(slots, default=None)


def _whole_lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


class Slots:
    """Runs an audit for one slot after another, each under the lock and with its outcome kept.

    Parameters
    ----------
    run : callable
        Runs the audit and its gate once. What it raises is kept in the journal.
    journal : Journal
        Where each slot's outcome is kept. The lock file lies beside it.
    command : str, optional
        Called when a gate fails, without a shell; the gate's report is its standard input (JSON).
    webhook : str, optional
        URL that gets the same report by POST.
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
        self._lock = FileLock(journal.path.with_suffix(".lock"))

    def run_slot(self, slot: datetime) -> dict[str, Any]:
        """Run the audit for one slot, if no other process does. Returns the journal's entry of how it went."""
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

    def note_killed(self) -> int:
        """Note the slots whose process was killed in the run. Returns how many."""
        try:
            with self._lock.acquire(blocking=False):  # two that start together note each slot once
                killed = self.journal.unended()
                for slot in killed:
                    self.journal.write("killed", slot, error="its process ended before the run did")
                return len(killed)
        except Timeout:  # the run of the last slot is still on
            return 0

    def _notify(self, gate: GateReport) -> list[str]:
        """Call the user's command and webhook. What they answered, or why they could not be told."""
        told = []
        report = gate_json(gate)
        if self._command is not None:
            try:
                done = subprocess.run(
                    self._command, input=report, text=True, timeout=_COMMAND_TIMEOUT, check=False, capture_output=True
                )
                told.append(f"command: exit code {done.returncode}")
            except (OSError, subprocess.SubprocessError) as error:
                told.append(f"command failed: {error}")
        if self._webhook is not None:
            try:
                answer = httpx.post(
                    self._webhook,
                    content=report,
                    headers={"content-type": "application/json"},
                    timeout=_WEBHOOK_TIMEOUT,
                )
                told.append(f"webhook: {answer.status_code}")
            except httpx.HTTPError as error:
                told.append(f"webhook failed: {type(error).__name__}")
        return told


class Schedule:
    """Runs slots at the times of a crontab expression, until stopped.

    Parameters
    ----------
    cron : str
        See `cron_trigger`.
    slots : Slots
        What is run. A run that fails does not end the schedule.
    missed : str
        ``run``: slots that passed meanwhile are caught up, once for all of them. ``skip``: they are
        only noted.

    A store has one schedule: its journal tells which slots were missed, and two schedules would take each
    other's slots for their own. A second one is refused; give it a store of its own.

    Raises
    ------
    ConfigError
        When ``cron`` or ``missed`` cannot be read.
    """

    def __init__(self, cron: str, slots: Slots, *, missed: str = "run") -> None:
        if missed not in ("run", "skip"):
            raise ConfigError("--missed", missed, "unknown", "Use run or skip")
        self.trigger = cron_trigger(cron)
        self._slots, self._missed = slots, missed
        self._serving = FileLock(slots.journal.path.with_suffix(".serving"))
        # One worker: a slot that comes while a run is on waits in its queue, and is then late.
        self._scheduler = BlockingScheduler(executors={"default": ThreadPoolExecutor(1)}, timezone=UTC)
        self._scheduler.add_listener(self._on_missed, EVENT_JOB_MISSED)
        self._scheduler.add_listener(self._on_busy, EVENT_JOB_MAX_INSTANCES)
        self._scheduler.add_listener(self._on_start, EVENT_SCHEDULER_STARTED)
        self._stopping = False

    def serve(self) -> None:
        """Run at every slot until `stop`. Slots missed before are handled first.

        Raises
        ------
        ConfigError
            When another schedule serves this store already.
        """
        try:
            self._serving.acquire(blocking=False)
        except Timeout:
            hint = "Stop that one, or give this audit a store of its own"
            journal = str(self._slots.journal.path)
            raise ConfigError("db", journal, "another schedule serves this store", hint) from None
        try:
            self._serve()
        finally:
            self._serving.release()

    def _serve(self) -> None:
        now = _now()
        if self._passed_slots(now) and self._missed == "run":
            self._scheduler.add_job(self._run_slot, args=[now], misfire_grace_time=None)
        self._scheduler.add_job(
            self._run_now,
            self.trigger,
            coalesce=True,
            max_instances=2,  # the one that runs, and one that waits to catch up
            misfire_grace_time=None if self._missed == "run" else _GRACE,
        )
        self._scheduler.start()

    def stop(self) -> None:
        """Stop, and return once the run that is on has ended. Callable from any thread but the run's own."""
        self._stopping = True
        if self._scheduler.running:
            with contextlib.suppress(SchedulerNotRunningError):  # stopped meanwhile
                self._scheduler.shutdown()

    def _run_slot(self, slot: datetime) -> None:
        if not self._stopping:  # else it waited while the last run went on
            self._slots.run_slot(slot)

    def _run_now(self) -> None:
        self._run_slot(_now())

    def _passed_slots(self, now: datetime) -> int:
        """Note the slots that passed while nobody was there. Returns how many there are to catch up."""
        count = self._slots.note_killed()
        last = self._slots.journal.last_slot()
        if last is None:
            return count
        slot = self.trigger.get_next_fire_time(last, last)
        first = slot if slot is not None and slot <= now else None
        passed = 0
        while slot is not None and slot <= now and passed < 10_000:
            passed += 1
            slot = self.trigger.get_next_fire_time(slot, slot)
        if first is not None:
            action = "caught up by one run" if self._missed == "run" else "skipped"
            self._slots.journal.write("missed", now, slots=passed, first=first.isoformat(), action=action)
        return count + passed

    def _on_start(self, _event: Any) -> None:
        if self._stopping:  # asked to, before there was anything to stop
            self._scheduler.shutdown()

    def _on_missed(self, event: Any) -> None:
        self._slots.journal.write("missed", event.scheduled_run_time, slots=1, action="skipped")

    def _on_busy(self, event: Any) -> None:
        for slot in event.scheduled_run_times:
            self._slots.journal.write("busy", slot, error="the run before is still on, and one waits already")


def _now() -> datetime:
    return datetime.now(UTC)

"""Audits at set times, one at a time.

APScheduler provides the times. A lock file beside the store prevents concurrent runs, across all processes. Missed
slots (the machine was off, the process was killed, the previous run took too long) are caught up by one run, or
skipped, as the user chose.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime
from typing import Any

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, EVENT_SCHEDULER_STARTED
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers import SchedulerNotRunningError
from apscheduler.schedulers.blocking import BlockingScheduler
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from filelock import Timeout

from audit.schedule.journal import now
from audit.schedule.slots import Slots
from backends.errors import ConfigError

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_GRACE = 1  # seconds a slot may start late and still be on time


class _OncePerWallTime(OrTrigger):  # type: ignore[misc]
    """Skips the second occurrence of times that occur twice when clocks go back."""

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        slot: datetime | None = super().get_next_fire_time(previous_fire_time, now)
        # APScheduler may leave `fold` set on a time that occurs only once; the conversion via UTC corrects it.
        while slot is not None and slot.astimezone(UTC).astimezone(slot.tzinfo).fold:
            slot = super().get_next_fire_time(slot, slot)
        return slot


def cron_trigger(cron: str) -> OrTrigger:
    """The times of a crontab expression, in local time.

    Five fields: minute, hour, day, month, day of week (0 and 7 are Sunday, as in cron; APScheduler alone would take 0
    for Monday). Six fields: seconds first. As in cron, if both day and day of week are given, either is enough; and
    when clocks go back, a time with a fixed hour and minute comes once.

    Raises
    ------
    ConfigError
        If the expression is invalid.
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
    """Cron's days of the week as names, which are unambiguous."""
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


class Schedule:
    """Runs slots at the times of a crontab expression, until stopped.

    Parameters
    ----------
    cron : str
        See `cron_trigger`.
    slots : Slots
        Runs the audit for each slot. A failed run does not end the schedule.
    missed : str
        ``run``: missed slots are caught up by one run. ``skip``: they are only recorded.

    A store can have only one schedule: its journal shows which slots were missed, and two schedules would mistake each
    other's slots for their own. A second schedule is refused, and needs a store of its own.

    Raises
    ------
    ConfigError
        If ``cron`` or ``missed`` is invalid.
    """

    def __init__(self, cron: str, slots: Slots, *, missed: str = "run") -> None:
        if missed not in ("run", "skip"):
            raise ConfigError("--missed", missed, "unknown", "Use run or skip")
        self.trigger = cron_trigger(cron)
        self._slots, self._missed = slots, missed
        self._serving = slots.journal.lock(".serving")
        # One worker: a slot that comes during a run waits in its queue, and is then late.
        self._scheduler = BlockingScheduler(executors={"default": ThreadPoolExecutor(1)}, timezone=UTC)
        self._scheduler.add_listener(self._on_missed, EVENT_JOB_MISSED)
        self._scheduler.add_listener(self._on_busy, EVENT_JOB_MAX_INSTANCES)
        self._scheduler.add_listener(self._on_start, EVENT_SCHEDULER_STARTED)
        self._stopping = False

    def serve(self) -> None:
        """Run at every slot until `stop`. Slots missed so far are handled first.

        Raises
        ------
        ConfigError
            If another schedule already serves this store.
        """
        try:
            self._serving.acquire(blocking=False)
        except Timeout:
            hint = "Stop that one, or give this audit a store of its own"
            journal = str(self._slots.journal.path)
            raise ConfigError("db", journal, "another schedule already uses this store", hint) from None
        try:
            self._serve()
        finally:
            self._serving.release()

    def _serve(self) -> None:
        start = now()
        if self._record_missed(start) and self._missed == "run":
            self._scheduler.add_job(self._run_slot, args=[start], misfire_grace_time=None)
        self._scheduler.add_job(
            self._run_now,
            self.trigger,
            coalesce=True,
            max_instances=2,  # the current one, and one that waits to catch up
            misfire_grace_time=None if self._missed == "run" else _GRACE,
        )
        self._scheduler.start()

    def stop(self) -> None:
        """Stop, and return once the current run has ended. May be called from any thread except the run's own."""
        self._stopping = True
        if self._scheduler.running:
            with contextlib.suppress(SchedulerNotRunningError):  # stopped in the meantime
                self._scheduler.shutdown()

    def _run_slot(self, slot: datetime) -> None:
        if not self._stopping:  # a slot may have been waiting for the last run to end
            self._slots.run_slot(slot)

    def _run_now(self) -> None:
        self._run_slot(now())

    def _record_missed(self, now: datetime) -> int:
        """Record the slots missed while not running. Returns how many there are to catch up."""
        count = self._slots.record_killed()
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
        if self._stopping:  # stop was requested before the scheduler started
            self._scheduler.shutdown()

    def _on_missed(self, event: Any) -> None:
        self._slots.journal.write("missed", event.scheduled_run_time, slots=1, action="skipped")

    def _on_busy(self, event: Any) -> None:
        for slot in event.scheduled_run_times:
            self._slots.journal.write("busy", slot, error="the previous run has not ended, and one more is waiting")

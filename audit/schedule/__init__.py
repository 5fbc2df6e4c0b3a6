"""Audits at set times: when they run, one at a time, and a journal of their outcomes.

Takes a config and a crontab expression, runs the audit at each slot (a time at which it is due), checks it against a
baseline, notifies of a regression and keeps the trend page up to date. `scheduled_audit` is imported directly: it
loads the whole engine.
"""

from __future__ import annotations

from audit.schedule.cron import Schedule
from audit.schedule.journal import Journal
from audit.schedule.slots import RunOutcome, Slots

__all__ = ["Journal", "RunOutcome", "Schedule", "Slots"]

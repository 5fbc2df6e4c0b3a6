"""Audits at set times: the schedule, one run at a time, and a journal of the outcomes.

Takes a config and a crontab expression, runs the audit at each slot (a time at which it is due), checks it against a
baseline, reports regressions and keeps the trend page up to date. Import `scheduled_audit` directly: it loads the
whole engine.
"""

from __future__ import annotations

from audit.schedule.cron import Schedule

__all__ = ["Schedule"]

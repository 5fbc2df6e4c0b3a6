"""Scheduled audits: one run at a time, a journal of the outcomes, a command when something regressed.

Cron, systemd or a hosted CI know the time and what to do about one that was missed: see ``examples/schedules``. Import
`scheduled_audit` directly: it loads the whole engine.
"""

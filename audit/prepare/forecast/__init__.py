"""What a run would take, and what it could find.

Takes a config and the store; gives requests, tokens, time and cost (`estimate`), and the differences that items detect
(`planning`). Asks no model.
"""

from __future__ import annotations

from audit.prepare.forecast.estimate import dry_run_audit
from audit.prepare.forecast.planning import plan_audit, sample_power

__all__ = ["dry_run_audit", "plan_audit", "sample_power"]

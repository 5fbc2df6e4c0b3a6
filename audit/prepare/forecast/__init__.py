"""What a run would take, and what it could find.

Takes a config and the store; gives requests, tokens, time and cost (`estimate`), the sizes that detect a difference
(`planning`), the draws that an interval takes (`draw_allocation`), and the difference that the items at hand detect
(`sample_power`). Asks no model.
"""

from __future__ import annotations

from audit.prepare.forecast.draw_allocation import allocate_draws
from audit.prepare.forecast.estimate import dry_run_audit
from audit.prepare.forecast.planning import plan_audit
from audit.prepare.forecast.sample_power import sample_power

__all__ = ["allocate_draws", "dry_run_audit", "plan_audit", "sample_power"]

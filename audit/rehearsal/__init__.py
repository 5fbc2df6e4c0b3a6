"""A rehearsal: an audit's suites on made-up answers, before any model is asked.

Takes a checked config; gives the mistakes that would show only after the model time is spent, and how often a planted
bias is found again. Loads no model.
"""

from audit.rehearsal.check import SuiteCheck, check_audit, check_items, refuse_mistakes
from audit.rehearsal.recovery import Recovery

__all__ = ["Recovery", "SuiteCheck", "check_audit", "check_items", "refuse_mistakes"]

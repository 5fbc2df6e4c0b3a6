"""The rehearsal: an audit's suites on made-up answers, before any model is asked.

Takes a checked config; returns mistakes that would otherwise surface only after the models have been paid for, and
how often a planted bias is recovered. Loads no model.
"""

from audit.prepare.rehearsal.boundaries import BoundaryCheck
from audit.prepare.rehearsal.check import SuiteCheck, check_audit, refuse_mistakes, tokenizer_checks
from audit.prepare.rehearsal.recovery import Recovery

__all__ = [
    "BoundaryCheck",
    "Recovery",
    "SuiteCheck",
    "check_audit",
    "refuse_mistakes",
    "tokenizer_checks",
]

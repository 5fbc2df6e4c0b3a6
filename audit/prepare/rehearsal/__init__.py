"""The rehearsal: an audit's suites on planted answers, before any model is asked.

Takes a checked config; returns mistakes that would otherwise surface only after the models have been paid for, and
whether a planted bias is found. Loads no model.
"""

from audit.prepare.rehearsal.boundaries import BoundaryCheck
from audit.prepare.rehearsal.check import SuiteCheck, check_audit, refuse_mistakes, tokenizer_checks

__all__ = [
    "BoundaryCheck",
    "SuiteCheck",
    "check_audit",
    "refuse_mistakes",
    "tokenizer_checks",
]

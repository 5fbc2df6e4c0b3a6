"""All sentences that people read: findings, comparisons and gate decisions, from figures to plain English.

Takes values of `audit.results` and `audit.analysis`, gives text; computes no figure.
"""

from audit.report.phrases.comparisons import with_words
from audit.report.phrases.findings import Sentence, asked, suite_summary, summary
from audit.report.phrases.gate import gate_outcome

__all__ = ["Sentence", "asked", "gate_outcome", "suite_summary", "summary", "with_words"]

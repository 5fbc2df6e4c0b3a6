"""All sentences that people read: findings, comparisons and gate decisions, from figures to plain English.

Takes values of `audit.results` and `audit.analysis`, gives text; computes no figure.
"""

from audit.report.phrases.findings import Sentence, asked, suite_summary, summary, within_noise

__all__ = ["Sentence", "asked", "suite_summary", "summary", "within_noise"]

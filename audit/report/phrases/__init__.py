"""All sentences that people read: findings, comparisons, gate decisions and forecasts, from values to plain English.

Takes values of `audit.results`, `audit.analysis` and `audit.prepare`, gives text; computes no figure.
"""

from audit.report.phrases.checks.gate import gate_outcome
from audit.report.phrases.checks.limits import limit_lines, limits_overview
from audit.report.phrases.checks.problems import problems_of
from audit.report.phrases.findings.cautions import is_weak, prompts_below
from audit.report.phrases.findings.comparisons import describe, interval_behind
from audit.report.phrases.findings.example import answer_line, asked
from audit.report.phrases.findings.first_page import (
    EVIDENCE_NOT_CONFORMITY,
    first_rows,
    plain_rows,
    plain_sentence,
    remark_on,
    stands_alone,
)
from audit.report.phrases.findings.pairs import PAIR_SENTENCES, comparison_rows
from audit.report.phrases.findings.summary import HEADINGS, scope, suite_summary, summary
from audit.report.phrases.findings.verdict import verdict
from audit.report.phrases.next_steps import next_steps
from audit.report.phrases.trend import absence_line, changed_notes, gate_lines, trend_scope

__all__ = [
    "EVIDENCE_NOT_CONFORMITY",
    "HEADINGS",
    "PAIR_SENTENCES",
    "absence_line",
    "answer_line",
    "asked",
    "changed_notes",
    "comparison_rows",
    "describe",
    "first_rows",
    "gate_lines",
    "gate_outcome",
    "interval_behind",
    "is_weak",
    "limit_lines",
    "limits_overview",
    "next_steps",
    "plain_rows",
    "plain_sentence",
    "problems_of",
    "prompts_below",
    "remark_on",
    "scope",
    "stands_alone",
    "suite_summary",
    "summary",
    "trend_scope",
    "verdict",
]

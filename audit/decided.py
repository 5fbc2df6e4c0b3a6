"""Whether a run has answered its question: what `until="decided"` asks after each look.

The question is the gate's, where there is a baseline or limits: did it get worse? It is answered as soon as one figure
regressed or one limit is broken, or when every figure is conclusive. Else it is how the models compare. A suite that
declares primary figures is asked about these alone: the others have their say in the report, not in how long it takes.

The population is that of the fixed sample's decision: new items of these kinds, such as new occupations and templates.
All items asked give that decision itself, at the error that is left for the last look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from audit.analysis.gate.results import OPEN_VERDICTS, Check, GateReport
from audit.config import AuditConfig
from audit.results import AuditResult, Comparison, Measure
from backends.errors import ConfigError

Question = Literal["baseline", "limits", "comparison"]


def question_of(audit: AuditConfig, baseline: str | None) -> Question:
    """What the audit asks until it is decided.

    Raises
    ------
    ConfigError
        There is nothing to decide.
    """
    if baseline is not None:
        return "baseline"
    if audit.limits:
        return "limits"
    if len(audit.models) > 1:
        return "comparison"
    hint = "Give --baseline, limits in the config, or a second model"
    raise ConfigError("until", "decided", "one model alone leaves nothing to decide", hint)


def is_gate_decided(report: GateReport, result: AuditResult) -> bool:
    """Whether the gate fails whatever else is asked, or has conclusive checks only."""
    if any(check.decisive_verdict in ("regressed", "broken") for check in report.checks):
        return True
    comparable = [figure for figure in report.figures if figure.obstacle is None]
    primary = _primary(result)
    leading = [figure for figure in comparable if figure.figure.id in primary] or comparable
    checks: list[Check] = [*leading, *report.limits]
    return bool(checks) and all(check.decisive_verdict not in OPEN_VERDICTS for check in checks)


def is_comparison_decided(comparisons: Sequence[Comparison], result: AuditResult) -> bool:
    """Whether every pair of models is larger, smaller or equivalent in every figure that the question is about."""
    figures = [c for c in comparisons if not c.is_subgroup and c.verdict != "not comparable"]
    primary = {measure.figure.key[1:] for measure in _leading(result)}
    leading = [c for c in figures if c.figure.key[1:] in primary] or figures
    return bool(leading) and all(c.verdict != "inconclusive" for c in leading)


def _primary(result: AuditResult) -> set[str]:
    return {measure.id for measure in _leading(result)}


def _leading(result: AuditResult) -> list[Measure]:
    """The primary means. No correlation can be called unchanged or equivalent; of a mean, whether it can be depends on
    how many clusters the suite has."""
    return [measure for measure in result.measures if measure.spec.primary and measure.spec.estimator == "mean"]

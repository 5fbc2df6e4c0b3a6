"""When a run with `until="decided"` may stop: the rule that is applied after each interim look.

With a baseline or limits the question is the gate's: did the model get worse? It is answered once a figure regressed,
a limit is broken, or every figure is conclusive. Otherwise the question is how the models compare. If a suite declares
primary figures, only these decide when to stop; the others appear in the report all the same.

Decisions are about the same population as with a fixed sample: new items of these kinds, such as new occupations and
templates. A run that asks all items makes the fixed-sample decision, at the error left for the last look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from audit.analysis.gate.results import Check, GateReport
from audit.config import AuditConfig
from audit.results import OPEN_VERDICTS, AuditResult, Comparison, Measure
from backends.errors import ConfigError

StoppingQuestion = Literal["baseline", "limits", "comparison"]


def stopping_question(audit: AuditConfig, baseline: str | None) -> StoppingQuestion:
    """The question that ends the run once it is decided.

    Raises
    ------
    ConfigError
        If there is nothing to decide.
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
    """Whether the gate already fails, or all its checks are conclusive."""
    if any(check.decisive_verdict in ("regressed", "broken") for check in report.checks):
        return True
    comparable = [figure for figure in report.figures if figure.obstacle is None]
    primary = {measure.id for measure in _leading(result)}
    leading = [figure for figure in comparable if figure.figure.id in primary] or comparable
    checks: list[Check] = [*leading, *report.limits]
    return bool(checks) and all(check.decisive_verdict not in OPEN_VERDICTS for check in checks)


def is_comparison_decided(comparisons: Sequence[Comparison], result: AuditResult) -> bool:
    """Whether every comparison of a leading figure is conclusive: larger, smaller or equivalent."""
    figures = [c for c in comparisons if not c.is_subgroup and c.verdict != "not comparable"]
    primary = {measure.figure.key[1:] for measure in _leading(result)}
    leading = [c for c in figures if c.figure.key[1:] in primary] or figures
    return bool(leading) and all(c.verdict != "inconclusive" for c in leading)


def _leading(result: AuditResult) -> list[Measure]:
    """The primary means. Correlations are left out since they can never be called unchanged or equivalent."""
    return [measure for measure in result.measures if measure.spec.primary and measure.spec.estimator == "mean"]

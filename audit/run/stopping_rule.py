"""When a run with `until` may stop: the rule that is applied after each interim look.

With a baseline or limits the question is the gate's: did the model get worse? It is answered once a figure regressed,
a limit is broken, or every figure is conclusive. Otherwise the question is how the models compare. If a suite declares
primary figures, only these decide when to stop; the others appear in the report all the same. Each look spends a share
of the error (`audit.collect.sample`).

With `until` a number, the question is whether half of every primary mean's interval is within it. What is asked then
stops by the width of the intervals, which says nothing of where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from audit.config import AuditConfig
from audit.results import OPEN_VERDICTS, AuditResult, Check, Comparison, GateReport, Measure
from backends.errors import ConfigError

StoppingQuestion = Literal["baseline", "limits", "comparison", "precision"]


def stopping_question(audit: AuditConfig, baseline: str | None) -> StoppingQuestion:
    """The question that ends the run once it is decided.

    Raises
    ------
    ConfigError
        If there is nothing to decide.
    """
    if isinstance(audit.until, float):
        if baseline is not None:
            hint = "Give --until decided, or leave the baseline out"
            raise ConfigError("--baseline", baseline, f"--until {audit.until:g} compares with nothing", hint)
        return "precision"
    if baseline is not None:
        return "baseline"
    if audit.limits:
        return "limits"
    if len(audit.models) > 1:
        return "comparison"
    hint = "Give --baseline, limits in the config, or a second model"
    raise ConfigError("until", "decided", "one model alone leaves nothing to decide", hint)


def gate_answer(report: GateReport, result: AuditResult) -> bool:
    """Whether the gate already fails, or all its checks are conclusive."""
    if any(check.verdict in ("regressed", "broken") for check in report.checks):
        return True
    comparable = [figure for figure in report.figures if figure.obstacle is None]
    primary = {measure.id for measure in _leading(result)}
    leading = [figure for figure in comparable if figure.figure.id in primary] or comparable
    checks: list[Check] = [*leading, *report.limits]
    return bool(checks) and not any(check.verdict in OPEN_VERDICTS for check in checks)


def comparison_answer(comparisons: Sequence[Comparison], result: AuditResult) -> bool:
    """Whether every pair is larger, smaller or equivalent in every figure that the question is about."""
    absent = _absent(result)
    asked = [c for c in comparisons if not absent & {c.a, c.b}]
    figures = [c for c in asked if not c.is_subgroup and c.verdict != "not comparable"]
    primary = {measure.figure.key[1:] for measure in _leading(result)}
    leading = [c for c in figures if c.figure.key[1:] in primary] or figures
    return bool(leading) and not any(c.verdict == "inconclusive" for c in leading)


def precision_answer(within: float, result: AuditResult) -> bool:
    """Whether half of every primary mean's interval, whatever the missing answers were, is within ``within``."""
    ends = [(measure.low, measure.high) for measure in _leading(result)]
    return bool(ends) and all(low is not None and high is not None and high - low <= 2 * within for low, high in ends)


def _leading(result: AuditResult) -> list[Measure]:
    """The primary means. Correlations are left out: what other items would do to them has no bound."""
    means = [m for m in result.measures if m.spec.primary and m.spec.estimator == "mean"]
    absent = _absent(result)
    return [measure for measure in means if measure.model not in absent]


def _absent(result: AuditResult) -> set[str]:
    """Models that could not be loaded: what is never asked of them keeps no other model asking."""
    return {model.name for model in result.models if model.unloaded}

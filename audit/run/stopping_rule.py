"""When a run with `until` may stop: the rule that is applied after each interim look.

With a baseline or limits the question is the gate's: did the model get worse? It is answered once a figure regressed,
a limit is broken, or every figure is conclusive. Otherwise the question is how the models compare. If a suite declares
primary figures, only these decide when to stop; the others appear in the report all the same.

Decisions are about the same population as with a fixed sample: new items of these kinds, such as new occupations and
templates. A run that asks all items makes the fixed-sample decision, at the error left for the last look.

With `until` a number, the question is whether the sampling error of every primary mean is within it. What is asked
then stops by the width of the intervals, which says nothing of where they lie.

What was asked may be alike, and only the room for kinds of templates that were not asked leave the figure open. Items
of the same templates cannot change that: once all of a suite's levels are among those asked, the asking ends too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from audit.analysis.gate.results import Check, GatedFigure, GateReport
from audit.collect import levels_behind
from audit.config import AuditConfig
from audit.results import OPEN_VERDICTS, AuditResult, Comparison, Measure
from backends.errors import ConfigError
from suites.base import Item

StoppingQuestion = Literal["baseline", "limits", "comparison", "precision"]
#: How the asking may end early: decided, or alike in all that could be asked. None: it goes on.
StoppingAnswer = Literal["decided", "alike"]


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


def gate_answer(
    report: GateReport, result: AuditResult, whole: Mapping[str, Collection[Item]]
) -> StoppingAnswer | None:
    """Decided where the gate already fails, or all its checks are conclusive; ``whole``: all items by suite."""
    if any(check.decisive_verdict in ("regressed", "broken") for check in report.checks):
        return "decided"
    comparable = [figure for figure in report.figures if figure.obstacle is None]
    primary = {measure.id for measure in _leading(result)}
    leading = [figure for figure in comparable if figure.figure.id in primary] or comparable
    checks: list[Check] = [*leading, *report.limits]
    is_open = [check for check in checks if check.decisive_verdict in OPEN_VERDICTS]
    return _answer(checks, is_open, result, whole)


def comparison_answer(
    comparisons: Sequence[Comparison], result: AuditResult, whole: Mapping[str, Collection[Item]]
) -> StoppingAnswer | None:
    """Decided where every pair is larger, smaller or equivalent in every figure that the question is about."""
    figures = [c for c in comparisons if not c.is_subgroup and c.verdict != "not comparable"]
    primary = {measure.figure.key[1:] for measure in _leading(result)}
    leading = [c for c in figures if c.figure.key[1:] in primary] or figures
    return _answer(leading, [c for c in leading if c.verdict == "inconclusive"], result, whole)


def precision_answer(within: float, result: AuditResult) -> StoppingAnswer | None:
    """Decided where the sampling error of every primary mean is within ``within``, whatever missing answers were."""
    ends = [(measure.sampling_low, measure.sampling_high) for measure in _leading(result)]
    is_known = [low is not None and high is not None and high - low <= 2 * within for low, high in ends]
    return "decided" if is_known and all(is_known) else None


def _answer(
    asked: Collection[object],
    still_open: Iterable[Check | Comparison],
    result: AuditResult,
    whole: Mapping[str, Collection[Item]],
) -> StoppingAnswer | None:
    is_alike = [_is_alike_in_all(one, result, whole) for one in still_open]
    if not asked or not all(is_alike):
        return None
    return "alike" if is_alike else "decided"


def _is_alike_in_all(one: Check | Comparison, result: AuditResult, whole: Mapping[str, Collection[Item]]) -> bool:
    """Whether what was asked is alike and further items would bring no further levels."""
    if not isinstance(one, GatedFigure | Comparison):
        return False
    figure = (one.over_nights or one) if isinstance(one, GatedFigure) else one
    specs = (m.spec for m in result.measures if m.figure.key[1:] == one.figure.key[1:] and m.suite == one.suite)
    spec = next(specs, None)
    if figure.open_because != "kinds not asked" or spec is None:
        return False
    available = levels_behind(whole[one.suite], spec)
    return all(n >= available.get(factor, n) for factor, n in one.levels.items())


def _leading(result: AuditResult) -> list[Measure]:
    """The primary means. Correlations are left out since they can never be called unchanged or equivalent."""
    return [measure for measure in result.measures if measure.spec.primary and measure.spec.estimator == "mean"]

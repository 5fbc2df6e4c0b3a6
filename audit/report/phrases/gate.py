"""A gate and the config's limits in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from audit.report.formatting import distinct_decimals, factor_label, measure_label, number, where_label
from audit.report.plain_text import one_line
from audit.report.templating import words
from audit.results import (
    OPEN_VERDICTS,
    AuditResult,
    Check,
    GatedFigure,
    GateReport,
    LimitCheck,
    LimitVerdict,
    SuiteInfo,
)

#: The most pressing first.
_WORDS: Mapping[LimitVerdict, str] = {"broken": "Broken", "insufficient evidence": "Not decided", "met": "Met"}


def gate_outcome(failed: bool, verdicts: Collection[str]) -> str:
    """The outcome of a gate. One without a conclusive check has not passed."""
    if failed:
        return "failed"
    return "without conclusive checks" if set(verdicts) <= set(OPEN_VERDICTS) else "passed"


def gate_summary(report: GateReport, *, code: str = "") -> tuple[str, str]:
    """The outcome, and which runs were compared with how many checks of each verdict; ``code`` surrounds run ids."""
    still_open = sum(check.verdict in OPEN_VERDICTS for check in report.checks)
    outcome = gate_outcome(bool(report.exit_code), report.counts())
    baseline = None if report.baseline_run_id is None else f"{code}{report.baseline_run_id}{code}"
    return (
        words("gate", "heading", outcome, len(report.checks), len(report.failures), still_open),
        words("gate", "counted", f"{code}{report.run_id}{code}", baseline, report.counts()),
    )


def check_title(check: Check) -> str:
    """What is checked: the figure's name and where it holds, or the limit on it."""
    if isinstance(check, GatedFigure):
        return check.figure.title
    limited = "" if check.limit == check.measure else f"{check.limit} of "
    return f"limit on {limited}{check.figure.title}"


def check_words(check: Check) -> str:
    """The check as a few plain sentences."""
    if isinstance(check, GatedFigure):
        intervals = interval_phrase(check.low, check.high), interval_phrase(check.new_low, check.new_high)
        return words("gate", "figure", check, *intervals)
    limited = str(check.figure) if check.limit == check.measure else f"{check.limit} of {check.figure}"
    _, low, high = limit_numbers(check, 3)
    interval = "unknown" if check.low is None or check.high is None else f"{low} to {high}"
    return words("gate", "limit", check, limited, limit_phrase(check.at_least, check.at_most), interval)


def over_nights_phrase(check: Check) -> str:
    """Which look at new answers it is, and what this run alone says if that differs."""
    if isinstance(check, GatedFigure) and check.obstacle is not None:
        return ""
    alone = "" if check.tonight in (None, check.verdict) else f", this run alone {check.tonight}"
    return f"look {check.look}{alone}"


def limit_phrase(least: float | None, most: float | None) -> str:
    """A limit as a phrase, with every digit of the config."""
    parts = [f"at least {least:.12g}"] if least is not None else []
    parts += [f"at most {most:.12g}"] if most is not None else []
    return " and ".join(parts).replace("-", "−") or "none"


def limit_numbers(check: LimitCheck, decimals: int) -> tuple[str, str, str]:
    """The value and the interval's ends, with so many decimals that none reads like a limit that it is not."""
    for limit in (check.at_least, check.at_most):
        if limit is not None:
            decimals = distinct_decimals(decimals, limit, check.value, check.low, check.high)
    value, low, high = (number(x, decimals) for x in (check.value, check.low, check.high))
    return value, low, high


def interval_phrase(low: float | None, high: float | None) -> str:
    """An interval as a phrase."""
    return "unknown" if low is None or high is None else f"{number(low)} to {number(high)}"


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One limit on one figure, and whether it is kept."""

    verdict: LimitVerdict
    text: str


def limits_overview(result: AuditResult) -> str:
    """How many limits are broken, open and met; empty where the config has none."""
    counts = Counter(check.verdict for check in result.limits)
    parts = [f"{counts[verdict]:,} {word.lower()}" for verdict, word in _WORDS.items() if counts[verdict]]
    figures = "figure is" if len(result.limits) == 1 else "figures are"
    return f"{len(result.limits):,} {figures} limited by the config: {', '.join(parts)}." if parts else ""


def limit_lines(result: AuditResult) -> list[LimitLine]:
    """Every limit on every figure, the most pressing first."""
    order = list(_WORDS)
    ordered = sorted(result.limits, key=lambda check: order.index(check.verdict))
    suites = {info.name: info for info in result.suites}
    return [LimitLine(check.verdict, _line(check, suites[check.suite], len(suites) > 1)) for check in ordered]


def _line(check: LimitCheck, info: SuiteInfo, is_named: bool) -> str:
    limited = measure_label(check.measure)
    if check.where:
        limited += f", {where_label(check.where, info.level_labels)}"
    if check.limit != check.measure:
        limited = f"{factor_label(check.limit)} behind {limited}"
    value, low, high = limit_numbers(check, 2)
    who = ", ".join(filter(None, [one_line(check.model), one_line(info.title) if is_named else "", limited]))
    ends = "" if check.low is None or check.high is None else f"({low} to {high})"
    shown = "" if check.value is None else value
    allowed = limit_phrase(check.at_least, check.at_most)
    return words("gate", "limit_line", check, _WORDS[check.verdict], who, shown, ends, allowed)

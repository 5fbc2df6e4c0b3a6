"""The config's limits on the first page: which are broken, open and met, one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from audit.report.formatting import factor_label, measure_label, one_line, where_label
from audit.report.phrases.checks.gate import limit_numbers, limit_phrase
from audit.results import AuditResult, LimitCheck, LimitVerdict

#: The most pressing first.
_WORDS: Mapping[LimitVerdict, str] = {"broken": "Broken", "insufficient evidence": "Not decided", "met": "Met"}
_OPEN = {"missing answers": "missing answers leave it open"}


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One limit on one figure, and whether it is kept; ``measure`` is the id of the figure."""

    verdict: LimitVerdict
    text: str
    measure: str


def limits_overview(result: AuditResult) -> str:
    """How many limits are broken, open and met; empty where the config has none."""
    counts = Counter(check.decisive_verdict for check in result.limits)
    parts = [f"{counts[verdict]:,} {words.lower()}" for verdict, words in _WORDS.items() if counts[verdict]]
    figures = "figure is" if len(result.limits) == 1 else "figures are"
    return f"{len(result.limits):,} {figures} limited by the config: {', '.join(parts)}." if parts else ""


def limit_lines(result: AuditResult) -> list[LimitLine]:
    """Every limit on every figure, the most pressing first."""
    order = list(_WORDS)
    ordered = sorted(result.limits, key=lambda check: order.index(check.decisive_verdict))
    titles = {info.name: one_line(info.title) for info in result.suites} if len(result.suites) > 1 else {}
    return [
        LimitLine(
            check.decisive_verdict,
            _line(check, titles.get(check.suite, "")),
            check.figure.id,
        )
        for check in ordered
    ]


def _line(check: LimitCheck, suite: str) -> str:
    limited = measure_label(check.measure)
    limited += f", {where_label(check.where)}" if check.where else ""
    if check.limit != check.measure:
        limited = f"{factor_label(check.limit)} behind {limited}"
    value, low, high = limit_numbers(check, 2)
    ends = "" if check.low is None or check.high is None else f" ({low} to {high})"
    verdict = check.decisive_verdict
    who = ", ".join(filter(None, [one_line(check.model), suite, limited]))
    line = f"{_WORDS[verdict]}: {who}:{'' if check.value is None else f' {value}'}{ends or ' no interval'}"
    line += f"; allowed is {limit_phrase(check.at_least, check.at_most)}"
    return f"{line}{_why_open(check) if verdict == 'insufficient evidence' else ''}"


def _why_open(check: LimitCheck) -> str:
    if check.tonight == "broken":
        looks = "is not yet enough at the first look" if check.look == 1 else "among so many runs may be due to chance"
        return f"; this run alone is beyond it, which {looks}"
    return f"; {_OPEN.get(str(check.decisive_reason), 'the interval lies on both sides')}"

"""A store's history and its suites' rankings in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from audit.report.formatting import measure_label, number, where_label
from audit.report.phrases.gate import limit_phrase
from audit.report.plain_text import one_line
from audit.report.templating import lines, words

if TYPE_CHECKING:
    from audit.analysis.comparing.agreement import Agreement, RankCorrelation, RankedFigure
    from audit.analysis.history import Absence, Checked, History, Point, Series

#: A gate's last verdict on a figure, the gravest first; other verdicts claim nothing.
_DECIDED: Mapping[str, str] = {
    "regressed": "significantly worse",
    "broken": "limit broken",
    "improved": "significantly better",
}
_LISTED = 4  # more models or figures than this are counted, not listed


def series_title(series: Series) -> str:
    """The suite and the measure."""
    return f"{one_line(series.suite)}: {measure_label(series.measure)}"


def trend_scope(history: History) -> str:
    """How many runs and gaps there are, at how many runs something changed, and how to read the lines."""
    changed = {point.run_id for series in history.series for point in series.points if point.changes}
    return words("history", "scope", len(history.runs), len(history.absences), len(changed))


def gate_lines(history: History) -> list[str]:
    """For each model, which of its figures got worse or better by the gate's rule, and which limits it broke."""
    return [_gate_line(history, model) for model in history.models]


def _gate_line(history: History, model: str) -> str:
    checked = [check for check in history.checks if check.model == model]
    said = []
    for verdict, text in _DECIDED.items():
        if found := [check for check in checked if check.verdict == verdict]:
            said.append((text, [_since(check) for check in found[:_LISTED]], len(found)))
    rest = len(checked) - sum(n for *_, n in said)
    return words("history", "gate_line", one_line(model), len(checked), said, rest)


def _since(check: Checked) -> str:
    """The figure, its limit, and the first night of its last verdict."""
    limit = "" if check.limit is None else f", limit {limit_phrase(check.at_least, check.at_most)}"
    named = f"{one_line(check.suite)} {measure_label(check.measure)}, {where_label(check.where)}"
    return f"{named}{limit}, since {check.since[:10]}"


def changed_notes(point: Point) -> str:
    """What changed with a run's figure."""
    return "; ".join([*map(one_line, point.changes), *([] if point.complete else ["incomplete run"])])


def absence_line(gap: Absence) -> str:
    """When there was no run, and why."""
    return f"no run at {gap.at[:19].replace('T', ' ')}: {one_line(gap.why)}"


def figure_title(figure: RankedFigure) -> str:
    """The suite, the measure, and where it holds."""
    where = where_label(figure.where)
    return f"{one_line(figure.suite)}: {measure_label(figure.measure)}" + (f", {where}" if where else "")


def correlation_text(correlation: RankCorrelation) -> str:
    """ρ with its interval, or why there is none."""
    if correlation.rho is None:
        return "all models alike" if correlation.n_models > 1 else "too few models"
    if correlation.low is None:
        return f"{number(correlation.rho, 2)} (too few models)"
    return f"{number(correlation.rho, 2)} ({number(correlation.low, 2)} to {number(correlation.high, 2)})"


def agreement_scope(found: Agreement, fewest: int) -> Sequence[str]:
    """What the page is about, and what its numbers cannot say."""
    known = sum(correlation.low is not None for correlation in found.correlations)
    unequal = [
        (figure_title(figure), ", ".join(f"{one_line(model)} {n:,}" for model, n in figure.items.items()))
        for figure in found.figures
        if len(set(figure.items.values())) > 1
    ]
    left_out = sorted({one_line(model) for figure in found.figures for model in figure.left_out})
    by_chance = number(known * (1 - found.confidence), 1)
    return lines("history", "agreement", found, fewest, by_chance, known, unequal, left_out)

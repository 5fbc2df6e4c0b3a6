"""A store's history and its suites' rankings in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from audit.report.formatting import measure_label, number, where_label
from audit.report.phrases.gate import limit_phrase
from audit.report.plain_text import one_line
from audit.report.templating import lines, words

if TYPE_CHECKING:
    from audit.analysis.comparing.agreement import Agreement, RankCorrelation, RankedFigure
    from audit.analysis.history import Absence, History, Point, Series

#: Marks of a night on which a gate found a regression or a broken limit, by the verdict.
ALARMS = {"regressed": "regressed, over all nights since the baseline", "broken": "limit broken, over all nights"}

#: A gate's last verdict on a figure, the gravest first; other verdicts claim nothing.
_DECIDED: Mapping[str, str] = {
    "regressed": "significantly worse",
    "broken": "limit broken",
    "improved": "significantly better",
}
_LISTED = 4  # more models or figures than this are counted, not listed


def series_title(series: Series) -> str:
    """The suite and the measure; for a gate's series also the baseline or limit, and what the intervals mean."""
    title = f"{one_line(series.suite)}: {measure_label(series.measure)}"
    if series.limit is not None:
        share = "" if series.limit == series.measure else f", {series.limit}"
        limit = limit_phrase(series.at_least, series.at_most)
        return f"{title}{share}, limit {limit} (intervals that hold over all nights)"
    if series.baseline is None:
        return title
    margin = "" if series.margin is None else f", margin ±{series.margin:g}"
    return f"{title}, change since {one_line(series.baseline)} (intervals that hold over all nights{margin})"


def trend_scope(history: History) -> str:
    """How many runs and gaps there are, at how many runs something changed, and how to read the lines."""
    changed = {point.run_id for series in history.series for point in series.points if point.changes}
    return words("history", "scope", len(history.runs), len(history.absences), len(changed))


def gate_lines(history: History) -> list[str]:
    """For each model, which of its figures got worse or better by the gate's rule, and which limits it broke."""
    return [_gate_line(history, model) for model in history.models]


def _gate_line(history: History, model: str) -> str:
    checked = [series for series in history.sequences if series.model == model and series.points]
    said = []
    for verdict, text in _DECIDED.items():
        if found := [series for series in checked if series.points[-1].verdict == verdict]:
            said.append((text, [_since(series) for series in found[:_LISTED]], len(found)))
    rest = len(checked) - sum(n for *_, n in said)
    return words("history", "gate_line", one_line(model), len(checked), said, rest)


def _since(series: Series) -> str:
    """The figure, what it was checked against, and the first night of its last verdict."""
    points = list(takewhile(lambda point: point.verdict == series.points[-1].verdict, reversed(series.points)))
    against = f"limit {limit_phrase(series.at_least, series.at_most)}"
    if series.limit is None:
        against = f"against {one_line(series.baseline or 'the baseline')}"
    named = f"{one_line(series.suite)} {measure_label(series.measure)}, {where_label(series.where)}"
    return f"{named}, {against}, since {points[-1].at[:10]}"


def changed_notes(point: Point) -> str:
    """What changed with a run's figure, and whether it raised an alarm."""
    alarm = [ALARMS[point.verdict]] if point.verdict in ALARMS else []
    return "; ".join([*map(one_line, point.changes), *alarm, *([] if point.complete else ["incomplete run"])])


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

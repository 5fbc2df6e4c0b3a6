"""Sentences about a history: how many runs it has, what changed, and where a run is absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.report.formatting import measure_label, one_line
from audit.report.phrases.gate import limit_phrase

if TYPE_CHECKING:
    from audit.analysis.history import Absence, History, Point, Series

NO_FIGURE = "No figure in this store matches."
#: Marks of a night on which a gate found a regression or a broken limit, by the verdict.
ALARMS = {"regressed": "regressed, over all nights since the baseline", "broken": "limit broken, over all nights"}


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


def trend_scope(history: History, changes: int) -> str:
    """How many runs, gaps and changes the trend page shows, and how to read its lines."""
    runs, gaps = len(history.runs), len(history.absences)
    counted = f"{runs} run{'' if runs == 1 else 's'} with a result"
    counted += f", {gaps} gap{'' if gaps == 1 else 's'}" if gaps else ""
    changed = (
        f"models, engines or suites changed {'once' if changes == 1 else f'{changes} times'}"
        if changes
        else "no model, engine or suite changed"
    )
    return (
        f"{counted}; {changed}. A line ends where a run is missing or the questions are no longer the same; "
        "nothing is filled in."
    )


def changed_notes(point: Point) -> str:
    """What changed with a run's figure, and whether it raised an alarm."""
    alarm = [ALARMS[point.verdict]] if point.verdict in ALARMS else []
    return "; ".join([*map(one_line, point.changes), *alarm, *([] if point.complete else ["incomplete run"])])


def absence_line(gap: Absence) -> str:
    """When there was no run, and why."""
    return f"no run at {gap.at[:19].replace('T', ' ')}: {one_line(gap.why)}"

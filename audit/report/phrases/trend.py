"""Sentences about a history: how many runs it has, what changed, and where a run is absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from audit.report.formatting import measure_label, one_line, where_label
from audit.report.phrases.checks.gate import limit_phrase
from audit.report.phrases.counted import count

if TYPE_CHECKING:
    from audit.analysis.history import Absence, History, Point, Series

NO_FIGURE = "No figure in this store matches."
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
    """How many runs, gaps and changes there are, and how to read the lines."""
    runs, gaps = len(history.runs), len(history.absences)
    counted = f"{count(runs, 'run')} with a result" + (f", {count(gaps, 'gap')}" if gaps else "")
    return (
        f"{counted}; {_what_changed(history)}. A line ends where a run is missing or the questions are of another "
        "kind, not where more or fewer of the same are asked; nothing is filled in."
    )


def _what_changed(history: History) -> str:
    """At how many runs each model, with its engine, was another one than before, and at how many the questions were
    other ones, or another sample of the same."""
    of_model: dict[str, set[str]] = {name: set() for name in history.models}
    of_suites: set[str] = set()
    of_samples: set[str] = set()
    for series in history.series:
        for point in series.points:
            for change in point.changes:
                of_extent = of_suites if not point.comparable else of_samples
                (of_model[series.model] if change.startswith("model ") else of_extent).add(point.run_id)
    said = [f"{one_line(name)} at {count(len(runs), 'run')}" for name, runs in of_model.items() if runs]
    if len(said) > _LISTED:
        said = [f"{len(said)} of {len(of_model)} models or their engines"]
    parts = [f"another model or engine: {', '.join(said)}"] if said else []
    parts += [f"other questions at {count(len(of_suites), 'run')}"] if of_suites else []
    parts += [f"more, fewer or others of the same at {count(len(of_samples), 'run')}"] if of_samples else []
    return "; ".join(parts) or "no model, engine or suite changed"


def gate_lines(history: History) -> list[str]:
    """For each model, which of its figures got worse or better by the gate's rule, and which limits it broke."""
    return [f"{one_line(model)}: {_decided(history, model)}" for model in history.models]


def _decided(history: History, model: str) -> str:
    checked = [series for series in history.sequences if series.model == model and series.points]
    if not checked:
        return "no gate has checked it, so that a jump in its lines may be chance."
    said = []
    for verdict, words in _DECIDED.items():
        found = [series for series in checked if series.points[-1].verdict == verdict]
        if found:
            said.append(f"{words} in {len(found)} ({'; '.join(map(_since, found[:_LISTED]))}{_more(found)})")
    rest = len(checked) - sum(series.points[-1].verdict in _DECIDED for series in checked)
    said += [f"no change or break shown in {rest}"] if rest else []
    return f"of {count(len(checked), 'check')}, over all nights: {', '.join(said)}."


def _since(series: Series) -> str:
    """The figure, what it was checked against, and the first night of its last verdict."""
    points = list(takewhile(lambda point: point.verdict == series.points[-1].verdict, reversed(series.points)))
    against = f"limit {limit_phrase(series.at_least, series.at_most)}"
    if series.limit is None:
        against = f"against {one_line(series.baseline or 'the baseline')}"
    named = f"{one_line(series.suite)} {measure_label(series.measure)}, {where_label(series.where)}"
    return f"{named}, {against}, since {points[-1].at[:10]}"


def _more(found: Sequence[Series]) -> str:
    return f"; {len(found) - _LISTED} more" if len(found) > _LISTED else ""


def changed_notes(point: Point) -> str:
    """What changed with a run's figure, and whether it raised an alarm."""
    alarm = [ALARMS[point.verdict]] if point.verdict in ALARMS else []
    return "; ".join([*map(one_line, point.changes), *alarm, *([] if point.complete else ["incomplete run"])])


def absence_line(gap: Absence) -> str:
    """When there was no run, and why."""
    return f"no run at {gap.at[:19].replace('T', ' ')}: {one_line(gap.why)}"

"""The plots of the trend page: a measure's panels over the runs, with its gaps and what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from audit.analysis.history import History, Point, Series
from audit.report.charts.plots import Panel, Row, drawn_values, estimate_fields, value_ends
from audit.report.formatting import figure, unit_label, where_label
from audit.report.phrases.history import series_title
from audit.report.plain_text import one_line
from audit.results import Where, where_key

_DAY = 86_400_000.0  # ms


@dataclass(slots=True)
class Picture:
    """A measure of a suite under several conditions. Its panels share the value axis, from ``ends`` to ``ends``.

    ``notes``: for each panel, which models no run has a value of. ``lines`` of the table below: the model's number,
    condition, point and its text. ``folded``: the reader unfolds it. Drawing takes a moment a panel, and a store of
    four suites has more than 1,500.
    """

    title: str
    unit: str
    ends: list[float]
    folded: bool
    panels: list[Panel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: list[tuple[int, str, Point, str]] = field(default_factory=list)


def trend_pictures(history: History) -> list[Picture]:
    """One chart for each measure of each suite, with a panel for each condition.

    Figures that are not primary have charts of their own, which are folded.
    """
    leading = {series.id for series in history.series if series.primary}
    number = {name: i for i, name in enumerate(history.models)}
    grouped: dict[tuple[str, str, bool], dict[Where, list[Series]]] = {}
    for series in history.series:
        folded = bool(leading) and series.id not in leading
        conditions = grouped.setdefault((series_title(series), series.measure, folded), {})
        conditions.setdefault(where_key(series.where), []).append(series)
    pictures = []
    for (title, _, folded), conditions in grouped.items():
        everything = [series for of_condition in conditions.values() for series in of_condition]
        picture = Picture(title, unit_label(everything[0].unit), _value_axis(everything), folded)
        for of_condition in conditions.values():
            where = where_label(of_condition[0].where)
            of_condition.sort(key=lambda series: number[series.model])
            picture.panels.append(Panel(where, _rows(history, of_condition, number)))
            absent = [one_line(s.model) for s in of_condition if not drawn_values(*s.points)]
            picture.notes.append(f"No value at any run: {', '.join(absent)}" if absent else "")
            picture.lines += [(number[s.model], where, p, figure(p)) for s in of_condition for p in s.points]
        pictures.append(picture)
    return pictures


def time_ends(history: History) -> list[str]:
    """Limits of the common time axis (ISO): all runs and absences, with some padding."""
    times = [_ms(at) for at in (*(run.at for run in history.runs), *(gap.at for gap in history.absences))] or [0.0]
    room = (max(times) - min(times)) * 0.04 or _DAY / 2
    return [
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
        for ms in (min(times) - room, max(times) + room)
    ]


def _rows(history: History, of_condition: Sequence[Series], number: Mapping[str, int]) -> list[Row]:
    """What a panel draws: points in their segments, then changes by time, then absent runs."""
    rows: list[Row] = []
    changes: dict[str, list[str]] = {}
    for series in of_condition:
        for segment_number, segment in enumerate(segments(history, series)):
            for point in segment:
                row = {"t": _ms(point.at), "m": number[series.model], "g": segment_number, "s": figure(point)}
                row |= estimate_fields(point, series.neutral)
                row |= {"i": point.n_items, "r": one_line(point.run_id), **({} if point.complete else {"p": True})}
                rows.append(row)
                said = [f"{one_line(series.model)}: {one_line(what)}" for what in point.changes]
                if said:
                    changes.setdefault(point.at, []).extend(said)
    rows += [{"t": _ms(at), "c": changed} for at, changed in changes.items()]
    return rows + [{"t": _ms(gap.at), "a": one_line(gap.why)} for gap in history.absences]


def segments(history: History, series: Series) -> list[list[Point]]:
    """Runs of points that may be joined by a line.

    A segment ends if a run of the same audit lacks the figure, a run is absent, the figure has no value, or the suite
    changes.
    """
    place = {run.id: i for i, run in enumerate(history.runs)}
    found: list[list[Point]] = []
    for point in series.points:
        before = found[-1][-1] if found else point
        start, end = (history.runs[place[of.run_id]] for of in (before, point))
        between = history.runs[place[start.id] + 1 : place[end.id]]
        is_gap = before.value is None or point.value is None or not point.comparable
        is_gap |= any(run.title in (start.title, end.title) for run in between)
        is_gap |= any(_ms(start.at) < _ms(gap.at) < _ms(end.at) for gap in history.absences)
        if is_gap or not found:
            found.append([])
        found[-1].append(point)
    return found


def _value_axis(everything: Sequence[Series]) -> list[float]:
    """Axis limits that include every interval and bound, and the neutral value; within 0 and 1 for probabilities."""
    beside = [series.neutral for series in everything if series.neutral is not None]
    low, high = value_ends([*drawn_values(*(point for series in everything for point in series.points)), *beside])
    if all(series.unit in ("probability", "share") for series in everything):
        return [max(0.0, low), min(1.0, high)]
    return [low, high]


def _ms(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp() * 1000

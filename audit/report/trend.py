"""The trend page: each figure over the runs, with its intervals, its gaps, and what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from audit.analysis.history import History, Point, Series
from audit.report import vega_specs as specs
from audit.report.charts import short, value_ends
from audit.report.formatting import bounded, figure
from audit.report.labels import measure_label, unit_label, where_label
from audit.report.page import render_page
from audit.report.safe_text import one_line
from audit.results import Where, where_key
from backends.files import atomic_write

_DAY = 86_400_000.0  # ms


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table behind a picture."""

    model: int
    where: str
    point: Point
    text: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One small plot: the same figure of all models over the runs."""

    title: str
    rows: list[dict[str, Any]]


@dataclass(slots=True)
class Picture:
    """A measure of a suite under all its conditions. Its panels share the value axis, from ``ends`` to ``ends``."""

    title: str
    unit: str
    ends: list[float]
    panels: list[Panel] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Change:
    """What became different with a run, and how many figures it concerns."""

    at: str
    run_id: str
    model: int
    what: str
    figures: int


def write_trend(history: History, path: Path, *, title: str) -> Path:
    """Write the page, its folder made if missing. A report.html that lies there is linked."""
    return atomic_write(path, trend_page(history, title, report=path.with_name("report.html").exists()))


def trend_page(history: History, title: str, *, report: bool = False) -> str:
    """The whole page; with ``report`` it leads to a report.html beside it."""
    pictures = _pictures(history)
    data = {
        "models": [one_line(name) for name in history.models],
        "config": specs.CONFIG,
        "spec": specs.trend(len(history.models), _time_ends(history)),
        "pictures": [{"unit": p.unit, "ends": p.ends, "panels": [panel.rows for panel in p.panels]} for p in pictures],
    }
    return render_page(
        "trend.html.j2",
        ("page.js", "trend.js"),
        data,
        title=title,
        report=report,
        history=history,
        pictures=pictures,
        changes=_changes(history),
        levels=sorted({run.confidence for run in history.runs}),
        marks={
            "bounds": any(bounded(point) for series in history.series for point in series.points),
            "neutral": any(series.neutral is not None for series in history.series),
            "incomplete": not all(run.complete for run in history.runs),
            "changes": any(point.changes for series in history.series for point in series.points),
            "absent": bool(history.absences),
        },
    )


def _pictures(history: History) -> list[Picture]:
    """One picture for each measure of each suite, in it a panel for each condition."""
    number = {name: i for i, name in enumerate(history.models)}
    grouped: dict[tuple[str, str], dict[Where, list[Series]]] = {}
    for series in history.series:
        conditions = grouped.setdefault((series.suite, series.measure), {})
        conditions.setdefault(where_key(series.where), []).append(series)
    pictures = []
    for (suite, measure), conditions in grouped.items():
        everything = [series for some in conditions.values() for series in some]
        title = f"{one_line(suite)}: {measure_label(measure)}"
        picture = Picture(title, unit_label(everything[0].unit), _ends(everything))
        for some in conditions.values():
            where = where_label(some[0].where)
            some.sort(key=lambda series: number[series.model])
            picture.panels.append(Panel(where, _rows(history, some, number)))
            picture.lines += [
                Line(number[series.model], where, point, figure(point)) for series in some for point in series.points
            ]
        pictures.append(picture)
    return pictures


def _rows(history: History, some: Sequence[Series], number: dict[str, int]) -> list[dict[str, Any]]:
    """What a panel draws: points in their segments, then changes by time, then absent runs."""
    rows: list[dict[str, Any]] = []
    changes: dict[str, list[str]] = {}
    for series in some:
        for segment_number, segment in enumerate(history.segments(series)):
            for point in segment:
                rows.append(
                    {
                        "t": _ms(point.at),
                        "m": number[series.model],
                        "g": segment_number,
                        "v": short(point.value),
                        "l": short(point.low),
                        "h": short(point.high),
                        "s": figure(point),
                        "i": point.n_items,
                        "r": one_line(point.run_id),
                        **({"bl": short(point.bound_low), "bh": short(point.bound_high)} if bounded(point) else {}),
                        **({} if series.neutral is None else {"n": series.neutral}),
                        **({} if point.complete else {"p": True}),
                    }
                )
                if point.changes:
                    said = [f"{one_line(series.model)}: {one_line(change)}" for change in point.changes]
                    changes.setdefault(point.at, []).extend(said)
    rows += [{"t": _ms(at), "c": said} for at, said in changes.items()]
    return rows + [{"t": _ms(gap.at), "a": one_line(gap.why)} for gap in history.absences]


def _changes(history: History) -> list[Change]:
    """All changes, oldest first, each told once a run and model."""
    number = {name: i for i, name in enumerate(history.models)}
    found: dict[tuple[str, str, str, str], int] = {}
    for series in history.series:
        for point in series.points:
            for what in point.changes:
                key = (point.at, point.run_id, series.model, what)
                found[key] = found.get(key, 0) + 1
    return [
        Change(at, run_id, number[model], what, figures) for (at, run_id, model, what), figures in sorted(found.items())
    ]


def _time_ends(history: History) -> list[str]:
    """The common time axis: all runs and absences, with a little room."""
    times = [_ms(run.at) for run in history.runs] + [_ms(gap.at) for gap in history.absences]
    if not times:
        times = [0.0]
    room = (max(times) - min(times)) * 0.04 or _DAY / 2
    return [
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
        for ms in (min(times) - room, max(times) + room)
    ]


def _ends(some: Sequence[Series]) -> list[float]:
    """The value axis: it holds every interval and bound, and the neutral value; no probability outside 0 and 1."""
    values = [
        x
        for series in some
        for point in series.points
        for x in (point.value, point.low, point.high, point.bound_low, point.bound_high, series.neutral)
        if x is not None
    ]
    low, high = value_ends(values)
    if all(series.unit in ("probability", "share") for series in some):
        return [max(0.0, low), min(1.0, high)]
    return [low, high]


def _ms(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp() * 1000

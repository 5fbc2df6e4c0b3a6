"""The trend page: each figure over the runs, with its intervals, its gaps, and what changed."""

from __future__ import annotations

from collections import Counter

from audit.analysis.history import History
from audit.report.charts import vega_specs as specs
from audit.report.charts.trend import time_ends, trend_pictures
from audit.report.formatting import bounded
from audit.report.page.rendering import render_page
from audit.report.phrases.history import gate_lines, trend_scope
from audit.report.plain_text import one_line


def trend_page(history: History, title: str, *, report: bool = False, runs: str | None = None) -> str:
    """The whole page; with ``report`` it links to a report.html beside it, with ``runs`` to a list of runs."""
    pictures = trend_pictures(history)
    data = {
        "models": [one_line(name) for name in history.models],
        "config": specs.CONFIG,
        "spec": specs.trend(len(history.models), time_ends(history)),
        "pictures": [{"unit": p.unit, "ends": p.ends, "panels": [panel.rows for panel in p.panels]} for p in pictures],
    }
    points = [point for series in history.series for point in series.points]
    number = {name: i for i, name in enumerate(history.models)}
    # What came with a run, once for each model, and how many figures it affects.
    changes = Counter(
        (point.at, point.run_id, number[series.model], what)
        for series in history.series
        for point in series.points
        for what in point.changes
    )
    return render_page(
        "trend.html.j2",
        ("page.js", "trend.js"),
        data,
        title=title,
        report=report,
        runs=runs,
        scope=trend_scope(history),
        decided=gate_lines(history),
        history=history,
        pictures=pictures,
        changes=sorted(changes.items()),
        levels=sorted({run.confidence for run in history.runs}),
        marks={
            "bounds": any(map(bounded, points)),
            "neutral": any(series.neutral is not None for series in history.series),
            "incomplete": not all(run.complete for run in history.runs),
            "changes": any(point.changes for point in points),
            "absent": bool(history.absences),
        },
    )

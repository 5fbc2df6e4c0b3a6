"""The Vega-Lite specifications behind the plots.

Each takes the number of models and the ends of the axes, and draws rows of the dataset ``rows``: ``v`` a value,
``l``–``h`` its interval, ``bl``–``bh`` bounds where only bounds are known, ``n`` the neutral value, ``m`` the model's
number, ``k`` the row's label. The parameter ``hidden`` lists models not to draw.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
from altair.utils import schemapi

from audit.results import Verdict

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
COLOURS = 10  # --m0 … --m9 in the style sheet
VERDICTS: tuple[Verdict, ...] = ("larger", "smaller", "equivalent", "inconclusive", "not comparable")
DIFFERENCE_AXIS = "difference"
_VERDICT_COLOURS = ("larger", "smaller", "equivalent", "inconclusive", "inconclusive")

#: The style of all plots. Colours are the page's CSS variables, so changing the theme needs no redrawing.
CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, -apple-system, 'Segoe UI', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--ink-2)",
        "titleColor": "var(--ink-2)",
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 12,
        "gridColor": "var(--grid)",
        "domainColor": "var(--axis)",
        "tickColor": "var(--axis)",
        "titlePadding": 8,
    },
    "axisY": {"domain": False, "ticks": False, "labelPadding": 8},
    "text": {"fill": "var(--ink-2)", "fontSize": 12},
}

_TOOLTIP: dict[str, Any] = {"tooltip": alt.TooltipContent("data")}
_CLICKABLE: dict[str, Any] = {**_TOOLTIP, "cursor": "pointer"}
_POINT: dict[str, Any] = {"filled": True, "opacity": 1, **_CLICKABLE}
_BUILDING = threading.RLock()


@contextlib.contextmanager
def _unchecked() -> Iterator[None]:
    """Altair checks each part of a specification as it is made: half of a report's time. These are checked by tests."""
    with _BUILDING, schemapi.debug_mode(False):  # one switch for all threads
        yield


@_unchecked()
def dots(models: int, domain: Sequence[float], height: int, title: str, *, dodge: bool = True) -> dict[str, Any]:
    """One row per label, in it a dot with its interval for each model; dodged lanes where models share a row."""
    rows = _rows()
    lane: dict[str, Any] = {"y": rows}
    if dodge and models > 1:
        lane["yOffset"] = alt.YOffset("m:N", scale=alt.Scale(domain=list(range(models)), paddingOuter=0.4))
    measured = _where("m")
    return _layered(
        measured.mark_point(**_POINT, size=75).encode(
            x=_quantitative(alt.X, "v", domain, title), color=_colour(models), shape=_shape(models), **lane
        ),
        _neutral("x"),
        _neutral_of_each(rows),
        _where("u")
        .mark_tick(thickness=1.5, height=16, color="var(--published)", opacity=0.55, **_TOOLTIP)
        .encode(x=alt.X("u:Q"), y=rows),
        _band(measured, "x", lane, models, height=9, fillOpacity=0.12, strokeWidth=1.2, cursor="pointer"),
        _interval(measured, "x", {**lane, "color": _colour(models)}, strokeWidth=2, **_CLICKABLE),
        height=height,
    )


@_unchecked()
def scatter(
    models: int, x_domain: Sequence[float], y_domain: Sequence[float], titles: tuple[str, str], *, diagonal: bool
) -> dict[str, Any]:
    """Value against a covariate, with intervals; the diagonal where both are shares. ``titles`` of x and y."""
    x = _quantitative(alt.X, "x", x_domain, titles[0])
    below = [_diagonal(min(x_domain[1], y_domain[1]))] if diagonal else []
    return _over(x, _quantitative(alt.Y, "v", y_domain, titles[1]), models, below=below, height=260)


@_unchecked()
def lines(models: int, domain: Sequence[float], x_title: str, y_title: str) -> dict[str, Any]:
    """Value and interval over an ordered factor, one line per model."""
    axis = alt.Axis(title=x_title, labelAngle=0, grid=False)
    x = alt.X("k:N", sort=None, axis=axis, scale=alt.Scale(type="point"))
    line = alt.Chart().mark_line(strokeWidth=1.5, opacity=0.8).encode(x=x, y=alt.Y("v:Q"), color=_colour(models))
    return _over(x, _quantitative(alt.Y, "v", domain, y_title), models, above=[line], height=230)


@_unchecked()
def trend(models: int, times: Sequence[str]) -> dict[str, Any]:
    """Values with intervals over the time of the run, one line per model and segment ``g``.

    ``t`` is the time (ms since 1970, UTC), ``p`` true for an incomplete run. A row with ``c`` marks a
    change at a time, one with ``a`` an absent run. ``times`` are the time axis's ends
    (ISO); the value axis's ends and title are each picture's own.
    """
    x = alt.X(
        "t:T",
        scale=alt.Scale(type="utc", domain=list(times), nice=False),
        # Vega's own hours are twelve, without am or pm.
        axis=alt.Axis(
            title="time of the run (UTC)",
            grid=False,
            tickCount=5,
            labelOverlap="greedy",
            format={"hours": "%H:%M", "minutes": "%H:%M"},
        ),
    )
    mark = {"filled": True, "size": 60, "opacity": 1, **_TOOLTIP}
    changed, absent = _where("c"), _where("a")
    line = _where("v").mark_line(strokeWidth=1.5, opacity=0.8)
    return _over(
        x,
        _quantitative(alt.Y, "v", [0, 1], ""),
        models,
        below=[changed.mark_rule(strokeWidth=1.5, strokeDash=[2, 3], color="var(--caution)", **_TOOLTIP).encode(x=x)],
        above=[
            line.encode(x=x, y=alt.Y("v:Q"), color=_colour(models), detail="g:N"),
            changed.mark_point(shape="triangle-down", color="var(--caution)", **mark).encode(x=x, y=alt.value(0)),
            absent.mark_point(shape="cross", angle=45, color="var(--ink-2)", **mark).encode(x=x, y=alt.value("height")),
        ],
        height=210,
        fillOpacity=alt.condition("datum.p", alt.value(0.15), alt.value(1)),
        stroke=_colour(models, alt.Stroke),
    )


def _over(
    x: Any, y: Any, models: int, *, height: int, below: Sequence[Any] = (), above: Sequence[Any] = (), **channels: Any
) -> dict[str, Any]:
    """Points with intervals and bounds over ``x``, and layers that lie ``below`` and ``above`` the intervals."""
    at = {"x": x}
    return _layered(
        _where("v")
        .mark_point(**_POINT, size=60)
        .encode(x=x, y=y, color=_colour(models), shape=_shape(models), **channels),
        *below,
        _neutral("y"),
        _band(alt.Chart(), "y", at, models, width=9, fillOpacity=0.1, strokeWidth=1),
        _interval(alt.Chart(), "y", {**at, "color": _colour(models)}, strokeWidth=1.5, opacity=0.6, clip=True),
        *above,
        height=height,
    )


@_unchecked()
def forest() -> dict[str, Any]:
    """Differences with intervals, coloured by verdict, over the equivalence margin and the engines' noise."""
    row = {"y": _rows(labelOffset=-12)}
    verdict = {**row, "color": _verdict_colour()}
    return _layered(
        _where("w")
        .mark_point(filled=True, opacity=1, **_TOOLTIP, size=85, shape="diamond")
        .encode(
            x=alt.X(
                "v:Q",
                axis=alt.Axis(title=DIFFERENCE_AXIS, tickCount=6),
                scale=alt.Scale(domain=[-1, 1], nice=False),
            ),
            **verdict,
        ),
        _around_zero("e", row, color="var(--noise)", fillOpacity=0.35),
        _around_zero("g", row, color="var(--margin)", fillOpacity=0.5),
        alt.Chart(alt.Data(values=[{"z": 0}])).mark_rule(color="var(--axis)", strokeWidth=1.2).encode(x=alt.X("z:Q")),
        _where("bl")
        .mark_bar(height=10, fillOpacity=0.12, strokeWidth=1.2, strokeDash=[3, 2])
        .encode(x=alt.X("bl:Q"), x2="bh", **verdict),
        _interval(alt.Chart(), "x", verdict, strokeWidth=2, **_TOOLTIP),
        height=100,
    )


def _layered(top: alt.Chart, *below: alt.Chart, height: int) -> dict[str, Any]:
    """Layers in drawing order: ``below``, then ``top``, whose axes are the plot's."""
    chart = (
        alt.layer(*below, top, data=alt.NamedData(name="rows"))
        .transform_filter("indexof(hidden, datum.m) < 0")
        .properties(width="container", height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    )
    spec: dict[str, Any] = chart.to_dict(validate=False)
    spec.pop("config", None)
    spec["params"] = [{"name": "hidden", "value": []}]
    return spec


def _where(field: str, base: alt.Chart | None = None) -> alt.Chart:
    """Rows that have the field."""
    return (base or alt.Chart()).transform_filter(f"isValid(datum.{field})")


def _band(base: alt.Chart, along: str, at: dict[str, Any], models: int, **mark: Any) -> alt.Chart:
    """The dashed band between a figure's bounds."""
    colours = {"color": _colour(models), "stroke": _colour(models, alt.Stroke)}
    return (
        _where("bl", base)
        .mark_bar(strokeDash=[3, 2], **_TOOLTIP, **mark)
        .encode(**_span(along, "bl", "bh"), **at, **colours)
    )


def _interval(base: alt.Chart, along: str, at: dict[str, Any], **mark: Any) -> alt.Chart:
    """The line from an interval's lower to its upper end."""
    return _where("l", base).mark_rule(**mark).encode(**_span(along, "l", "h"), **at)


def _span(along: str, low: str, high: str) -> dict[str, Any]:
    channel = alt.X if along == "x" else alt.Y
    return {along: channel(f"{low}:Q"), f"{along}2": high}


def _neutral(axis: str) -> alt.Chart:
    """A dashed line at the value of a model without bias, where all rows have the same."""
    channel = alt.X if axis == "x" else alt.Y
    return (
        _neutrals("datum.n0 === datum.n1")
        .mark_rule(strokeDash=[5, 4], strokeWidth=1.2, color="var(--neutral)")
        .encode(**{axis: channel("n:Q", aggregate="min")})
    )


def _neutral_of_each(rows: alt.Y) -> alt.Chart:
    """A tick in each row at its own neutral value, where they differ."""
    each = _neutrals("datum.n0 !== datum.n1")
    return each.mark_tick(thickness=1.5, height=20, color="var(--neutral)").encode(x=alt.X("n:Q"), y=rows)


def _neutrals(condition: str) -> alt.Chart:
    """Rows with a neutral value, if their least ``n0`` and largest ``n1`` fulfil the condition."""
    ends = [alt.JoinAggregateFieldDef(op=op, field="n", **{"as": name}) for op, name in (("min", "n0"), ("max", "n1"))]
    return _where("n").transform_joinaggregate(joinaggregate=ends).transform_filter(condition)


def _around_zero(field: str, row: dict[str, Any], **colour: Any) -> alt.Chart:
    """The band from minus to plus ``field``: the margin within which differences do not matter, or engine noise."""
    bar = alt.Chart().transform_filter(f"datum.{field} > 0").transform_calculate(minus=f"-datum.{field}")
    return bar.mark_bar(height=30, **colour).encode(x=alt.X("minus:Q"), x2=field, **row)


def _diagonal(end: float) -> alt.Chart:
    """The line on which x and y are equal, from 0."""
    data = alt.Data(values=[{"x": 0, "y": 0}, {"x": end, "y": end}])
    line = alt.Chart(data).mark_line(strokeDash=[2, 3], strokeWidth=1.2, color="var(--axis)")
    return line.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))


def _rows(**options: Any) -> Any:
    """One row per label, which may have several lines."""
    axis = alt.Axis(title=None, labelExpr="split(datum.label, '\\n')", labelLineHeight=14, **options)
    return alt.Y("k:N", sort=None, axis=axis)


def _quantitative(channel: Any, name: str, domain: Sequence[float], title: str) -> Any:
    return channel(
        f"{name}:Q",
        scale=alt.Scale(domain=list(domain), nice=False),
        axis=alt.Axis(title=title or None, tickCount=5),
    )


def _colour(models: int, channel: Any = alt.Color) -> Any:
    colours = [f"var(--m{i % COLOURS})" for i in range(models)]
    return channel("m:N", legend=None, scale=alt.Scale(domain=list(range(models)), range=colours))


def _shape(models: int) -> Any:
    shapes = [SHAPES[i % len(SHAPES)] for i in range(models)]
    return alt.Shape("m:N", legend=None, scale=alt.Scale(domain=list(range(models)), range=shapes))


def _verdict_colour() -> Any:
    """The colour of a verdict's number ``w``."""
    colours = [f"var(--v-{name})" for name in _VERDICT_COLOURS]
    return alt.Color("w:N", legend=None, scale=alt.Scale(domain=list(range(len(VERDICTS))), range=colours))

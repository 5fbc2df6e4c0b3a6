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

from audit.report.phrases import captions
from audit.results import Verdict

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
COLOURS = 10  # --m0 … --m9 in the style sheet
VERDICTS: tuple[Verdict, ...] = ("larger", "smaller", "equivalent", "inconclusive", "not comparable")
_VERDICT_COLOURS = ("larger", "smaller", "equivalent", "inconclusive", "inconclusive")

_TERNARY_X, _TERNARY_Y = (-0.1, 1.1), (-0.1, 0.98)
TERNARY_ASPECT = (_TERNARY_Y[1] - _TERNARY_Y[0]) / (_TERNARY_X[1] - _TERNARY_X[0])

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
    rows = alt.Y("k:N", sort=None, axis=alt.Axis(title=None))
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
    at = {"x": alt.X("x:Q")}
    return _layered(
        alt.Chart()
        .mark_point(**_POINT | {"opacity": 0.9}, size=48)
        .encode(
            x=_quantitative(alt.X, "x", x_domain, titles[0]),
            y=_quantitative(alt.Y, "v", y_domain, titles[1]),
            color=_colour(models),
            shape=_shape(models),
        ),
        *([_diagonal(min(x_domain[1], y_domain[1]))] if diagonal else []),
        _neutral("y"),
        _band(alt.Chart(), "y", at, models, width=7, fillOpacity=0.1, strokeWidth=1),
        _interval(alt.Chart(), "y", {**at, "color": _colour(models)}, strokeWidth=1, opacity=0.4, clip=True),
        height=260,
    )


@_unchecked()
def lines(models: int, domain: Sequence[float], x_title: str, y_title: str) -> dict[str, Any]:
    """Value and interval over an ordered factor, one line per model."""
    at = {
        "x": alt.X(
            "k:N", sort=None, axis=alt.Axis(title=x_title, labelAngle=0, grid=False), scale=alt.Scale(type="point")
        )
    }
    return _layered(
        alt.Chart()
        .mark_point(**_POINT, size=65)
        .encode(y=_quantitative(alt.Y, "v", domain, y_title), color=_colour(models), shape=_shape(models), **at),
        _neutral("y"),
        _band(alt.Chart(), "y", at, models, width=9, fillOpacity=0.1, strokeWidth=1),
        _interval(alt.Chart(), "y", {**at, "color": _colour(models)}, strokeWidth=1.5, opacity=0.6),
        alt.Chart().mark_line(strokeWidth=1.5, opacity=0.8).encode(y=alt.Y("v:Q"), color=_colour(models), **at),
        height=230,
    )


@_unchecked()
def trend(models: int, times: Sequence[str]) -> dict[str, Any]:
    """Values with intervals over the time of the run, one line per model and segment ``g``.

    ``t`` is the time (ms since 1970, UTC), ``p`` true for an incomplete run. A row with ``c`` marks a
    change at a time, one with ``a`` an absent run. ``times`` are the time axis's ends
    (ISO); the value axis's ends and title are each picture's own.
    """
    at = {"x": alt.X("t:T")}
    points = _where("v")
    mark = {"filled": True, "size": 60, "opacity": 1, **_TOOLTIP}
    return _layered(
        points.mark_point(**mark, strokeWidth=1.5).encode(
            x=alt.X(
                "t:T",
                scale=alt.Scale(type="utc", domain=list(times), nice=False),
                # Vega's own hours are twelve, without am or pm.
                axis=alt.Axis(
                    title=captions.TIME_AXIS,
                    grid=False,
                    tickCount=5,
                    labelOverlap="greedy",
                    format={"hours": "%H:%M", "minutes": "%H:%M"},
                ),
            ),
            y=_quantitative(alt.Y, "v", [0, 1], ""),
            color=_colour(models),
            shape=_shape(models),
            fillOpacity=alt.condition("datum.p", alt.value(0.15), alt.value(1)),
            stroke=_colour(models, alt.Stroke),
        ),
        _neutral("y"),
        _where("c").mark_rule(strokeWidth=1.5, strokeDash=[2, 3], color="var(--caution)", **_TOOLTIP).encode(**at),
        _interval(alt.Chart(), "y", {**at, "color": _colour(models)}, strokeWidth=1.5, opacity=0.6, **_TOOLTIP),
        _band(alt.Chart(), "y", at, models, width=9, fillOpacity=0.1, strokeWidth=1),
        points.mark_line(strokeWidth=1.5, opacity=0.8).encode(
            y=alt.Y("v:Q"), color=_colour(models), detail="g:N", **at
        ),
        _where("c").mark_point(shape="triangle-down", color="var(--caution)", **mark).encode(y=alt.value(0), **at),
        _where("a")
        .mark_point(shape="cross", angle=45, color="var(--ink-2)", **mark)
        .encode(y=alt.value("height"), **at),
        height=210,
    )


@_unchecked()
def ternary(models: int, corners: Sequence[str], places: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The triangle of three shares, one point per level, and arrows from the untreated one."""
    grid = [
        {"x": a[0] + (b[0] - a[0]) * t, "y": a[1] + (b[1] - a[1]) * t, "x2": c[0] + (b[0] - c[0]) * t,
         "y2": c[1] + (b[1] - c[1]) * t, "edge": t == 0}
        for a, b, c in ((places[i], places[(i + 1) % 3], places[(i + 2) % 3]) for i in range(3))
        for t in (0, 0.25, 0.5, 0.75)
    ]  # fmt: skip
    names = [
        {"x": px, "y": py + (0.05 if i == 2 else -0.06), "t": name}
        for i, (name, (px, py)) in enumerate(zip(corners, places, strict=True))
    ]
    at = {"x": _place("x"), "y": _place("y")}
    placed = _where("x")
    arrows = _where("x0", placed)
    return _layered(
        placed.mark_point(**_POINT).encode(
            **at, color=_colour(models), size=alt.condition("isValid(datum.x0)", alt.value(36), alt.value(95))
        ),
        alt.Chart(alt.Data(values=grid))
        .mark_rule(strokeWidth=1)
        .encode(
            **at,
            x2="x2",
            y2="y2",
            color=alt.condition("datum.edge", alt.value("var(--axis)"), alt.value("var(--grid)")),
        ),
        alt.Chart(alt.Data(values=names)).mark_text(fontSize=12, fontWeight=600).encode(**at, text="t:N"),
        _where("wx")
        .mark_rule(strokeWidth=1, opacity=0.3)
        .encode(x=_place("wx"), y=_place("wy"), x2="wx2", y2="wy2", color=_colour(models)),
        arrows.mark_rule(strokeWidth=1.5, opacity=0.75).encode(
            x=_place("x0"), y=_place("y0"), x2="x", y2="y", color=_colour(models)
        ),
        arrows.mark_point(**_POINT, shape="triangle-up", size=80).encode(
            **at, color=_colour(models), angle=alt.Angle("a:Q", scale=None)
        ),
        _where("t", placed)
        .transform_calculate(short="slice(datum.t, 0, 14)")
        .mark_text(align="left", dx=8, dy=-6, fontSize=11, fill="var(--ink)")
        .encode(**at, text="short:N"),
        height=300,
    )


@_unchecked()
def forest() -> dict[str, Any]:
    """Differences with intervals, coloured by verdict, over the equivalence margin and the engines' noise."""
    row = {"y": _pair_axis()}
    verdict = {**row, "color": _verdict_colour()}
    return _layered(
        _difference(alt.Chart(), verdict),
        _where("e")
        .transform_calculate(e0="-datum.e")
        .mark_bar(height=30, color="var(--noise)", fillOpacity=0.35)
        .encode(x=alt.X("e0:Q"), x2="e", **row),
        _margin(30, row),
        _zero(),
        *_uncertainty(verdict, 2),
        height=100,
    )


@_unchecked()
def ladder() -> dict[str, Any]:
    """Changes with intervals, coloured by verdict, over the margin; one tick ``t`` per item behind them."""
    row = {"y": _pair_axis()}
    verdict = {**row, "color": _verdict_colour()}
    return _layered(
        _difference(_where("w"), verdict),
        _margin(34, row),
        _zero(),
        _where("t")
        .mark_tick(thickness=1.4, height=18, opacity=0.3, color="var(--accent)", **_TOOLTIP)
        .encode(x=alt.X("t:Q"), **row),
        *_uncertainty(verdict, 2.5),
        height=100,
    )


@_unchecked()
def components(parts: Sequence[str]) -> dict[str, Any]:
    """Stacked bars: the share ``q`` (%) of each ``part``, one bar per label."""
    colours = [f"var(--m{i % COLOURS})" for i in range(len(parts))]
    return _layered(
        alt.Chart()
        .mark_bar(height=20, **_TOOLTIP)
        .encode(
            x=alt.X(
                "q:Q",
                stack="zero",
                scale=alt.Scale(domain=[0, 100], nice=False),
                axis=alt.Axis(title=captions.COMPONENTS_AXIS, tickCount=5),
            ),
            y=alt.Y("k:N", sort=None, axis=alt.Axis(title=None)),
            color=alt.Color(
                "part:N",
                sort=None,
                scale=alt.Scale(domain=list(parts), range=colours),
                legend=alt.Legend(title=None, orient="top", labelColor="var(--ink-2)"),
            ),
            order=alt.Order("o:Q"),
        ),
        height=100,
    )


@_unchecked()
def drift() -> dict[str, Any]:
    """One tick per prompt: its difference between two engines; one row per pair of engines."""
    return _layered(
        alt.Chart()
        .mark_tick(thickness=1.6, height=20, opacity=0.45, color="var(--accent)", **_TOOLTIP)
        .encode(x=_difference_axis(5), y=_pair_axis()),
        _zero(),
        height=100,
    )


@_unchecked()
def noise(across: float, up: float) -> dict[str, Any]:
    """Size of differences between models over the noise of engines, both from 0; the line is where they are equal."""
    return _layered(
        alt.Chart()
        .transform_calculate(d="abs(datum.v)")
        .mark_point(filled=True, shape="diamond", size=60, opacity=0.75, **_TOOLTIP)
        .encode(
            x=_quantitative(alt.X, "e", [0, across], captions.ENGINE_NOISE_AXIS),
            y=_quantitative(alt.Y, "d", [0, up], captions.MODEL_DIFFERENCE_AXIS),
            color=_verdict_colour(),
        ),
        _diagonal(min(across, up)),
        height=260,
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


def _difference(base: alt.Chart, verdict: dict[str, Any]) -> alt.Chart:
    """A mark at the difference, in the colour of its verdict."""
    mark = base.mark_point(filled=True, opacity=1, **_TOOLTIP, size=85, shape="diamond")
    return mark.encode(x=_difference_axis(6), **verdict)


def _margin(height: int, row: dict[str, Any]) -> alt.Chart:
    """The band within which differences do not matter."""
    bar = alt.Chart().transform_filter("datum.g > 0").transform_calculate(g0="-datum.g")
    return bar.mark_bar(height=height, color="var(--margin)", fillOpacity=0.5).encode(x=alt.X("g0:Q"), x2="g", **row)


def _uncertainty(verdict: dict[str, Any], width: float) -> tuple[alt.Chart, alt.Chart]:
    """A difference's bounds, and its interval."""
    bounds = _where("bl").mark_bar(height=10, fillOpacity=0.12, strokeWidth=1.2, strokeDash=[3, 2])
    interval = _interval(alt.Chart(), "x", verdict, strokeWidth=width, **_TOOLTIP)
    return bounds.encode(x=alt.X("bl:Q"), x2="bh", **verdict), interval


def _zero() -> alt.Chart:
    """The line of no difference."""
    data = alt.Data(values=[{"z": 0}])
    return alt.Chart(data).mark_rule(color="var(--axis)", strokeWidth=1.2).encode(x=alt.X("z:Q"))


def _diagonal(end: float) -> alt.Chart:
    """The line on which x and y are equal, from 0."""
    data = alt.Data(values=[{"x": 0, "y": 0}, {"x": end, "y": end}])
    line = alt.Chart(data).mark_line(strokeDash=[2, 3], strokeWidth=1.2, color="var(--axis)")
    return line.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))


def _pair_axis() -> Any:
    """One row per pair of models, named on two lines."""
    axis = alt.Axis(title=None, labelExpr="split(datum.label, '\\n')", labelLineHeight=14)
    return alt.Y("k:N", sort=None, axis=axis)


def _difference_axis(ticks: int) -> Any:
    """The axis of a difference; its ends are each panel's own."""
    axis = alt.Axis(title=captions.DIFFERENCE_AXIS, tickCount=ticks)
    return alt.X("v:Q", axis=axis, scale=alt.Scale(domain=[-1, 1], nice=False))


def _place(name: str) -> Any:
    """A coordinate in the triangle's plane. Every layer must say that it has no axis."""
    channel, ends = (alt.Y, _TERNARY_Y) if "y" in name else (alt.X, _TERNARY_X)
    return channel(f"{name}:Q", scale=alt.Scale(domain=list(ends), nice=False), axis=None)


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

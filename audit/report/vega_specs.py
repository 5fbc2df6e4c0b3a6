"""The Vega-Lite specifications behind the report's plots.

Each takes the number of models and the axes' ends, and draws rows of the dataset ``rows`` (see `plots.Row`):
``v`` a value, ``l``–``h`` its interval, ``bl``–``bh`` bounds where only bounds are known, ``n`` the neutral
value, ``m`` the model's number, ``k`` the row's label. The parameter ``hidden`` lists models not to draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from audit.results import Verdict

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
COLOURS = 10  # --m0 … --m9 in the style sheet
VERDICTS: tuple[Verdict, ...] = ("larger", "smaller", "equivalent", "inconclusive", "not comparable")
_VERDICT_COLOURS = ("larger", "smaller", "equivalent", "inconclusive", "inconclusive")

_TERNARY_X, _TERNARY_Y = (-0.1, 1.1), (-0.1, 0.98)
TERNARY_ASPECT = (_TERNARY_Y[1] - _TERNARY_Y[0]) / (_TERNARY_X[1] - _TERNARY_X[0])

_FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"

#: The look all plots share. Colours are the page's CSS variables, so a change of theme needs no redrawing.
CONFIG: dict[str, Any] = {
    "background": None,
    "font": _FONT,
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

_HOVER = alt.TooltipContent("data")


def dots(models: int, domain: Sequence[float], height: int, title: str, *, dodge: bool = True) -> dict[str, Any]:
    """A row a label, in it a dot with its interval for each model; dodged lanes where models share a row."""
    rows = alt.Y("k:N", sort=None, axis=alt.Axis(title=None))
    lane: dict[str, Any] = {}
    if dodge and models > 1:
        lane = {"yOffset": alt.YOffset("m:N", scale=alt.Scale(domain=list(range(models)), paddingOuter=0.4))}
    x = _quantitative(alt.X, "v", domain, title)
    base = alt.Chart()
    points = base.transform_filter("isValid(datum.m)")
    return _layered(
        points.mark_point(filled=True, size=75, tooltip=_HOVER, cursor="pointer", opacity=1).encode(
            x=x, y=rows, color=_colour(models), shape=_shape(models), **lane
        ),
        _neutral(x="n"),
        base.transform_filter("isValid(datum.u)")
        .mark_tick(thickness=1.5, height=16, color="var(--published)", opacity=0.55, tooltip=_HOVER)
        .encode(x=alt.X("u:Q"), y=rows),
        points.transform_filter("isValid(datum.bl)")
        .mark_bar(height=9, fillOpacity=0.12, strokeWidth=1.2, strokeDash=[3, 2], tooltip=_HOVER, cursor="pointer")
        .encode(x=alt.X("bl:Q"), x2="bh", y=rows, color=_colour(models), stroke=_colour(models, alt.Stroke), **lane),
        points.transform_filter("isValid(datum.l)")
        .mark_rule(strokeWidth=2, tooltip=_HOVER, cursor="pointer")
        .encode(x=alt.X("l:Q"), x2="h", y=rows, color=_colour(models), **lane),
        height=height,
    )


def scatter(
    models: int,
    x_domain: Sequence[float],
    y_domain: Sequence[float],
    x_title: str,
    y_title: str,
    *,
    diagonal: bool,
) -> dict[str, Any]:
    """Value against a covariate, with intervals; the diagonal where both are shares."""
    x, y = _quantitative(alt.X, "x", x_domain, x_title), _quantitative(alt.Y, "v", y_domain, y_title)
    lines = []
    if diagonal:
        top = min(x_domain[1], y_domain[1])
        ends = alt.Data(values=[{"x": 0, "v": 0}, {"x": top, "v": top}])
        lines.append(
            alt.Chart(ends)
            .mark_line(strokeDash=[2, 3], strokeWidth=1.2, color="var(--axis)")
            .encode(x=alt.X("x:Q"), y=alt.Y("v:Q"))
        )
    return _layered(
        alt.Chart()
        .mark_point(filled=True, size=48, opacity=0.9, tooltip=_HOVER, cursor="pointer")
        .encode(x=x, y=y, color=_colour(models), shape=_shape(models)),
        *lines,
        _neutral(y="n"),
        alt.Chart()
        .transform_filter("isValid(datum.bl)")
        .mark_bar(width=7, fillOpacity=0.1, strokeWidth=1, strokeDash=[3, 2], tooltip=_HOVER)
        .encode(x=alt.X("x:Q"), y=alt.Y("bl:Q"), y2="bh", color=_colour(models), stroke=_colour(models, alt.Stroke)),
        alt.Chart()
        .transform_filter("isValid(datum.l)")
        .mark_rule(strokeWidth=1, opacity=0.4, clip=True)
        .encode(x=alt.X("x:Q"), y=alt.Y("l:Q"), y2="h", color=_colour(models)),
        height=260,
    )


def lines(models: int, domain: Sequence[float], x_title: str, y_title: str) -> dict[str, Any]:
    """Value and interval over an ordered factor, a line a model."""
    x = alt.X("k:N", sort=None, axis=alt.Axis(title=x_title, labelAngle=0, grid=False), scale=alt.Scale(type="point"))
    y = _quantitative(alt.Y, "v", domain, y_title)
    return _layered(
        alt.Chart()
        .mark_point(filled=True, size=65, opacity=1, tooltip=_HOVER, cursor="pointer")
        .encode(x=x, y=y, color=_colour(models), shape=_shape(models)),
        _neutral(y="n"),
        alt.Chart()
        .transform_filter("isValid(datum.bl)")
        .mark_bar(width=9, fillOpacity=0.1, strokeWidth=1, strokeDash=[3, 2], tooltip=_HOVER)
        .encode(x=x, y=alt.Y("bl:Q"), y2="bh", color=_colour(models), stroke=_colour(models, alt.Stroke)),
        alt.Chart()
        .transform_filter("isValid(datum.l)")
        .mark_rule(strokeWidth=1.5, opacity=0.6)
        .encode(x=x, y=alt.Y("l:Q"), y2="h", color=_colour(models)),
        alt.Chart().mark_line(strokeWidth=1.5, opacity=0.8).encode(x=x, y=alt.Y("v:Q"), color=_colour(models)),
        height=230,
    )


def trend(models: int, times: Sequence[str]) -> dict[str, Any]:
    """Values with intervals over the time of the run, one line a model and stretch ``g``.

    ``t`` is the time (ms since 1970, UTC), ``p`` true for an incomplete run. A row with ``c`` marks a
    change at a time, one with ``a`` an absent run. ``times`` are the time axis's ends
    (ISO); the value axis's ends and title are each picture's own.
    """
    x = alt.X(
        "t:T",
        scale=alt.Scale(type="utc", domain=list(times), nice=False),
        axis=alt.Axis(title="time of the run (UTC)", grid=False, tickCount=5, labelOverlap="greedy"),
    )
    y = _quantitative(alt.Y, "v", [0, 1], "")
    points = alt.Chart().transform_filter("isValid(datum.v)")
    mark = {"filled": True, "size": 60, "tooltip": _HOVER}
    return _layered(
        points.mark_point(**mark, opacity=1, strokeWidth=1.5).encode(
            x=x,
            y=y,
            color=_colour(models),
            shape=_shape(models),
            fillOpacity=alt.condition("datum.p", alt.value(0.15), alt.value(1)),
            stroke=_colour(models, alt.Stroke),
        ),
        _neutral(y="n"),
        alt.Chart()
        .transform_filter("isValid(datum.c)")
        .mark_rule(strokeWidth=1.5, strokeDash=[2, 3], color="var(--caution)", tooltip=_HOVER)
        .encode(x=alt.X("t:T")),
        alt.Chart()
        .transform_filter("isValid(datum.l)")
        .mark_rule(strokeWidth=1.5, opacity=0.6, tooltip=_HOVER)
        .encode(x=alt.X("t:T"), y=alt.Y("l:Q"), y2="h", color=_colour(models)),
        alt.Chart()
        .transform_filter("isValid(datum.bl)")
        .mark_bar(width=9, fillOpacity=0.1, strokeWidth=1, strokeDash=[3, 2], tooltip=_HOVER)
        .encode(x=alt.X("t:T"), y=alt.Y("bl:Q"), y2="bh", color=_colour(models), stroke=_colour(models, alt.Stroke)),
        points.mark_line(strokeWidth=1.5, opacity=0.8).encode(
            x=alt.X("t:T"), y=alt.Y("v:Q"), color=_colour(models), detail="g:N"
        ),
        alt.Chart()
        .transform_filter("isValid(datum.c)")
        .mark_point(shape="triangle-down", color="var(--caution)", **mark, opacity=1)
        .encode(x=alt.X("t:T"), y=alt.value(0)),
        alt.Chart()
        .transform_filter("isValid(datum.a)")
        .mark_point(shape="cross", angle=45, color="var(--ink-2)", **mark, opacity=1)
        .encode(x=alt.X("t:T"), y=alt.value("height")),
        height=210,
    )


def ternary(models: int, corners: Sequence[str], places: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The triangle of three shares, a point a level, and arrows from the untreated one."""
    x, y = _place("x"), _place("y")
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
    placed = alt.Chart().transform_filter("isValid(datum.x)")
    arrows = placed.transform_filter("isValid(datum.x0)")
    return _layered(
        placed.mark_point(filled=True, opacity=1, tooltip=_HOVER, cursor="pointer").encode(
            x=x,
            y=y,
            color=_colour(models),
            size=alt.condition("isValid(datum.x0)", alt.value(36), alt.value(95)),
        ),
        alt.Chart(alt.Data(values=grid))
        .mark_rule(strokeWidth=1)
        .encode(
            x=_place("x"),
            y=_place("y"),
            x2="x2",
            y2="y2",
            color=alt.condition("datum.edge", alt.value("var(--axis)"), alt.value("var(--grid)")),
        ),
        alt.Chart(alt.Data(values=names))
        .mark_text(fontSize=12, fontWeight=600)
        .encode(x=_place("x"), y=_place("y"), text="t:N"),
        alt.Chart()
        .transform_filter("isValid(datum.wx)")
        .mark_rule(strokeWidth=1, opacity=0.3)
        .encode(x=_place("wx"), y=_place("wy"), x2="wx2", y2="wy2", color=_colour(models)),
        arrows.mark_rule(strokeWidth=1.5, opacity=0.75).encode(
            x=_place("x0"), y=_place("y0"), x2="x", y2="y", color=_colour(models)
        ),
        arrows.mark_point(
            filled=True, shape="triangle-up", size=80, opacity=1, tooltip=_HOVER, cursor="pointer"
        ).encode(x=x, y=y, color=_colour(models), angle=alt.Angle("a:Q", scale=None)),
        placed.transform_filter("isValid(datum.t)")
        .transform_calculate(short="slice(datum.t, 0, 14)")
        .mark_text(align="left", dx=8, dy=-6, fontSize=11, fill="var(--ink)")
        .encode(x=x, y=y, text="short:N"),
        height=300,
    )


def forest() -> dict[str, Any]:
    """Differences with intervals, coloured by verdict, over the equivalence margin and the engines' noise."""
    y = alt.Y(
        "k:N",
        sort=None,
        axis=alt.Axis(title=None, labelExpr="split(datum.label, '\\n')", labelLineHeight=14),
    )
    verdict = _verdict_colour()
    x = alt.X("v:Q", axis=alt.Axis(title="difference", tickCount=6), scale=alt.Scale(domain=[-1, 1], nice=False))
    return _layered(
        alt.Chart()
        .mark_point(filled=True, size=85, opacity=1, tooltip=_HOVER, shape="diamond")
        .encode(x=x, y=y, color=verdict),
        alt.Chart()
        .transform_filter("isValid(datum.e)")
        .transform_calculate(e0="-datum.e")
        .mark_bar(height=30, color="var(--noise)", fillOpacity=0.35)
        .encode(x=alt.X("e0:Q"), x2="e", y=y),
        alt.Chart()
        .transform_filter("datum.g > 0")
        .transform_calculate(g0="-datum.g")
        .mark_bar(height=30, color="var(--margin)", fillOpacity=0.5)
        .encode(x=alt.X("g0:Q"), x2="g", y=y),
        alt.Chart(alt.Data(values=[{"z": 0}])).mark_rule(color="var(--axis)", strokeWidth=1.2).encode(x=alt.X("z:Q")),
        alt.Chart()
        .transform_filter("isValid(datum.bl)")
        .mark_bar(height=10, fillOpacity=0.12, strokeWidth=1.2, strokeDash=[3, 2])
        .encode(x=alt.X("bl:Q"), x2="bh", y=y, color=verdict),
        alt.Chart()
        .transform_filter("isValid(datum.l)")
        .mark_rule(strokeWidth=2, tooltip=_HOVER)
        .encode(x=alt.X("l:Q"), x2="h", y=y, color=verdict),
        height=100,
    )


def drift() -> dict[str, Any]:
    """A tick a prompt: its difference between two engines, a row a pair of engines."""
    y = alt.Y("k:N", sort=None, axis=alt.Axis(title=None, labelExpr="split(datum.label, '\\n')", labelLineHeight=14))
    x = alt.X("v:Q", axis=alt.Axis(title="difference", tickCount=5), scale=alt.Scale(domain=[-1, 1], nice=False))
    return _layered(
        alt.Chart()
        .mark_tick(thickness=1.6, height=20, opacity=0.45, color="var(--accent)", tooltip=_HOVER)
        .encode(x=x, y=y),
        alt.Chart(alt.Data(values=[{"z": 0}])).mark_rule(color="var(--axis)", strokeWidth=1.2).encode(x=alt.X("z:Q")),
        height=100,
    )


def noise(across: float, up: float) -> dict[str, Any]:
    """Size of differences between models over the noise of engines, both from 0; the line is where they are equal."""
    x = _quantitative(alt.X, "e", [0, across], "largest difference between engines, same weights")
    y = alt.Y(
        "d:Q",
        scale=alt.Scale(domain=[0, up], nice=False),
        axis=alt.Axis(title="size of the difference between models", tickCount=5),
    )
    end = min(across, up)
    equal = alt.Data(values=[{"x": 0, "y": 0}, {"x": end, "y": end}])
    return _layered(
        alt.Chart()
        .transform_calculate(d="abs(datum.v)")
        .mark_point(filled=True, shape="diamond", size=60, opacity=0.75, tooltip=_HOVER)
        .encode(x=x, y=y, color=_verdict_colour()),
        alt.Chart(equal)
        .mark_line(strokeDash=[2, 3], strokeWidth=1.4, color="var(--axis)")
        .encode(x=alt.X("x:Q"), y=alt.Y("y:Q")),
        height=260,
    )


def _verdict_colour() -> Any:
    """The colour of a verdict's number ``w``."""
    colours = [f"var(--v-{name})" for name in _VERDICT_COLOURS]
    return alt.Color("w:N", legend=None, scale=alt.Scale(domain=list(range(len(VERDICTS))), range=colours))


def _layered(top: alt.Chart, *below: alt.Chart, height: int) -> dict[str, Any]:
    """Layers in drawing order: ``below``, then ``top``, whose axes are the plot's."""
    chart = (
        alt.layer(*below, top, data=alt.NamedData(name="rows"))
        .transform_filter("indexof(hidden, datum.m) < 0")
        .properties(width="container", height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    )
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("config", None)
    spec["params"] = [{"name": "hidden", "value": []}]
    return spec


def _neutral(**field: str) -> alt.Chart:
    """A dashed line at the value of a model without bias."""
    ((axis, name),) = field.items()
    channel = alt.X(f"{name}:Q", aggregate="min") if axis == "x" else alt.Y(f"{name}:Q", aggregate="min")
    return (
        alt.Chart()
        .transform_filter("isValid(datum.n)")
        .mark_rule(strokeDash=[5, 4], strokeWidth=1.2, color="var(--neutral)")
        .encode(**{axis: channel})
    )


def _place(name: str) -> Any:
    """A coordinate in the triangle's plane. Every layer must say that it has no axis."""
    upright = "y" in name
    channel, ends = (alt.Y, _TERNARY_Y) if upright else (alt.X, _TERNARY_X)
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

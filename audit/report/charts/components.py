"""The chart of a figure's variance components."""

from __future__ import annotations

from audit.report.charts import vega_specs as specs
from audit.report.charts.plots import Panel, Plot, Row
from audit.report.figures import Figures
from audit.report.formatting import factor_label, measure_label, one_line, shortened
from audit.report.phrases import captions
from audit.results import VarianceComponents, where_key


def components_plot(figures: Figures, suite: str) -> Plot | None:
    """The components of the suite's headline figures as shares of an item's variance: one bar for each model."""
    panels: list[Panel] = []
    coefficients: list[tuple[str, str, float]] = []
    for (name, where), label in zip(figures.headline(suite), figures.headline_labels(suite), strict=True):
        rows: list[Row] = []
        for one in figures.result.components:
            is_of_figure = (one.suite, one.measure, where_key(one.where)) == (suite, name, where_key(where))
            if one.against is None and is_of_figure and (shares := _shares(one)):
                rows += shares
                if one.generalisability is not None and len(one.factors) > 1:
                    coefficients.append((one.model, next(iter(one.factors)), one.generalisability))
        if rows:
            panels.append(Panel(f"{measure_label(name)}: {label}" if label else measure_label(name), rows))
    if not panels:
        return None
    parts = list(dict.fromkeys(row["part"] for panel in panels for row in panel.rows))
    return Plot(
        captions.COMPONENTS_TITLE,
        captions.components_caption(coefficients),
        specs.components(parts),
        panels,
        "components",
        heights=[28 * len({row["k"] for row in panel.rows}) + 8 for panel in panels],
    )


def _shares(one: VarianceComponents) -> list[Row]:
    """Each part of an item's variance in per cent; empty if nothing varies. The cross excludes the engine's part."""
    parts = {factor_label(name): variance for name, variance in one.factors.items()}
    if one.cross is not None:
        parts[captions.CROSS] = max(one.cross - (one.engine or 0.0), 0.0)
    if one.sampling is not None:
        parts[captions.SAMPLING] = one.sampling
    if one.engine is not None:
        parts[captions.ENGINE] = one.engine
    total = sum(parts.values())
    return [
        {"k": one_line(one.model), "part": part, "q": shortened(100 * variance / total), "o": place}
        for place, (part, variance) in enumerate(parts.items())
        if total > 0
    ]

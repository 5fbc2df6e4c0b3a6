"""Plots of differences: between models on the same items, and what each change of a model does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from audit.analysis.comparing.engine_noise import evenly_spread
from audit.report.charts import vega_specs as specs
from audit.report.charts.plots import Panel, Plot, Row, value_ends
from audit.report.figures import Figures
from audit.report.formatting import measure_label, shortened, unit_label, where_label
from audit.report.phrases.comparisons import changes, effect, rungs
from audit.report.plain_text import one_line
from audit.results import Comparison, where_key

#: Differences on a page, for all suites together. The others are in comparisons.csv: ten models have tens of
#: thousands, and the page must stay small enough to mail.
FOREST_ROWS = 8_000
_ITEMS = 120  # drawn of each step


def forest_plot(figures: Figures, suite: str) -> Plot | None:
    """Paired differences between models, one panel a figure; the page shows one panel at a time.

    The suite's headline figures come first; those beyond the suite's share of `FOREST_ROWS` are left
    out, and the caption says so.
    """
    grouped: dict[tuple[str, Any], list[Comparison]] = {}
    for c in figures.result.comparisons:
        if c.suite == suite and not c.is_subgroup:
            grouped.setdefault((c.measure, where_key(c.where)), []).append(c)
    headline = [(name, where_key(where)) for name, where in figures.headline(suite)]
    order = [key for key in headline if key in grouped] + [key for key in grouped if key not in headline]
    room = FOREST_ROWS // len(figures.result.suites)
    panels: list[Panel] = []
    for key in order:
        comparisons = grouped[key]
        if panels and sum(len(p.rows) for p in panels) + len(comparisons) > room:
            break
        rows = [_comparison_row(figures, c) for c in comparisons]
        axis = _axis(figures, comparisons[0])
        title = f"{measure_label(comparisons[0].measure)}: {where_label(comparisons[0].where)}"
        panels.append(Panel(title, rows, ends=_ends(rows), axis=axis))
    if not panels:
        return None
    left_out = len(order) - len(panels)
    fields = {name for p in panels for r in p.rows for name in r}
    marks = {"value": True, "interval": True, "bounds": "bl" in fields, "margin": True, "noise": "e" in fields}
    return Plot(
        "Differences between models, on the same items",
        f"{left_out:,} more figures are compared in comparisons.csv." if left_out else "",
        specs.forest(),
        panels,
        "forest",
        heights=[34 * len(p.rows) + 8 for p in panels],
        marks=tuple(name for name, drawn in marks.items() if drawn),
    )


def _axis(figures: Figures, c: Comparison) -> str:
    """What a difference is of, and its unit."""
    measures = figures.by_model(c.suite, c.measure, c.where)
    unit = unit_label(measures[0].unit) if measures else ""
    return f"{specs.DIFFERENCE_AXIS} in {measure_label(c.measure)}{f' ({unit})' if unit else ''}"


def ladder_plot(figures: Figures, suite: str) -> Plot | None:
    """The steps of the ladder on a suite's headline figures: each step's mean change, and those of its items."""
    panels: dict[str, list[Row]] = {}
    names: dict[str, int] = {}
    for step, measure, decided in figures.step_decisions(suite):
        label = f"{rungs(step)}\n{changes(step)}"
        for condition, c in decided:
            title = f"{measure_label(measure)}: {condition}" if condition else measure_label(measure)
            rows = panels.setdefault(title, [])
            rows.append({**_drawn_comparison(c), "k": label, "s": effect(c)})
            quantity = figures.by_model(suite, measure, c.where)[0].spec.quantity
            where = where_key(c.where)
            behind = [i for i in step.items if quantity in i.quantities and where <= where_key(i.factors)]
            for item in evenly_spread(behind, _ITEMS):
                number = names.setdefault(one_line(item.item), len(names))
                rows.append({"k": label, "t": shortened(item.quantities[quantity]), "i": number})
    if not panels:
        return None
    return Plot(
        "What each change does, item by item",
        "Each row is a step: the same items, with one thing changed. The diamond is the mean change with its interval; "
        "each mark is one item.",
        specs.forest(),
        [Panel(title, rows, ends=_ends(rows)) for title, rows in panels.items()],
        "ladder",
        heights=[44 * len({row["k"] for row in rows}) + 8 for rows in panels.values()],
        marks=("value", "interval", "margin", "verdicts", *(["item"] if names else [])),
        names=list(names),
    )


def _comparison_row(figures: Figures, c: Comparison) -> Row:
    """A difference b − a: the models' numbers, the drawn numbers, the verdict's number."""
    row = {"a": figures.model_number[c.a], "b": figures.model_number[c.b], **_drawn_comparison(c)}
    return row if c.engine_noise is None else {**row, "e": shortened(c.engine_noise)}


def _drawn_comparison(c: Comparison) -> Row:
    row = {
        "v": shortened(c.difference),
        "l": shortened(c.low),
        "h": shortened(c.high),
        "g": c.margin,
        "w": specs.VERDICTS.index(c.verdict),
        "p": shortened(c.p_adjusted),
    }
    if c.bound_low is not None and c.bound_high is not None and c.bound_high > c.bound_low:
        row |= {"bl": shortened(c.bound_low), "bh": shortened(c.bound_high)}
    return row


def _ends(rows: Sequence[Row]) -> list[float]:
    """Axis limits that include zero, the margin, the noise, and every interval, bound and item."""
    fields = ("v", "l", "h", "bl", "bh", "g", "e", "t")
    ends = [0.0, *_known(row.get(name) for row in rows for name in fields)]
    ends += [-end for end in _known(row.get(name) for row in rows for name in ("g", "e"))]
    return [float(f"{end:.4g}") for end in value_ends(ends)]


def _known(numbers: Iterable[float | None]) -> list[float]:
    return [x for x in numbers if x is not None]

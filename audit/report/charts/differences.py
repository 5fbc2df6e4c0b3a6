"""Plots of differences: between models on the same items, between engines with one model, and what each change does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from audit.analysis.comparing.engine_noise import evenly_spread
from audit.report.charts import vega_specs as specs
from audit.report.charts.plots import Panel, Plot, Row, value_ends
from audit.report.figures import Figures
from audit.report.formatting import measure_label, one_line, shortened, where_label
from audit.report.phrases import captions
from audit.report.phrases.findings.ladder import changes, effect, rungs
from audit.results import Comparison, PromptDrift, where_key

#: Differences on a page, for all suites together. The others are in comparisons.csv: ten models have tens of
#: thousands, and the page must stay small enough to mail.
FOREST_ROWS = 8_000
_DRIFT_PROMPTS = 120  # per pair of engines, to keep a page with six pairs small
_NOISE_POINTS = 4_000  # differences beside their noise, of all suites together


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
        axis = captions.difference_axis(figures.by_model(suite, comparisons[0].measure, comparisons[0].where))
        panels.append(Panel(_name(comparisons[0]), rows, ends=_comparison_ends(comparisons), axis=axis))
    if not panels:
        return None
    fields = {name for p in panels for r in p.rows for name in r}
    marks = {"value": True, "interval": True, "bounds": "bl" in fields, "margin": True, "noise": "e" in fields}
    return Plot(
        captions.DIFFERENCES_TITLE,
        captions.left_out_comparisons(len(order) - len(panels)),
        specs.forest(),
        panels,
        "forest",
        heights=[34 * len(p.rows) + 8 for p in panels],
        marks=tuple(name for name, drawn in marks.items() if drawn),
    )


def ladder_plot(figures: Figures, suite: str) -> Plot | None:
    """The steps of the ladder on a suite's headline figures: each step's mean change, and those of its items."""
    panels: dict[str, list[Row]] = {}
    names: dict[str, int] = {}
    steps = list(figures.step_decisions(suite))
    for step, measure, decided in steps:
        label = f"{rungs(step)}\n{changes(step)}"
        for condition, c in decided:
            title = f"{measure_label(measure)}: {condition}" if condition else measure_label(measure)
            rows = panels.setdefault(title, [])
            rows.append({**_drawn_comparison(c), "k": label, "s": effect(c)})
            quantity = figures.by_model(suite, measure, c.where)[0].spec.quantity
            where = where_key(c.where)
            behind = [i for i in step.items if quantity in i.quantities and where <= where_key(i.factors)]
            for item in evenly_spread(behind, _DRIFT_PROMPTS):
                number = names.setdefault(one_line(item.item), len(names))
                rows.append({"k": label, "t": shortened(item.quantities[quantity]), "i": number})
    if not panels:
        return None
    drawn = []
    for title, rows in panels.items():
        ends = [x for row in rows for name in ("v", "l", "h", "bl", "bh", "g", "t") if (x := row.get(name)) is not None]
        drawn.append(Panel(title, rows, ends=_rounded(value_ends([0.0, *ends, *(-row.get("g", 0.0) for row in rows)]))))
    return Plot(
        captions.LADDER_TITLE,
        captions.LADDER_CAPTION,
        specs.ladder(),
        drawn,
        "ladder",
        heights=[44 * len({row["k"] for row in panel.rows}) + 8 for panel in drawn],
        marks=("value", "interval", "margin", "verdicts", *(["item"] if names else [])),
        names=list(names),
    )


def drift_plot(figures: Figures, suite: str) -> Plot | None:
    """One mark per prompt: the difference of its answers between two engines with the same model."""
    drifts = [drift for drift in figures.result.drift if drift.suite == suite and drift.prompts]
    if not drifts:
        return None
    drawn = [(drift, evenly_spread(drift.prompts, _DRIFT_PROMPTS)) for drift in drifts]
    names = list(dict.fromkeys(one_line(prompt.item) for _, prompts in drawn for prompt in prompts))
    number = {name: i for i, name in enumerate(names)}
    of_prompt: dict[str, Callable[[PromptDrift], float | None]] = {
        captions.DRIFT_LOGPROB: lambda prompt: prompt.logprob,
        captions.DRIFT_VARIATION: lambda prompt: prompt.variation,
    }
    for name in dict.fromkeys(name for _, prompts in drawn for prompt in prompts for name in prompt.quantities):
        of_prompt[measure_label(name)] = lambda prompt, name=name: prompt.quantities.get(name)  # type: ignore[misc]
    panels = []
    for title, difference in of_prompt.items():
        rows = [
            {**_pair(figures, drift), "v": shortened(value), "i": number[one_line(prompt.item)]}
            for drift, prompts in drawn
            for prompt in prompts
            if (value := difference(prompt)) is not None
        ]
        if rows:
            panels.append(Panel(title, rows, ends=_rounded(value_ends([0.0, *(row["v"] for row in rows)]))))
    caption = captions.drift_caption(max(len(p) for _, p in drawn), max(drift.n_prompts for drift in drifts))
    return Plot(
        captions.DRIFT_TITLE,
        caption,
        specs.drift(),
        panels,
        "drift",
        heights=[36 * len(drifts) + 8] * len(panels),
        marks=("prompt",),
        names=names,
    )


def noise_plot(figures: Figures, suite: str) -> Plot | None:
    """Each difference between two models against one model's difference between engines, on the same figure."""
    known = [
        c
        for c in figures.result.comparisons
        if c.suite == suite and not c.is_subgroup and c.engine_noise is not None and c.difference is not None
    ]
    if not known:
        return None
    drawn = evenly_spread(known, _NOISE_POINTS // len(figures.result.suites))
    names: dict[str, int] = {}
    rows = [{**_comparison_row(figures, c), "i": names.setdefault(_name(c), len(names))} for c in drawn]
    tops = max(row["e"] for row in rows), max(abs(row["v"]) for row in rows)
    return Plot(
        captions.NOISE_TITLE,
        captions.noise_caption(sum(c.within_noise for c in known), len(known), len(drawn)),
        specs.noise(*_rounded([1.08 * top or 1.0 for top in tops])),
        [Panel("", rows)],
        "noise",
        aspect=0.6,
        marks=("verdicts", "equal"),
        names=list(names),
    )


def _comparison_row(figures: Figures, c: Comparison) -> Row:
    """A difference b − a: the models' numbers, the drawn numbers, the verdict's number."""
    row = {**_pair(figures, c), **_drawn_comparison(c)}
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


def _pair(figures: Figures, pair: Any) -> Row:
    return {"a": figures.model_number[pair.a], "b": figures.model_number[pair.b]}


def _name(c: Comparison) -> str:
    return f"{measure_label(c.measure)}: {where_label(c.where)}"


def _comparison_ends(comparisons: list[Comparison]) -> list[float]:
    """Axis limits that include zero, the margin, and every interval and bound."""
    ends = [0.0]
    for c in comparisons:
        ends += [x for x in (c.difference, c.low, c.high, c.bound_low, c.bound_high) if x is not None]
        ends += [-c.margin, c.margin, -(c.engine_noise or 0.0), c.engine_noise or 0.0]
    room = (max(ends) - min(ends)) * 0.05 or 0.5
    return _rounded([min(ends) - room, max(ends) + room])


def _rounded(ends: list[float]) -> list[float]:
    return [float(f"{end:.4g}") for end in ends]

"""Pictures of what engines add: prompt by prompt between the same weights, and beside differences between models."""

from __future__ import annotations

from collections.abc import Callable

from audit.analysis.engine_noise import evenly_spread
from audit.report import vega_specs as specs
from audit.report.charts import Panel, Plot, Row, forest_row, short, value_ends
from audit.report.figures import Figures
from audit.report.labels import measure_label, where_label
from audit.report.safe_text import one_line
from audit.results import PromptDrift

_DRAWN = 120  # prompts of each pair of engines, so that six pairs keep the page small
_POINTS = 4_000  # differences beside their noise, of all suites together


def drift_plot(figures: Figures, suite: str) -> Plot | None:
    """A mark a prompt: how far its answers are apart between two engines with the same weights."""
    drifts = [drift for drift in figures.result.drift if drift.suite == suite and drift.prompts]
    if not drifts:
        return None
    shown = [(drift, evenly_spread(drift.prompts, _DRAWN)) for drift in drifts]
    items = {one_line(prompt.item): 0 for _, prompts in shown for prompt in prompts}
    number = {item: i for i, item in enumerate(items)}

    def panel(title: str, take: Callable[[PromptDrift], float | None]) -> Panel:
        rows: list[Row] = []
        for drift, prompts in shown:
            pair = {"a": figures.model_number[drift.a], "b": figures.model_number[drift.b]}
            for prompt in prompts:
                if (value := take(prompt)) is not None:
                    rows.append({**pair, "v": short(value), "i": number[one_line(prompt.item)]})
        return Panel(title, rows, ends=[float(f"{x:.4g}") for x in value_ends([0.0, *(row["v"] for row in rows)])])

    quantities = dict.fromkeys(name for _, prompts in shown for prompt in prompts for name in prompt.quantities)
    panels = [panel("log-probability (nats), mean over a prompt's continuations", lambda prompt: prompt.logprob)]
    panels += [panel("total variation between the two distributions, 0 to 1", lambda prompt: prompt.variation)]
    panels += [panel(measure_label(name), lambda prompt, name=name: prompt.quantities.get(name)) for name in quantities]  # type: ignore[misc]
    panels = [one for one in panels if one.rows]
    most = max(len(prompts) for _, prompts in shown)
    whole = max(drift.n_prompts for drift in drifts)
    sample = f"; {most} of {whole:,} prompts are drawn, evenly spread" if most < whole else ""
    return Plot(
        "The same weights on different engines, prompt by prompt",
        f"Each mark is one prompt: the second engine's answer minus the first's{sample}. 0: no difference.",
        specs.drift(),
        panels,
        "drift",
        heights=[36 * len(drifts) + 8] * len(panels),
        marks=("prompt",),
        names=list(items),
    )


def noise_plot(figures: Figures, suite: str) -> Plot | None:
    """Each difference between two models beside what the same weights differ by on the same figure."""
    told = [
        c
        for c in figures.result.comparisons
        if c.suite == suite and not c.is_subgroup and c.engine_noise is not None and c.difference is not None
    ]
    if not told:
        return None
    drawn = evenly_spread(told, _POINTS // len(figures.result.suites))
    names: dict[str, int] = {}
    rows = []
    for c in drawn:
        name = f"{measure_label(c.measure)}: {where_label(c.where)}"
        rows.append({**forest_row(figures, c), "i": names.setdefault(name, len(names))})
    small = sum(c.within_noise for c in told)
    tops = max(row["e"] for row in rows), max(abs(row["v"]) for row in rows)
    across, up = (float(f"{1.08 * top or 1.0:.4g}") for top in tops)
    verb = "difference is" if small == 1 else "differences are"
    sample = f" {len(drawn):,} of them are drawn, evenly spread." if len(drawn) < len(told) else ""
    return Plot(
        "Differences between models against the noise of the engines",
        f"Below the line a difference is smaller than the engines' noise: {small:,} of {len(told):,} {verb}.{sample} "
        "The noise of a figure is the largest difference that engines make to it with the same weights.",
        specs.noise(across, up),
        [Panel("", rows)],
        "noise",
        aspect=0.6,
        marks=("verdicts", "equal"),
        names=list(names),
    )

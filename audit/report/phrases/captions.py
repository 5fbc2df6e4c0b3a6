"""Titles, captions, axis titles and cell notes of charts and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audit.report.formatting import factor_label, measure_label, one_line, unit_label
from audit.results import Agreement, Measure

HEADLINE_TITLE = "The answer in one picture"
DIFFERENCES_TITLE = "Differences between models, on the same items"
DRIFT_TITLE = "The same model on different engines, prompt by prompt"
NOISE_TITLE = "Differences between models against the noise of the engines"

COMPONENTS_TITLE = "Where the spread comes from"
COMPONENTS_AXIS = "share of the variance of single items (%)"
CROSS, SAMPLING, ENGINE = "their combination", "sampling", "engine"
LADDER_TITLE = "What each change does, item by item"
LADDER_CAPTION = (
    "Each row is a step: the same items, with one thing changed in the model or in how it is asked. The diamond is the "
    "mean change with its interval, decided for that step alone; each mark is one item."
)

DRIFT_LOGPROB = "log-probability (nats), mean over a prompt's continuations"
DRIFT_VARIATION = "total variation between the two distributions, 0 to 1"

DIFFERENCE_AXIS = "difference"
MODEL_DIFFERENCE_AXIS = "size of the difference between models"
ENGINE_NOISE_AXIS = "largest difference between engines, same model"
TIME_AXIS = "time of the run (UTC)"

MEASURED_HERE, PUBLISHED = "Measured in this run", "Published"
MEASURED_MINUS_PUBLISHED = "Measured minus published, on the paper's own model"
UNKNOWN_PLUS_MINUS = "paper's own, not this report's interval"
NOT_PRINTED = "not printed in the paper"
DATA_QUALITY_TITLE = "Data quality"


def left_out_comparisons(n: int) -> str:
    """Which differences the page leaves out."""
    return f"To keep the page small, {n:,} further figures are compared in comparisons.csv only." if n else ""


def drift_caption(drawn: int, prompts: int) -> str:
    """How to read the differences between two engines, of which ``drawn`` prompts are shown."""
    sample = f"; {drawn} of {prompts:,} prompts are drawn, evenly spread" if drawn < prompts else ""
    return f"Each mark is one prompt: the second engine's answer minus the first's{sample}. 0: no difference."


def noise_caption(below: int, total: int, drawn: int) -> str:
    """How many differences between models are smaller than the engines' noise."""
    verb = "difference is" if below == 1 else "differences are"
    sample = f" {drawn:,} of them are drawn, evenly spread." if drawn < total else ""
    return (
        f"Below the line a difference is smaller than the engines' noise: {below:,} of {total:,} {verb}.{sample} "
        "The noise of a figure is its largest difference between engines with the same model."
    )


def difference_axis(measures: Sequence[Measure]) -> str:
    """What a difference is of, and its unit."""
    unit = unit_label(measures[0].unit) if measures else ""
    name = f" in {measure_label(measures[0].measure)}" if measures else ""
    return f"{DIFFERENCE_AXIS}{name}{f' ({unit})' if unit else ''}"


def components_caption(coefficients: Sequence[tuple[str, str, float]]) -> str:
    """How to read the components; ``coefficients`` are (model, first factor, Eρ²)."""
    said = "; ".join(f"{one_line(model)} {value:.2f}" for model, _, value in coefficients)
    factors = ", ".join(dict.fromkeys(factor_label(factor) for _, factor, _ in coefficients))
    coefficient = (
        f" Generalisability over new levels of the other factors, of each {factors}: {said} (1: they would be ordered "
        "the same; 0: by chance)."
        if coefficients
        else ""
    )
    return (
        "Why single items of the same fixed group differ: each bar is a model, and a long part means that its answers "
        f"depend much on that.{coefficient}"
    )


def missing_reason(measure: Measure | None) -> str:
    """Why a figure has no value."""
    if measure is None:
        return "not measured"
    if measure.n_items == 0 and measure.missing:
        return f"no readable answer ({measure.missing} missing)"
    if measure.n_items == 0:
        return "no items"
    return "not defined for these answers"


def published_block(model: str | None, plus_minus: str | None) -> str:
    """The heading of a published model's rows, or of all (None), with the meaning of its ± if it has one."""
    heading = PUBLISHED if model is None else f"{model} (published)"
    return heading if plus_minus is None else f"{heading}; ± is the {plus_minus or UNKNOWN_PLUS_MINUS}"


def published_source(source: Mapping[str, Any]) -> str:
    """Where printed figures come from, and how their design differs from the measured one."""
    difference = f" {source['difference']}" if source["difference"] else ""
    return f"Published figures: {source['paper']}, {source['table']}, made by {source['made_by']}.{difference}"


def difference_row(model: str, published_model: str) -> str:
    """The label of a row of differences."""
    return f"{model} − {published_model}"


def agreement_reason(agreement: Agreement) -> str:
    """How to read a difference from a printed figure."""
    return {
        "within rounding": "the same to the last printed digit",
        "within the interval": "not the same, but the printed figure lies in the measured interval",
        "differs": "the printed figure lies outside the measured interval",
        "unknown": "nothing to compare: the measured figure is known only by bounds",
    }[agreement]

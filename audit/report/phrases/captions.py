"""Titles, captions, axis titles and cell notes of charts and tables."""

from __future__ import annotations

from audit.results import Measure

HEADLINE_TITLE = "The answer in one picture"
DIFFERENCES_TITLE = "Differences between models, on the same items"
DRIFT_TITLE = "The same model on different engines, prompt by prompt"
NOISE_TITLE = "Differences between models against the noise of the engines"

LADDER_TITLE = "What each change does, item by item"
LADDER_CAPTION = (
    "A row is a step: the same items with one thing of the model, or of how it is asked, changed. The diamond is the "
    "mean change with its interval, decided for that step alone; each mark is one item."
)

DRIFT_LOGPROB = "log-probability (nats), mean over a prompt's continuations"
DRIFT_VARIATION = "total variation between the two distributions, 0 to 1"

DIFFERENCE_AXIS = "difference"
MODEL_DIFFERENCE_AXIS = "size of the difference between models"
ENGINE_NOISE_AXIS = "largest difference between engines, same model"
TIME_AXIS = "time of the run (UTC)"

MEASURED_HERE, PUBLISHED = "Measured in this run", "Published"
NOT_PRINTED = "not printed in the paper"
DATA_QUALITY_TITLE = "Data quality"


def left_out_comparisons(n: int) -> str:
    """Which differences the page does not hold."""
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


def missing_reason(measure: Measure | None) -> str:
    """Why a figure has no value."""
    if measure is None:
        return "not measured"
    if measure.n_items == 0 and measure.missing:
        return f"no readable answer ({measure.missing} missing)"
    if measure.n_items == 0:
        return "no items"
    return "not defined for these answers"


def published_block(model: str) -> str:
    """The heading of a published model's rows."""
    return f"{model} (published)"

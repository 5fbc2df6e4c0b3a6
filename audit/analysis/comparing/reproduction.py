"""Reproduction of a paper's own model: how far each measured figure is from the printed one."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

from audit.results import Agreement, Measure, ModelInfo, Reproduction, SuiteInfo, where_key

#: Fingerprint values of an unchanged model: no adapter, no quantisation.
_UNCHANGED: Collection[object] = (None, "", "none", "None")
#: What is not known of a model that only a server's name says to be the paper's.
_SERVED = "A server has this name for its model: whether these are the paper's weights, unquantised, is not known."
#: Tolerance for rounding errors, in the measure's unit.
_SLACK = 1e-9


def reproductions(
    suites: Iterable[SuiteInfo], models: Iterable[ModelInfo], measures: Iterable[Measure]
) -> list[Reproduction]:
    """Every measured figure for which a paper printed one of the same model and design.

    A model is the paper's if its fingerprint names one of the repositories listed with the printed figure, unquantised
    and without an adapter. The same model on the same prompts has no sampling error, and should agree to half a unit of
    the last printed digit. The interval matters if a design is resampled, such as MGBR's lists.
    """
    by_key = {measure.figure.key: measure for measure in measures}
    found, models = [], list(models)
    for info in suites:
        for printed, model in itertools.product(info.published, models):
            measure = by_key.get((model.name, info.name, printed["measure"], where_key(printed["where"])))
            ids = printed.get("model_ids", ())
            if measure is None or not is_papers_model(model, ids):
                continue
            differences = [(printed.get("source") or {}).get("difference", "")]
            if model.fingerprint.get("hub_id") not in ids:
                differences.append(_SERVED)
            value = printed["value"]
            found.append(
                Reproduction(
                    **measure.figure.fields,
                    published_model=printed["model"],
                    printed=value,
                    difference=None if measure.value is None else measure.value - value,
                    agreement=agreement(measure, value, printed.get("step")),
                    design_difference=" ".join(filter(None, differences)),
                )
            )
    return found


def is_papers_model(model: ModelInfo, model_ids: Collection[str]) -> bool:
    """Whether the model is one of these repositories, unchanged."""
    named = {model.fingerprint.get("hub_id"), model.fingerprint.get("model")}
    changed = (model.fingerprint.get("adapter"), model.fingerprint.get("quantisation"))
    return bool(named & set(model_ids)) and all(value in _UNCHANGED for value in changed)


def agreement(measure: Measure, printed: float, step: float | None) -> Agreement:
    """How a measure agrees with a printed value; ``step`` is one unit of its last digit.

    ``step`` is None if the value is a mean of printed ones, so that rounding does not apply.
    """
    rounding = 0.0 if step is None else step / 2
    if measure.value is not None and step is not None and abs(measure.value - printed) <= rounding + _SLACK:
        return "within rounding"
    if measure.low is None or measure.high is None:
        return "unknown" if measure.value is None or step is None else "differs"
    inside = measure.low - rounding <= printed <= measure.high + rounding
    return "within the interval" if inside else "differs"

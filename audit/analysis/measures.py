"""Computes the figures of one model from its table and the suite's specifications.

A row that is known only by bounds leaves its figure without a value: the figure is computed once with all rows at their
lower bounds and once at their upper, and its interval reaches from the lower end of the one to the upper end of the
other. A row without an answer is bounded by what the quantity can be (`audit.analysis.figures`); the value is that of
the rows with an answer, whose own interval stands beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from audit.analysis.decisions import corrected
from audit.analysis.estimators.estimate import Estimate, finite
from audit.analysis.figures import Figure, completed, estimator_of, figure_of, undefined_strata
from audit.analysis.table import Bools, Table
from audit.results import FigureName, Measure
from audit.results.figures import encode_parts, write_signature
from suites.base import MeasureSpec

#: Raise it when an estimator or its interval changes: signatures then differ.
STATISTICS_VERSION = 19


def measure_table(
    table: Table,
    specs: Iterable[MeasureSpec],
    *,
    model: str,
    suite: str,
    signature: Mapping[str, Any],
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Measure]:
    """The figures of one model on one suite, in the order of ``specs``.

    Parameters
    ----------
    table : Table
        All rows of the model, derived ones too.
    specs : iterable of MeasureSpec
        Usually ``suite.measures(rows)``.
    signature : mapping
        The suite's signature and whatever else of the run reproduces the figures.
    confidence : float
        Level of the intervals.
    seed : int
        The run's seed. It enters the signature only: no interval here is resampled.

    Raises
    ------
    ValueError
        When an estimator is unknown, or a correlation's covariate is not constant within its clusters. A note names the
        figure that failed, whatever the error.
    """
    shared = encode_parts({**signature, "statistics": STATISTICS_VERSION, "confidence": confidence, "seed": seed})
    measures = []
    for spec in specs:
        try:
            measures.append(_measure(table, spec, model, suite, shared, confidence))
        except Exception as error:
            error.add_note(f"in the figure {FigureName(suite, spec.measure, spec.where, model)}")
            raise
    return _corrected(measures)


def _corrected(measures: list[Measure]) -> list[Measure]:
    """Correction of ``p`` over one model's figures of the suite."""
    p = np.array([math.nan if measure.p is None else measure.p for measure in measures])
    primary = np.array([measure.spec.primary for measure in measures], dtype=np.bool_)
    adjusted = corrected(p, primary, 0.05).p.tolist()
    return [
        measure.model_copy(update={"p_adjusted": own}) if math.isfinite(own) else measure
        for measure, own in zip(measures, adjusted, strict=True)
    ]


def _measure(
    table: Table, spec: MeasureSpec, model: str, suite: str, shared: Mapping[str, str], confidence: float
) -> Measure:
    (answers,) = completed([table], spec)
    figure, design = figure_of(table, spec, table.quantity(spec.quantity), answers.used)
    complete: tuple[float | None, float | None] = (None, None)
    value = figure.value
    if answers.missing.any() and answers.used.any():
        complete = ends_of(spec, figure.estimate, confidence)
        figure, design = figure_of(table, spec, answers.quantity, answers.asked)
    low, high = ends_of(spec, figure.estimate, confidence)
    return Measure(
        id=FigureName(suite, spec.measure, spec.where, model).id,
        model=model,
        suite=suite,
        measure=spec.measure,
        where=dict(spec.where),
        value=finite(value),
        low=low,
        high=high,
        bound_low=finite(figure.bound_low),
        bound_high=finite(figure.bound_high),
        complete_case_low=complete[0],
        complete_case_high=complete[1],
        p=_p_against_neutral(spec, figure),
        n_clusters=0 if design is None else design.n_clusters,
        undefined_strata=undefined_strata(table, spec, answers.used),
        **_counts_of(table, spec, answers.used),
        levels={} if design is None else design.levels,
        signature=write_signature(shared, spec),
        spec=spec,
        estimator=spec.estimator,
        unit=spec.unit,
        neutral=spec.neutral,
        family=spec.family,
        is_subgroup=spec.is_subgroup,
        contrast=spec.contrast,
    )


def _p_against_neutral(spec: MeasureSpec, figure: Figure) -> float | None:
    """The two-sided p-value of a mean that is neutral; on one side of it, whatever is true within the bounds."""
    if spec.neutral is None or not estimator_of(spec).is_mean:
        return None
    return finite(figure.estimate.p_two_sided(spec.neutral))


def ends_of(spec: MeasureSpec, estimate: Estimate, confidence: float) -> tuple[float | None, float | None]:
    """A figure's interval, within what the figure can be; None where it is unknown."""
    low, high = estimate.interval(confidence)
    least, most = spec.value_range
    return (None, None) if math.isnan(low) else (finite(max(low, least)), finite(min(high, most)))


def _counts_of(table: Table, spec: MeasureSpec, used: Bools) -> dict[str, Any]:
    """What a figure rests on, beside its numbers."""
    mass = np.empty(0)
    if spec.probability_mass:
        mass = table.quantity(spec.probability_mass).low[used]
        mass = mass[np.isfinite(mass)]
    return {
        "n_items": table.n_questions(used),
        "missing": int((table.matching(spec.where) & table.missing).sum()),
        "censored": int(np.isnan(table.quantity(spec.quantity).value[used]).sum()),
        "probability_mass": float(mass.mean()) if mass.size else None,
    }

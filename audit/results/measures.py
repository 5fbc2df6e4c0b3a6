"""The figures of one model: estimates with their intervals, and where the spread of their items comes from."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from pydantic import field_serializer, field_validator

from audit.results.figures import OfFigure, Reported, Scalar
from audit.results.older import quantity_by_unit
from suites.base import MeasureSpec


class Measure(OfFigure, Reported):
    """A signed, named figure of one model.

    Attributes
    ----------
    id : str
        `FigureName.id`, the FIGURE-ID of ``audit show``. The same figure has the same id in every run.
    value : float or None
        The estimate from the items with a readable answer (the complete case). None when it is only bounded, or
        nothing could be read.
    low, high : float or None
        Confidence interval (clustered): what every decision rests on. For a bounded figure, or one with missing
        answers: from the interval of the lower bound to that of the upper bound. None with fewer than two clusters,
        or where one of them holds nearly all items.
    bound_low, bound_high : float or None
        Identification bounds of the estimate itself, without sampling error; a missing answer may be anything that
        the quantity can be. Equal to ``value`` when exact and complete.
    complete_case_low, complete_case_high : float or None
        Interval over the items with a readable answer alone, as if the missing ones were like them. None where none
        is missing: then it is ``low`` to ``high``.
    naive_low, naive_high : float or None
        The interval that takes every row as independent; for comparison only.
    p, p_adjusted : float or None
        Two-sided, that the value is ``neutral``, with the interval's standard error, whatever the missing answers
        would have been; and corrected over the model's figures of the suite by the rule of `audit.analysis.decisions`
        (``p_holm`` in report.json, an older name). None for correlations, and where there is no neutral value.
    levels : mapping of str to int
        How many levels of each sampled factor the figure rests on.
    fewest_levels : int or None
        Of the factor that has fewest, in the stratum that has fewest of it; None in results of older versions.
    contrast : bool
        As in `MeasureSpec`. No part of ``signature``: it is measured the same.
    undefined_strata : list
        Levels of the spec's stratum without rows, or without weight: the figure has no value then.
    missing : int
        Items without a readable answer. ``censored``: items known only by bounds.
    probability_mass : float or None
        Mean raw probability mass behind a normalised figure (its lower bound where bounded).
    signature : str
        ``key:value|key:value…``: all that reproduces the figure, the model apart.
    spec : MeasureSpec
        What the suite asked for. Its JSON leaves out what has the default value, the kind apart: without
        one it is of an older version.
    """

    id: str
    model: str
    suite: str
    measure: str
    where: dict[str, Scalar]
    value: float | None
    low: float | None
    high: float | None
    bound_low: float | None
    bound_high: float | None
    naive_low: float | None
    naive_high: float | None
    n_items: int
    n_clusters: int
    missing: int
    censored: int
    probability_mass: float | None
    signature: str
    p: float | None = None
    p_adjusted: float | None = None
    complete_case_low: float | None = None
    complete_case_high: float | None = None
    levels: dict[str, int] = {}
    fewest_levels: int | None = None
    estimator: str = "mean"
    unit: str = "probability"
    neutral: float | None = None
    family: str = ""
    is_subgroup: bool = False
    contrast: bool = False
    undefined_strata: list[Scalar] = []
    spec: MeasureSpec

    @property
    def least_levels(self) -> int:
        """``fewest_levels``; in a result that does not have it, what it says of its levels and clusters."""
        if self.fewest_levels is not None:
            return self.fewest_levels
        return min([*self.levels.values(), self.n_clusters])  # clusters were always counted in each stratum

    @field_serializer("spec")
    def _without_defaults(self, spec: MeasureSpec) -> dict[str, Any]:
        values = ((field, getattr(spec, field.name)) for field in dataclasses.fields(spec))
        stored = {field.name: value for field, value in values if value != field.default or field.name == "kind"}
        if spec.weights is not None:  # pairs: the keys of a JSON object are text, and levels need not be
            stored["weights"] = list(spec.weights.items())
        return stored

    @field_validator("spec", mode="before")
    @classmethod
    def _from_stored(cls, spec: Any) -> Any:
        if not isinstance(spec, dict):
            return spec
        by_unit = {} if "kind" in spec else quantity_by_unit(spec.get("unit", "probability"))
        weights = {} if spec.get("weights") is None else {"weights": dict(spec["weights"])}
        return {**spec, **by_unit, **weights}


class VarianceComponents(OfFigure, Reported):
    """Where the spread of a primary figure's items comes from, as variances; 0 or more.

    Attributes
    ----------
    against : str or None
        Of the differences ``model`` - ``against``, item by item; None: of the model's own values.
    factors, cross, sampling, in_figure, per_item
        As in `audit.analysis.components.Components`.
    engine : float or None
        What another engine changes in an item, where the model was asked on two.
    levels : mapping of str to int
        How many levels of each factor there are, and ``n_items`` items. ``uneven``: of factors nested in strata that
        hold unequal numbers of levels, each stratum's (weight, levels).
    generalisability : float or None
        Eρ² of the first factor: how far its levels' means would be the same with other levels of the others.
    """

    suite: str
    measure: str
    where: dict[str, Scalar]
    model: str
    against: str | None = None
    factors: dict[str, float]
    cross: float | None
    sampling: float | None
    in_figure: dict[str, float]
    per_item: float
    engine: float | None = None
    levels: dict[str, int]
    uneven: dict[str, list[tuple[float, int]]] = {}
    n_items: int
    generalisability: float | None


#: How a measured figure stands to a printed one: the same to the last printed digit; not the same, but the printed one
#: lies in the measured interval; outside it; or there is nothing to compare.
Agreement = Literal["within rounding", "within the interval", "differs", "unknown"]


class Reproduction(OfFigure, Reported):
    """A figure measured on a paper's own model, beside the printed one. ``difference`` is measured minus printed.

    ``design_difference`` says how the two designs differ; empty where they do not.
    """

    suite: str
    measure: str
    where: dict[str, Scalar]
    model: str
    published_model: str
    printed: float
    difference: float | None
    agreement: Agreement
    design_difference: str = ""

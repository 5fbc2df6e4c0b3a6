"""The figures of one model: estimates with intervals, and the variance components behind them."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from pydantic import field_serializer, field_validator

from audit.results.figures import OfFigure, Reported
from backends.base import Scalar
from suites.base import MeasureSpec

_DEFAULTS = tuple((field.name, field.default) for field in dataclasses.fields(MeasureSpec))


class Measure(OfFigure, Reported):
    """A signed, named figure of one model.

    Attributes
    ----------
    id : str
        `FigureName.id`, the FIGURE-ID of ``audit show``. The same figure has the same id in every run.
    value : float or None
        The estimate from the items with a readable answer (the complete cases). None if it is only bounded, or
        nothing could be read.
    low, high : float or None
        Clustered confidence interval, on which every decision rests. For a bounded figure, or one with missing
        answers: from the interval of the lower bound to that of the upper bound. None with fewer than two clusters,
        or if one of them contains nearly all items.
    bound_low, bound_high : float or None
        Identification bounds of the estimate itself, without sampling error; a missing answer may be any value of
        the quantity's range. Equal to ``value`` if exact and complete.
    complete_case_low, complete_case_high : float or None
        Interval over the complete cases alone, as if the missing answers were like them. None if none is missing:
        then it is ``low`` to ``high``.
    p, p_adjusted : float or None
        Two-sided p-value for ``value`` = ``neutral``, with the interval's standard error, valid whatever the missing
        answers would have been; and corrected over the model's figures of the suite as in `audit.analysis.decisions`
        (``p_holm`` in report.json, an older name). None for correlations, and without a neutral value.
    levels : mapping of str to int
        The number of levels of each sampled factor behind the figure, or of the families above it.
    n_clusters : int
        The smallest number of levels of any such factor in any stratum; of items if no factor is sampled.
    contrast : bool
        As in `MeasureSpec`. Not part of ``signature``, since it does not affect the measurement.
    undefined_strata : list
        Levels of the spec's stratum without rows, or without a weight, which leave the figure without a value.
    missing, censored : int
        Items without a readable answer, and items known only by bounds.
    probability_mass : float or None
        Mean raw probability mass behind a normalised figure (its lower bound if bounded).
    signature : str
        ``key:value|key:value…``: everything needed to reproduce the figure, except the model.
    spec : MeasureSpec
        The suite's specification. Its JSON omits default values.
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
    estimator: str = "mean"
    unit: str = "probability"
    neutral: float | None = None
    family: str = ""
    is_subgroup: bool = False
    contrast: bool = False
    undefined_strata: list[Scalar] = []
    spec: MeasureSpec

    @field_serializer("spec")
    def _without_defaults(self, spec: MeasureSpec) -> dict[str, Any]:
        stored = {name: value for name, default in _DEFAULTS if (value := getattr(spec, name)) != default}
        if spec.weights is not None:  # as pairs, since keys of a JSON object are strings, and levels need not be
            stored["weights"] = list(spec.weights.items())
        return stored

    @field_validator("spec", mode="before")
    @classmethod
    def _from_stored(cls, spec: Any) -> Any:
        if not isinstance(spec, dict):
            return spec
        return spec if spec.get("weights") is None else {**spec, "weights": dict(spec["weights"])}


class VarianceComponents(OfFigure, Reported):
    """Variance components of a primary figure's items; each is 0 or more.

    Attributes
    ----------
    against : str or None
        If given, the components are those of the differences ``model`` - ``against`` by item; None: of the model's own
        values.
    factors : mapping of str to float
        The variance between the levels of each sampled factor.
    cross : float or None
        The variance between combinations of levels; None if unknown. If no question is drawn twice, it includes the
        variance between draws.
    sampling : float or None
        The variance between repeated draws of the same question; None without any.
    in_figure : mapping of str to float
        The variance that the figure has because each factor's levels, and the combinations, are a sample.
    levels : mapping of str to int
        The number of levels of each factor.
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
    levels: dict[str, int]
    n_items: int


#: How a measured figure agrees with a printed one: equal to the last printed digit; different, but with the printed one
#: inside the measured interval; outside it; or not comparable.
Agreement = Literal["within rounding", "within the interval", "differs", "unknown"]


class Reproduction(OfFigure, Reported):
    """A figure measured on a paper's own model, and the printed one. ``difference`` is measured minus printed.

    ``design_difference`` says how the two designs differ; empty if they do not.
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

"""Comparisons and rankings of models, the effect of one change of a model, and figures against limits."""

from __future__ import annotations

from typing import Literal

from audit.results.figures import OfFigure, OfItems, Reported

Verdict = Literal["larger", "smaller", "equivalent", "inconclusive", "not comparable"]

#: Verdicts in words: many readers would call -0.3 a larger effect than -0.05.
VERDICT_WORDS: dict[Verdict, str] = {
    "larger": "higher",
    "smaller": "lower",
    "equivalent": "equivalent",
    "inconclusive": "inconclusive",
    "not comparable": "not comparable",
}


#: Why a question is open although more items might not settle it.
OpenBecause = Literal[
    "too few clusters",
    "missing answers",
    "unpaired items",
    "wider bounds",
    "side of neutral unknown",
]


class Comparison(OfItems):
    """A figure's difference between two models, b minus a, paired by item.

    Attributes
    ----------
    difference : float or None
        Over the items that both answered (the complete cases); None if only bounds are known.
    p, p_adjusted : float or None
        Two-sided p-value for no difference; and corrected within the suite, by Holm among the ``primary`` figures and
        for the false discovery rate among the others (``p_holm`` in report.json, an older name).
    alike_within : float or None
        The smallest margin within which the two would be called equivalent.
    margin : float
        The user's equivalence margin.
    identical : bool
        Whether both gave the same answers to all items, so that there is no difference to test.
    minimum_detectable_effect : float or None
        The smallest difference that this design detects with 80 % power.
    engine_noise : float or None
        The largest difference of this figure between engines with the same weights.
    low, high : float or None
        Interval of the difference at the run's confidence, uncorrected; it holds whatever the ``n_missing`` answers
        would have been.
    bound_low, bound_high : float or None
        Identification bounds of the difference: a missing answer may be any value of the quantity's range.
    complete_case_low, complete_case_high : float or None
        Interval over the ``n_items`` answered on both sides alone. None if no answer is missing.
    decided_low, decided_high, decided_confidence : float or None
        The interval behind the verdict, and its confidence after correction: for "equivalent" and "unchanged" that of
        the two one-sided tests; otherwise that of the test for a difference.
    open_because : str or None
        Why there is no verdict, unless more items would help.
    n_items, n_missing, n_unpaired : int
        Items answered on both sides; items with a missing answer; and items, left out here, for which only one side
        has a value by design.
    levels : mapping of str to int
        The number of levels of each sampled factor, or of the families above it.
    n_clusters : int
        The smallest number of levels of any such factor in any stratum; of items if no factor is sampled.
    population : str
        What the verdict generalises to.
    undefined_for : list of str
        The sides whose figure is undefined on the items that both answered; both if each is defined on different
        items, and none if they answered no item in common.
    """

    low: float | None = None
    high: float | None = None
    bound_low: float | None = None
    bound_high: float | None = None
    n_clusters: int = 0
    n_unpaired: int = 0
    undefined_for: list[str] = []
    primary: bool = False
    population: str = ""
    levels: dict[str, int] = {}
    complete_case_low: float | None = None
    complete_case_high: float | None = None
    decided_low: float | None = None
    decided_high: float | None = None
    decided_confidence: float | None = None
    open_because: OpenBecause | None = None
    a: str
    b: str
    difference: float | None
    p: float | None
    p_adjusted: float | None
    margin: float
    minimum_detectable_effect: float | None
    verdict: Verdict
    test: str
    family: str
    engine_noise: float | None = None
    is_subgroup: bool = False
    identical: bool = False
    confidence: float = 0.95
    alike_within: float | None = None

    @property
    def within_noise(self) -> bool:
        """Whether the difference is known, and no larger than between engines with the same weights."""
        return (
            self.engine_noise is not None and self.difference is not None and abs(self.difference) <= self.engine_noise
        )


class Rank(Reported):
    """A model's plausible ranks, 1 being the highest. ``tied_with``: models that cannot be distinguished from it."""

    model: str
    best: int
    worst: int
    tied_with: list[str]


class Ranking(OfFigure):
    """Models ordered by one figure, the highest value first. Models with several plausible ranks are tied."""

    ranks: list[Rank]


class Rung(Reported):
    """One end of a step: a model, on one suite."""

    model: str
    suite: str


class AttributionStep(Reported):
    """The effect of one change of a model on a suite: b minus a, by item.

    Attributes
    ----------
    changes : list of str
        What differs: parts of the model (``adapter``, ``quantisation``…). Empty if the step is only declared.
    engine : list of str
        Fields of the engine that differ as well; the step then includes the engines' noise.
    comparisons : list of Comparison
        Each figure's change with its decision, corrected within this step alone.
    """

    a: Rung
    b: Rung
    changes: list[str]
    engine: list[str] = []
    comparisons: list[Comparison]

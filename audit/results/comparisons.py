"""How the figures of models stand to each other."""

from __future__ import annotations

from typing import Literal

from audit.results.figures import OfFigure, Reported, Scalar

Verdict = Literal["larger", "smaller", "equivalent", "inconclusive", "not comparable"]

#: Verdicts in words: of -0.3 and -0.05 many readers would call the first the larger effect.
VERDICT_WORDS: dict[Verdict, str] = {
    "larger": "higher",
    "smaller": "lower",
    "equivalent": "equivalent",
    "inconclusive": "inconclusive",
    "not comparable": "not comparable",
}


#: Why a question is open although more items of the same kind might not close it.
OpenBecause = Literal[
    "too few clusters", "missing answers", "unpaired items", "kinds not asked", "side of neutral unknown"
]


class Comparison(OfFigure, Reported):
    """One measure of two models, paired item by item, b minus a.

    Attributes
    ----------
    difference : float or None
        Over the ``n_items`` that both answered (the complete case); None where it is known only by bounds.
    low, high : float or None
        Interval at ``confidence``, without correction; whatever the ``n_missing`` answers would have been.
    bound_low, bound_high : float or None
        Identification bounds of the difference: an answer missing of either may be anything the quantity can be.
    complete_case_low, complete_case_high : float or None
        Interval over the items that both answered alone. None where no answer is missing.
    p, p_adjusted : float or None
        Two-sided, that there is no difference; and corrected over the suite, by Holm among the ``primary`` figures and
        for the false discovery rate among the others (``p_holm`` in report.json, an older name).
    decided_low, decided_high, decided_confidence : float or None
        The interval that decided, and its confidence after the correction: for "equivalent" that of the two
        one-sided tests, with room for clusters of a kind not seen; else that of the test for a difference.
    largest_change : float or None
        How far apart clusters of a kind not seen are taken to be at most, for "equivalent". None: as far as can be.
    alike_within : float or None
        The smallest margin within which the two would be called equivalent, at the same ``largest_change``.
    open_because : str or None
        Why nothing is claimed, where it is not for want of items.
    margin : float
        The user's equivalence margin.
    minimum_detectable_effect : float or None
        The smallest difference that this design finds with 80 % power.
    n_items : int
        Items that both answered. ``n_missing``: of which an answer is missing. ``n_unpaired``: that only one of the two
        has a value of, the other none by design; they are left out.
    levels : mapping of str to int
        How many levels of each sampled factor the items hold.
    population : str
        Over what the comparison generalises.
    undefined_for : list of str
        The models for which no item that both answered defines the figure; both of them where each is defined on
        other items, and none where they answered no item in common.
    engine_noise : float or None
        The largest difference of this figure between engines with the same weights.
    words : str
        All this in a few sentences.
    """

    suite: str
    measure: str
    where: dict[str, Scalar]
    a: str
    b: str
    difference: float | None
    low: float | None
    high: float | None
    bound_low: float | None
    bound_high: float | None
    p: float | None
    p_adjusted: float | None
    effect_size: float | None
    margin: float
    minimum_detectable_effect: float | None
    n_items: int
    n_clusters: int
    verdict: Verdict
    test: str
    family: str
    words: str = ""
    engine_noise: float | None = None
    is_subgroup: bool = False
    n_unpaired: int = 0
    undefined_for: list[str] = []
    confidence: float = 0.95
    primary: bool = False
    population: str = ""
    levels: dict[str, int] = {}
    n_missing: int = 0
    complete_case_low: float | None = None
    complete_case_high: float | None = None
    decided_low: float | None = None
    decided_high: float | None = None
    decided_confidence: float | None = None
    largest_change: float | None = None
    alike_within: float | None = None
    open_because: OpenBecause | None = None

    @property
    def missing_share(self) -> float:
        """Share of the items of which an answer is missing."""
        return self.n_missing / (self.n_items + self.n_missing) if self.n_missing else 0.0

    @property
    def within_noise(self) -> bool:
        """Whether a difference is known, and is no larger than what the same weights differ by on two engines."""
        return (
            self.engine_noise is not None and self.difference is not None and abs(self.difference) <= self.engine_noise
        )


class Rank(Reported):
    """A model's plausible ranks, 1 the highest. ``tied_with`` are the models not distinguishable from it."""

    model: str
    best: int
    worst: int
    tied_with: list[str]


class Ranking(OfFigure, Reported):
    """Models ordered by one measure, the highest value first. A model with an interval of ranks is a tie."""

    suite: str
    measure: str
    where: dict[str, Scalar]
    ranks: list[Rank]

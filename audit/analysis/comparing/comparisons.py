"""Compares pairs of models item by item: which has the larger figure, and how certain that is.

Both answered the same questions, so the variation between questions cancels, and the error of the difference is
clustered like any other. Only items with a value on both sides count.

Many comparisons find some differences by chance. Readers scan all pairs of models and all figures of a suite, so all
are corrected together, as in `audit.analysis.decisions`. Claims of equivalence are corrected in the same way.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from audit.analysis.decisions import DEFAULT_MARGIN, corrected, margin_of
from audit.analysis.estimators.estimate import ROUNDING, finite, t_quantile
from audit.analysis.figures import NO_FIGURE, Figure, completed, design_of, estimator_of, undefined_strata
from audit.analysis.power import POWER
from audit.analysis.table import Bools, Table, aligned
from audit.results import Comparison, FigureKey, FigureName, OpenBecause, Rank, Ranking, Verdict
from suites.base import MeasureSpec


def compare_models(
    tables: Mapping[str, Table],
    specs: Iterable[MeasureSpec],
    *,
    suite: str,
    margins: Mapping[str, float] | float = DEFAULT_MARGIN,
    confidence: float = 0.95,
) -> list[Comparison]:
    """Compare every pair of models on every figure of one suite.

    They come by figure, then by pair in the models' order. Items are matched by id; ``specs`` has each figure once.
    Differences within ± the margin do not matter. ``minimum_detectable_effect`` is what another sample of this design
    detects with 80 % power at α/2m, with m tests corrected together: the first step of the correction, whatever the
    other comparisons show.
    """
    if len(tables) < 2:
        return []
    alpha = 1 - confidence
    own = dict(zip(tables, aligned(list(tables.values())), strict=True))
    pairs = [(spec, *pair) for spec in specs for pair in itertools.combinations(own, 2)]
    differences = [paired_difference(own[a], own[b], spec) for spec, a, b in pairs]
    of_each = [margin_of(margins, spec.measure) for spec, _, _ in pairs]
    p_alike = np.array([of.p_of_margin(margin) for of, margin in zip(differences, of_each, strict=True)])
    p_apart = np.array([of.figure.estimate.p_two_sided() for of in differences])
    primary = np.array([spec.primary for spec, _, _ in pairs], dtype=np.bool_)
    alike, apart = (corrected(p, primary, alpha) for p in (p_alike, p_apart))
    tests = Counter(primary[np.isfinite(apart.p)].tolist())
    levels = zip(*(column.tolist() for column in (*alike, *apart)), strict=True)
    return [
        _comparison(of, _Tested(margin, alpha, tests[spec.primary], *level), (a, b), suite)
        for of, (spec, a, b), margin, level in zip(differences, pairs, of_each, levels, strict=True)
    ]


class _Tested(NamedTuple):
    """The margin, how many tests were corrected together, and corrected p-values and levels of two kinds of claim."""

    margin: float
    alpha: float
    tests: int
    p_alike: float
    alike: float
    p_apart: float
    apart: float


def _comparison(of: PairedDifference, tested: _Tested, models: tuple[str, str], suite: str) -> Comparison:
    spec, answered, alpha = of.spec, of.answered, tested.alpha
    verdict: Verdict = "inconclusive"
    if of.n_items == 0:
        verdict = "not comparable"
    elif tested.p_alike < alpha:
        verdict = "equivalent"
    elif tested.p_apart < alpha:
        verdict = "larger" if of.figure.bound_low > 0 else "smaller"
    outer = of.interval_with_unpaired(1 - 2 * tested.alike)
    level = 2 * tested.alike if verdict == "equivalent" else tested.apart
    decided = outer if verdict == "equivalent" else of.interval(1 - level)
    low, high = of.interval(1 - alpha)
    complete = of.interval(1 - alpha, answered) if of.n_missing else (math.nan, math.nan)
    return Comparison(
        **FigureName(suite, spec.measure, spec.where).fields,
        a=models[0],
        b=models[1],
        difference=finite(answered.value),
        low=finite(low),
        high=finite(high),
        bound_low=finite(of.figure.bound_low),
        bound_high=finite(of.figure.bound_high),
        complete_case_low=finite(complete[0]),
        complete_case_high=finite(complete[1]),
        p=finite(of.figure.estimate.p_two_sided()),
        p_adjusted=finite(tested.p_apart),
        margin=tested.margin,
        minimum_detectable_effect=finite(_detectable(of, alpha / tested.tests)) if tested.tests else None,
        verdict=verdict,
        identical=of.identical,
        test=of.test,
        family=spec.family,
        is_subgroup=spec.is_subgroup,
        undefined_for=list(itertools.compress(models, of.undefined)),
        confidence=1 - alpha,
        alike_within=finite(max(map(abs, outer))),
        decided_low=finite(decided[0]),
        decided_high=finite(decided[1]),
        decided_confidence=finite(1 - level),
        open_because=_why_open(of, tested) if verdict == "inconclusive" else None,
        n_items=of.n_items,
        n_missing=of.n_missing,
        n_unpaired=of.n_unpaired,
        n_clusters=of.n_clusters,
        primary=spec.primary,
        population=spec.population,
        levels=of.levels,
    )


def _why_open(of: PairedDifference, tested: _Tested) -> OpenBecause | None:
    """Why nothing is claimed about a difference, unless more items of the same kind would help."""
    if of.n_clusters < 2 or (not of.n_missing and math.isnan(of.figure.estimate.interval(0.5)[0])):
        return "too few clusters"
    if of.n_missing:
        seen, worst = (max(abs(figure.bound_low), abs(figure.bound_high)) for figure in (of.answered, of.figure))
        is_alike = of.p_of_margin(tested.margin, of.answered) < tested.alike
        is_apart = of.answered.estimate.p_two_sided() < tested.apart
        if seen <= tested.margin < worst or is_alike or is_apart:
            return "missing answers"
    is_alike = of.p_of_margin(tested.margin, pairs_only=True) < tested.alike
    return "unpaired items" if of.n_unpaired and is_alike else None


def _detectable(of: PairedDifference, alpha: float) -> float:
    """The difference that another sample of this design finds with `POWER` in a two-sided test at this level.

    It lies beyond the half of the interval by the normal quantile of the power; and the bounds are to be overcome.
    """
    low, high = of.figure.estimate.interval(1 - alpha)
    near = of.figure.estimate.interval(0.6826894921370859)  # of one standard error to either side
    bounds = of.figure.bound_high - of.figure.bound_low
    if not high - low > bounds:
        return math.nan
    return (high - low - bounds) / 2 + t_quantile(math.inf, POWER) * (near[1] - near[0] - bounds) / 2 + bounds


def rank_models(comparisons: Iterable[Comparison]) -> list[Ranking]:
    """Rank the models by each figure with comparisons of all their pairs, the highest value first.

    A model's rank lies between 1 + the number of models significantly larger, and the number of models minus those
    significantly smaller. Significance is the corrected verdict, so all intervals of a family hold jointly at its
    confidence (Mogstad, Romano, Shaikh & Wilhelm 2024, Rev. Econ. Stud. 91(1)). Models that cannot be distinguished,
    including equivalent ones, are ties.
    """
    figures: dict[FigureKey, list[Comparison]] = {}
    for c in comparisons:
        if c.verdict != "not comparable":  # a model that answered nothing has no rank
            figures.setdefault(c.figure.key, []).append(c)
    return [_ranking(figure) for figure in figures.values()]


def _ranking(figure: Sequence[Comparison]) -> Ranking:
    models = list(dict.fromkeys(name for c in figure for name in (c.a, c.b)))
    above = {(c.b, c.a) if c.verdict == "larger" else (c.a, c.b) for c in figure if c.verdict in ("larger", "smaller")}
    ranks = [
        Rank(
            model=name,
            best=1 + sum((other, name) in above for other in models),
            worst=len(models) - sum((name, other) in above for other in models),
            tied_with=[o for o in models if o != name and not above & {(o, name), (name, o)}],
        )
        for name in models
    ]
    return Ranking(
        **figure[0].figure.fields,
        ranks=sorted(ranks, key=lambda rank: (rank.best + rank.worst, rank.best)),
    )


# -- one pair and figure -----------------------------------------------------------------------


class PairedDifference:
    """A figure of b minus the same figure of a, over the items of two `aligned` tables that both were asked.

    Attributes
    ----------
    figure, answered : Figure
        The difference, whatever the missing answers would have been; and over the items that both answered, which is
        the one reported as a number.
    n_items, n_missing, n_unpaired : int
        Items that both answered; that one or both did not answer, which enter as bounds; and that only one of the two
        has, which are left out.
    unpaired_weight, unpaired_room : float
        The weight that the last would have in the figure, and how far they could move the difference.
    undefined : (bool, bool)
        Whether a's and b's figure is undefined: as in `audit.results.Comparison.undefined_for`.
    n_clusters, levels
        As in `audit.results.Comparison`.
    identical : bool
        Whether both gave the same answers throughout.
    """

    def __init__(self, ours: Table, theirs: Table, spec: MeasureSpec) -> None:
        of_a, of_b = completed([ours, theirs], spec)
        both, asked = of_a.used & of_b.used, of_a.asked & of_b.asked
        alone, estimator = of_a.asked ^ of_b.asked, estimator_of(spec)
        least, most = spec.value_range
        self.spec, self.largest = spec, most - least
        self.figure = self.answered = NO_FIGURE
        self.n_items, self.n_missing = ours.n_questions(both), int(asked.sum() - both.sum())
        self.n_unpaired, self.unpaired_weight = int(alone.sum()), _weight_of(alone, asked, (ours, theirs), spec)
        self.unpaired_room = self.unpaired_weight and self.unpaired_weight * (
            self.largest if estimator.is_mean else math.inf
        )
        shared = ours.matching(spec.where) & ours.answered & theirs.matching(spec.where) & theirs.answered
        has_a, has_b = (bool((of.used & shared).any()) for of in (of_a, of_b))
        is_undefined = not both.any() and bool(shared.any())
        self.undefined = is_undefined and has_a <= has_b, is_undefined and has_b <= has_a
        self.identical, self.n_clusters, self.levels = False, 0, dict[str, int]()
        if not both.any() or undefined_strata(ours, spec, both):
            return
        one, other = (table.quantity(spec.quantity).of(both) for table in (ours, theirs))
        design = design_of(ours, spec, both)
        self.figure = self.answered = estimator.difference(one, other, design, spec)
        if self.n_missing:
            design = design_of(ours, spec, asked)
            self.figure = estimator.difference(of_a.quantity.of(asked), of_b.quantity.of(asked), design, spec)
        self.n_clusters, self.levels = design.n_clusters, design.levels
        apart = np.abs([other.low - one.high, other.high - one.low])
        self.identical = not self.n_missing and bool((apart < ROUNDING).all())

    @property
    def test(self) -> str:
        """The test's name."""
        if not estimator_of(self.spec).is_mean:
            return "jackknife over clusters"
        return "paired t, clustered" if self.levels.keys() - {"item"} else "paired t"

    def interval(self, confidence: float, figure: Figure | None = None) -> tuple[float, float]:
        """Confidence interval, within the possible range."""
        low, high = (figure or self.figure).estimate.interval(confidence)
        return max(low, -self.largest), min(high, self.largest)

    def interval_with_unpaired(self, confidence: float) -> tuple[float, float]:
        """The interval for all items, if the unpaired ones differ as much as possible."""
        low, high = self.interval(confidence)
        paired = 1 - self.unpaired_weight
        return paired * low - self.unpaired_room, paired * high + self.unpaired_room

    def p_of_margin(self, margin: float, figure: Figure | None = None, *, pairs_only: bool = False) -> float:
        """p-value of a difference of the margin or more, by two one-sided tests; unpaired items may be anything.

        NaN if answers are missing of a quantity without a range: they may hide any difference.
        """
        if self.n_missing and not self.spec.has_range and figure is None:
            return math.nan
        room = 0.0 if pairs_only else self.unpaired_room
        if not room < margin:
            return 1.0
        return (figure or self.figure).estimate.p_outside((margin - room) / (1 - self.unpaired_weight))


def paired_difference(ours: Table, theirs: Table, spec: MeasureSpec) -> PairedDifference:
    """The figure's difference of two `aligned` tables; an error names the figure."""
    try:
        return PairedDifference(ours, theirs, spec)
    except Exception as error:
        error.add_note(f"in the difference of {spec.measure} {dict(spec.where)}")
        raise


def _weight_of(alone: Bools, both: Bools, tables: tuple[Table, Table], spec: MeasureSpec) -> float:
    """The weight in the figure of rows (n,) that only one table has, relative to all rows."""
    if not alone.any():
        return 0.0
    if spec.stratum is None or spec.weights is None:
        return float(alone.sum() / (alone | both).sum())
    codes = np.maximum(*(table.codes(spec.stratum) for table in tables))  # -1 where a table lacks the row
    part = 0.0
    for level, weight in spec.weights.items():
        own = codes == tables[0].find(spec.stratum, level)
        part += weight * float((alone & own).sum() / max((own & (alone | both)).sum(), 1))
    return part

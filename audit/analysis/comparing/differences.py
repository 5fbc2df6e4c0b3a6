"""Differences in a figure between two models, or two runs of one, computed item by item.

Both answered the same questions, so the variation between questions cancels, and the error of the difference is
clustered like any other. Only items with a value on both sides count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from audit.analysis.estimators.design import Design
from audit.analysis.estimators.estimate import ROUNDING, Estimate
from audit.analysis.figures import (
    NO_FIGURE,
    Figure,
    completed,
    design_of,
    estimator_of,
    undefined_strata,
)
from audit.analysis.table import Bools, Floats, Table
from suites.base import MeasureSpec


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A figure of b minus the same figure of a, over the items that both were asked.

    Attributes
    ----------
    figure : Figure
        The difference, whatever the missing answers would have been.
    answered : Figure
        The difference over the items that both answered, which is the one reported as a number.
    n_items, n_missing : int
        Items that both answered; and that one or both did not answer, which enter as bounds.
    n_unpaired : int
        Items that only one of the two has: they are left out.
    unpaired_weight : float
        The weight that these would have in the figure; their difference may be as large as the range.
    undefined : (bool, bool)
        Whether a's and b's figure is undefined: as in `audit.results.Comparison.undefined_for`.
    n_clusters : int
        Levels of the sampled factor with fewest, in any stratum.
    levels : mapping of str to int
        The number of levels of each sampled factor.
    deviation : float
        Standard deviation of the items' differences.
    identical : bool
        Whether both gave the same answers throughout.
    """

    spec: MeasureSpec
    figure: Figure = NO_FIGURE
    answered: Figure = NO_FIGURE
    n_items: int = 0
    n_missing: int = 0
    n_unpaired: int = 0
    unpaired_weight: float = 0.0
    undefined: tuple[bool, bool] = (False, False)
    n_clusters: int = 0
    levels: Mapping[str, int] = field(default_factory=dict)
    deviation: float = math.nan
    identical: bool = False

    @property
    def test(self) -> str:
        """The test's name."""
        if not estimator_of(self.spec).is_mean:
            return "jackknife over clusters"
        return "paired t, clustered" if self.levels.keys() - {"item"} else "paired t"

    @property
    def estimate(self) -> Estimate:
        """The difference with its error, whatever the missing answers would have been."""
        return self.figure.estimate

    @property
    def largest(self) -> float:
        """The largest possible difference; inf without a range."""
        least, most = self.spec.value_range
        return most - least

    @property
    def unpaired_room(self) -> float:
        """How far the unpaired items could move the difference."""
        is_mean = estimator_of(self.spec).is_mean
        return self.unpaired_weight * (self.largest if is_mean else math.inf) if self.unpaired_weight else 0.0

    def interval(self, confidence: float, estimate: Estimate | None = None) -> tuple[float, float]:
        """Confidence interval, within the possible range."""
        low, high = (estimate or self.estimate).interval(confidence)
        return max(low, -self.largest), min(high, self.largest)

    def interval_with_unpaired(self, confidence: float) -> tuple[float, float]:
        """The interval for all items, if the unpaired ones differ as much as possible."""
        low, high = self.interval(confidence)
        if not self.unpaired_weight:
            return low, high
        paired = 1 - self.unpaired_weight
        return paired * low - self.unpaired_room, paired * high + self.unpaired_room

    def p_of_margin(self, margin: float, estimate: Estimate | None = None, *, pairs_only: bool = False) -> float:
        """p-value of a difference of the margin or more, by two one-sided tests; unpaired items may be anything.

        NaN if answers are missing of a quantity without a range: they may hide any difference.
        """
        if self.n_missing and not self.spec.has_range and estimate is None:
            return math.nan
        room = 0.0 if pairs_only else self.unpaired_room
        if not room < margin:
            return 1.0
        return (estimate or self.estimate).p_outside((margin - room) / (1 - self.unpaired_weight))


def paired_difference(ours: Table, theirs: Table, spec: MeasureSpec) -> PairedDifference:
    """The figure's difference of two `aligned` tables; an error names the figure."""
    try:
        return _paired(ours, theirs, spec)
    except Exception as error:
        error.add_note(f"in the difference of {spec.measure} {dict(spec.where)}")
        raise


def _paired(ours: Table, theirs: Table, spec: MeasureSpec) -> PairedDifference:
    of_a, of_b = completed([ours, theirs], spec)
    both, asked = of_a.used & of_b.used, of_a.asked & of_b.asked
    alone = of_a.asked ^ of_b.asked
    found = PairedDifference(
        spec,
        n_items=ours.n_questions(both),
        n_missing=int(asked.sum() - both.sum()),
        n_unpaired=int(alone.sum()),
        unpaired_weight=_weight_of(alone, asked, (ours, theirs), spec),
    )
    if not both.any() or undefined_strata(ours, spec, both):
        undefined = (False, False) if both.any() else _undefined((ours, theirs), (of_a.used, of_b.used), spec)
        return replace(found, undefined=undefined)
    one, other = (table.quantity(spec.quantity).of(both) for table in (ours, theirs))
    design = behind = design_of(ours, spec, both)
    figure = answered = estimator_of(spec).difference(one, other, design, spec)
    if found.n_missing:
        behind = design_of(ours, spec, asked)
        figure = estimator_of(spec).difference(of_a.quantity.of(asked), of_b.quantity.of(asked), behind, spec)
    apart = other.low - one.high
    is_same = bool((np.abs(apart) < ROUNDING).all() and (np.abs(other.high - one.low) < ROUNDING).all())
    return replace(
        found,
        figure=figure,
        answered=answered,
        n_clusters=behind.n_clusters,
        levels=behind.levels,
        deviation=_deviation(apart, design) if estimator_of(spec).is_mean else math.nan,
        identical=is_same and not found.n_missing,
    )


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


def _undefined(tables: tuple[Table, Table], used: tuple[Bools, Bools], spec: MeasureSpec) -> tuple[bool, bool]:
    """For tables without common items: whose answers leave the figure undefined on items that both answered."""
    a, b = (table.matching(spec.where) & table.answered for table in tables)
    if not (a & b).any():
        return False, False
    of_a, of_b = (not (own & a & b).any() for own in used)
    return (of_a, of_b) if of_a or of_b else (True, True)


def _deviation(apart: Floats, design: Design) -> float:
    """Standard deviation of differences (n,) within their strata."""
    strata = design.strata
    left = len(apart) - int(strata.max()) - 1
    if left < 1:
        return math.nan
    residual = apart - (np.bincount(strata, apart) / np.bincount(strata))[strata]
    return 0.0 if np.ptp(residual) < ROUNDING else math.sqrt(float((residual**2).sum()) / left)

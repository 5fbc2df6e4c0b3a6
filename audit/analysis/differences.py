"""What separates two models, or two runs of one, in a figure: differences taken item by item.

Both answered the same questions, so the questions' own variation cancels. The error of the mean difference is
clustered like any other (`audit.analysis.estimators`). Only items with a value on both sides count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from audit.analysis.correlations import correlations
from audit.analysis.design import (
    cluster_codes,
    correlated,
    is_binary,
    is_count,
    strata_of,
    undefined_strata,
    usable,
)
from audit.analysis.estimators import (
    ROUNDING,
    Estimate,
    Floats,
    Reach,
    Strata,
    allow_for_few_outcomes,
    clustered_mean,
    crossed_factors,
    unknown_where_few_are_alike,
)
from audit.analysis.significance import mcnemar_exact, p_of_counts_outside
from audit.analysis.table import Bools, Quantity, RowTable
from suites.base import MeasureSpec


class End(NamedTuple):
    """A difference at one of its identification bounds: value, standard error, degrees of freedom. NaN: unknown.

    ``se`` is the larger one where the error reaches farther to one side.
    ``below`` and ``above`` are the `Reach` to either side as (se, bend); None: as far as ``se`` to both.
    """

    value: float = math.nan
    se: float = math.nan
    df: float = math.nan
    below: tuple[float, float] | None = None
    above: tuple[float, float] | None = None

    def interval(self, confidence: float) -> tuple[float, float]:
        """Its two-sided confidence interval; NaN where the error is unknown."""
        low, high = self._estimate.interval(confidence)
        return float(low), float(high)

    def p_above(self, null: float) -> float:
        """One-sided p against the hypothesis that it is at most ``null``."""
        return float(self._estimate.p_above(null))

    def p_below(self, null: float) -> float:
        """One-sided p against the hypothesis that it is at least ``null``."""
        return float(self._estimate.p_below(null))

    @property
    def _estimate(self) -> Estimate:
        sides = [None if side is None else Reach(np.array(side[0]), np.array(side[1])) for side in self[3:]]
        value, se, df = (np.array(number) for number in self[:3])
        return Estimate(value, se, df, 0, 0, None, *sides)


UNKNOWN = End()


@dataclass(slots=True)
class PairedDifference:
    """A figure of b minus the same figure of a, over the items that both have; NaN where unknown.

    Attributes
    ----------
    a, b : int
        Positions of the two among the tables that were compared.
    n_unpaired : int
        Items of which only one of the two has a value: they are left out.
    undefined : tuple of int
        As in `audit.results.Comparison.undefined_for`, by position.
    low, high : End
        The difference at its identification bounds, each with its own sampling error; equal where every item
        is exact.
    a_low, a_high : float
        The figure of a alone, over the same items.
    deviation : float
        Standard deviation of the items' differences.
    p : float
        Two-sided, that there is no difference.
    discordant : (int, int) or None
        Where both answered yes or no: items with a yes of a only, and of b only.
    margin : float
        Differences within ± the margin do not matter.
    """

    spec: MeasureSpec
    a: int
    b: int
    test: str
    n_items: int = 0
    n_unpaired: int = 0
    undefined: tuple[int, ...] = ()
    n_clusters: int = 0
    low: End = UNKNOWN
    high: End = UNKNOWN
    a_low: float = math.nan
    a_high: float = math.nan
    deviation: float = math.nan
    p: float = math.nan
    discordant: tuple[int, int] | None = None
    margin: float = math.nan

    @property
    def exact(self) -> bool:
        """Whether the difference itself is known, not only its bounds."""
        return self.low.value == self.high.value

    @property
    def unpaired_share(self) -> float:
        """Share of the items of which only one of the two has a value."""
        return unpaired_share(self.n_unpaired, self.n_items)

    @property
    def p_of_counts_outside(self) -> float:
        """p of the score test against a difference of the margin or more; NaN unless all answers are binary."""
        if self.discordant is None or not 0 < self.margin < 1:
            return math.nan
        return p_of_counts_outside(*self.discordant, self.n_items, self.margin)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Confidence interval, from that of the lower bound to that of the upper."""
        return self.low.interval(confidence)[0], self.high.interval(confidence)[1]

    def p_above(self, null: float) -> float:
        """One-sided p against the hypothesis that the difference is at most ``null``; NaN where unknown."""
        return self.low.p_above(null)

    def p_below(self, null: float) -> float:
        """One-sided p against the hypothesis that the difference is at least ``null``; NaN where unknown."""
        return self.high.p_below(null)


def unpaired_share(n_unpaired: int, n_items: int) -> float:
    """Share of the items of which only one of two has a value."""
    return n_unpaired / (n_unpaired + n_items) if n_unpaired else 0.0


def paired_differences(
    tables: Sequence[RowTable], spec: MeasureSpec, pairs: Sequence[tuple[int, int]]
) -> Iterator[PairedDifference]:
    """One figure's differences of the given pairs of tables, which share their item index; in the pairs' order."""
    quantities = [table.quantity(spec.quantity) for table in tables]
    used = [usable(table, spec) for table in tables]
    # Pairs that share the same items are computed together: mostly that is all of them.
    groups: dict[bytes, tuple[Bools, list[tuple[int, int]]]] = {}
    for a, b in pairs:
        both = used[a] & used[b]
        groups.setdefault(both.tobytes(), (both, []))[1].append((a, b))
    differences: dict[tuple[int, int], PairedDifference] = {}
    for both, members in groups.values():
        estimate = _of_correlations if spec.estimator == "correlation" else _of_means
        for difference in estimate(tables, spec, quantities, both, members):
            a, b = difference.a, difference.b
            difference.n_unpaired = int((used[a] ^ used[b]).sum())
            if difference.n_items == 0:
                difference.undefined = _undefined(tables, used, spec, a, b)
            differences[a, b] = difference
    for pair in pairs:
        yield differences[pair]


def _undefined(tables: Sequence[RowTable], used: Sequence[Bools], spec: MeasureSpec, a: int, b: int) -> tuple[int, ...]:
    """Of two tables without an item in common: those whose answers do not define the figure, on items both answered."""
    both = tables[a].matching(spec.where) & tables[a].answered
    both &= tables[b].matching(spec.where) & tables[b].answered
    if not both.any():
        return ()
    return tuple(i for i in (a, b) if not (used[i] & both).any()) or (a, b)


def _of_means(
    tables: Sequence[RowTable],
    spec: MeasureSpec,
    quantities: Sequence[Quantity],
    both: Bools,
    pairs: Sequence[tuple[int, int]],
) -> list[PairedDifference]:
    n = int(both.sum())
    differences = [PairedDifference(spec, a, b, "paired t", n) for a, b in pairs]
    if n == 0 or undefined_strata(tables[pairs[0][0]], spec, both):
        return differences
    lows = np.column_stack([q.low[both] for q in quantities])
    highs = np.column_stack([q.high[both] for q in quantities])
    a, b = np.array(pairs).T
    clusters, strata = cluster_codes(tables[a[0]], spec, both), strata_of(tables[a[0]], spec, both)
    at_low = lows[:, b] - highs[:, a]
    at_high = highs[:, b] - lows[:, a]
    low = clustered_mean(at_low, clusters, strata)
    high = low if np.array_equal(at_low, at_high) else clustered_mean(at_high, clusters, strata)
    # A third model's answers say nothing about these two: each pair by its own values.
    counts, binary = (
        np.array([kind(spec, lows[:, pair], highs[:, pair]) for pair in pairs]) for kind in (is_count, is_binary)
    )
    if counts.any():
        least, most = spec.limits
        allowed = allow_for_few_outcomes(low, at_low, clusters, least - most, most - least, strata)
        low, high = low.where(counts, allowed), high.where(counts, allowed)  # counts: both bounds are the same
    low, high = unknown_where_few_are_alike(low), unknown_where_few_are_alike(high)
    # Twice the smaller one-sided p: for an exact difference this is the two-sided p.
    p = np.minimum(1.0, 2 * np.minimum(low.p_above(0.0), high.p_below(0.0)))
    only_b, only_a = (at_low > 0).sum(axis=0), (at_low < 0).sum(axis=0)
    mcnemar = mcnemar_exact(only_b, only_a)
    crossed = bool(crossed_factors(clusters))
    deviation = _deviation(at_low, strata or Strata.one(n))
    mean_low, mean_high = (clustered_mean(x, [], strata).value for x in (lows, highs))
    for i, difference in enumerate(differences):
        difference.test, difference.n_clusters = "paired t, clustered" if clusters else "paired t", low.n_clusters
        if binary[i]:
            difference.discordant = int(only_a[i]), int(only_b[i])
        if binary[i] and crossed:
            # McNemar's test takes items as independent, and the t-test needs many discordant
            # items. Each alone is unreliable, so the more conservative one is used.
            difference.test = "McNemar (exact) and paired t, clustered"
            p[i] = np.nan if np.isnan(p[i]) else max(p[i], mcnemar[i])
        elif binary[i] and not clusters:
            difference.test, p[i] = "McNemar (exact)", mcnemar[i]
        difference.low, difference.high = _end(low, i), _end(high, i)
        difference.a_low, difference.a_high = float(mean_low[difference.a]), float(mean_high[difference.a])
        difference.p = float(p[i])
        difference.deviation = float(deviation[i])
    return differences


def _deviation(values: Floats, strata: Strata) -> Floats:
    """Standard deviation (k,) of values (n, k) within their strata."""
    left = len(values) - len(strata.weights)
    if left < 1:
        return np.full(values.shape[1], np.nan)
    residual = values - strata.means(values)[strata.codes]
    constant = np.ptp(residual, axis=0) < ROUNDING
    return np.where(constant, 0.0, np.sqrt((residual**2).sum(axis=0) / left))


def _end(estimate: Estimate, i: int) -> End:
    below, above = estimate.reach
    return End(
        float(estimate.value[i]),
        max(float(below.se[i]), float(above.se[i])),
        float(estimate.df[i]),
        (float(below.se[i]), float(below.bend[i])),
        (float(above.se[i]), float(above.bend[i])),
    )


def _of_correlations(
    tables: Sequence[RowTable],
    spec: MeasureSpec,
    quantities: Sequence[Quantity],
    both: Bools,
    pairs: Sequence[tuple[int, int]],
) -> list[PairedDifference]:
    """Difference of two correlations over the same clusters: the jackknife leaves a level out of both.

    Correlations known only by bounds are not compared: p and interval stay unknown. So they do where two models gave
    the same counts: a mean allows for the share of items that may yet differ, but the effect of
    these items on a correlation has no such bound.
    """
    n = int(both.sum())
    differences = [PairedDifference(spec, a, b, "jackknife over clusters", n) for a, b in pairs]
    if n == 0:
        return differences
    covariate, clusters = correlated(tables[pairs[0][0]], spec, both)
    for difference in differences:
        difference.n_clusters = len(covariate)
    models = sorted({model for pair in pairs for model in pair})
    exact = [model for model in models if np.array_equal(quantities[model].low[both], quantities[model].high[both])]
    known = [difference for difference in differences if difference.a in exact and difference.b in exact]
    if not known or len(covariate) < 4:
        return differences
    values = np.column_stack([quantities[model].low[both] for model in exact])
    of_each = correlations(values, covariate, clusters)
    places = [(exact.index(difference.a), exact.index(difference.b)) for difference in known]
    estimate = unknown_where_few_are_alike(of_each.differences(places))
    same_counts = [
        estimate.se[i] == 0 and np.isin(values[:, place], (-1.0, 0.0, 1.0)).all() for i, place in enumerate(places)
    ]
    estimate = replace(estimate, se=np.where(same_counts, np.nan, estimate.se))
    p = estimate.p_two_sided()
    for i, (difference, (a, _)) in enumerate(zip(known, places, strict=True)):
        difference.low = difference.high = _end(estimate, i)
        difference.a_low = difference.a_high = float(of_each.value[a])
        difference.p = float(p[i])
    return differences

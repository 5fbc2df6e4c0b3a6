"""What separates two models, or two runs of one, in a figure: differences taken item by item.

Both answered the same questions, so the questions' own variation cancels. The error of the mean difference is
clustered like any other (`audit.analysis.estimators`). Only items with a value on both sides count.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from audit.analysis.comparing.significance import mcnemar_exact, p_of_counts_outside
from audit.analysis.correlations import correlations, extreme_items
from audit.analysis.design import (
    correlated,
    is_binary,
    is_count,
    layout_of,
    sampled_levels,
    undefined_strata,
    weighted_levels,
)
from audit.analysis.estimators import (
    ROUNDING,
    Codes,
    Estimate,
    Floats,
    MeanOf,
    Reach,
    Strata,
    ValueKind,
    clustered_mean,
    crossed_factors,
    is_constant,
    together,
    unknown_where_few_are_alike,
)
from audit.analysis.estimators.estimate import LEAST_DF, distance_at
from audit.analysis.missing import completed, has_range, missing_rows
from audit.analysis.table import Bools, Quantity, RowTable
from suites.base import MeasureSpec

#: Clusters of a kind not seen are taken to be apart by at most so many margins, where nothing else is assumed. Of 14
#: levels alike, then, two models may be called equivalent; without such an assumption of 150 (`interval_with_unseen`).
#: Where a rare kind is apart by more, no rule can tell: of 25 templates none is of a kind that a fifteenth of all are,
#: in 18 %, and the answers are then those of two models alike.
MARGINS_OF_UNSEEN = 5.0


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
        if not self.df >= LEAST_DF or math.isnan(self.se):
            return math.nan, math.nan
        t = float(special.stdtrit(self.df, (1 + confidence) / 2))
        below, above = (distance_at(*(side or (self.se, 0.0)), t) for side in (self.below, self.above))
        return self.value - below, self.value + above

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
    """A figure of b minus the same figure of a, over the items that both were asked; NaN where unknown.

    Attributes
    ----------
    a, b : int
        Positions of the two among the tables that were compared.
    n_items : int
        Items that both answered.
    n_missing : int
        Items whose answer is missing of one or both. They enter as bounds, see `audit.analysis.missing`.
    n_missing_in_both : int
        Those of them whose answer is missing of both.
    n_unpaired : int
        Items that only one of the two has: they are left out.
    unpaired_weight : float
        The part that these would have in the figure: it may be apart by all that the quantity can be.
    undefined : tuple of int
        As in `audit.results.Comparison.undefined_for`, by position.
    levels : mapping of str to int
        How many levels of each sampled factor the items hold.
    low, high : End
        The difference at its identification bounds, each with its own sampling error; equal where every item
        is exact.
    a_low, a_high : float
        The figure of a alone, over the same items.
    deviation : float
        Standard deviation of the items' differences.
    p : float
        Two-sided, that there is no difference.
    discordant : pair of (int, int), or None
        Where both answered yes or no: items with a yes of a only, and of b only, at each of the two bounds.
    complete : PairedDifference or None
        The same of the items that both answered; None where no answer is missing.
    margin : float
        Differences within ± the margin do not matter.
    largest_change : float
        How far apart the two can be on any item; inf where that is not known.
    """

    spec: MeasureSpec
    a: int
    b: int
    test: str
    n_items: int = 0
    n_missing: int = 0
    n_missing_in_both: int = 0
    n_unpaired: int = 0
    unpaired_weight: float = 0.0
    undefined: tuple[int, ...] = ()
    n_clusters: int = 0
    levels: dict[str, int] = field(default_factory=dict)
    weighted_levels: Sequence[tuple[float, int]] = ()
    low: End = UNKNOWN
    high: End = UNKNOWN
    a_low: float = math.nan
    a_high: float = math.nan
    deviation: float = math.nan
    p: float = math.nan
    discordant: tuple[tuple[int, int], tuple[int, int]] | None = None
    complete: PairedDifference | None = None
    margin: float = math.nan
    largest_change: float = math.inf

    @property
    def answered(self) -> PairedDifference:
        """The difference over the items that both answered: the one that is shown as a number."""
        return self if self.complete is None else self.complete

    @property
    def exact(self) -> bool:
        """Whether the difference itself is known, not only its bounds."""
        return self.low.value == self.high.value

    @property
    def is_identical(self) -> bool:
        """Whether both gave the same answers throughout, and none is missing of one alone."""
        return self.exact and self.low.value == 0 and self.complete is None and not self.deviation > 0

    @property
    def of_pairs(self) -> PairedDifference:
        """The same, were there no items that only one of the two has."""
        return replace(self, unpaired_weight=0.0)

    @property
    def unpaired_room(self) -> float:
        """How far the items that only one of the two has can move the figure of either."""
        least, most = self.spec.limits
        apart = math.inf if self.spec.estimator == "correlation" else most - least
        return self.unpaired_weight * apart if self.unpaired_weight else 0.0

    @property
    def fewest_levels(self) -> int:
        """Levels of the sampled factor that has fewest, in the stratum that has fewest of it."""
        return min([*self.levels.values(), *(n for _, n in self.weighted_levels)], default=0)

    @property
    def has_range(self) -> bool:
        """Whether missing answers are bounded by what the quantity can be, not by what was seen of it."""
        return has_range(self.spec)

    @property
    def p_of_counts_outside(self) -> float:
        """p of the score test against a difference of the margin or more; NaN unless all answers are binary."""
        if self.discordant is None or not 0 < self.margin < 1:
            return math.nan
        n = self.n_items + self.n_missing
        return max(p_of_counts_outside(*counts, n, self.margin) for counts in self.discordant)

    def allow_unseen(self, largest_change: float | None) -> None:
        """Assume that clusters of a kind not seen are apart by at most so much.

        None: by `MARGINS_OF_UNSEEN` margins where the quantity has a range, and by all that a yes or no can be apart.
        """
        is_counted = self.spec.from_counts or self.discordant is not None
        if largest_change is None and self.has_range and not is_counted:
            largest_change = MARGINS_OF_UNSEEN * self.margin
        if largest_change is not None:
            self.largest_change = min(self.largest_change, largest_change)
            self.answered.largest_change = self.largest_change

    @property
    def assumed_change(self) -> float | None:
        """The largest change of clusters not seen that is assumed; None: there is no bound."""
        return None if self.spec.estimator == "correlation" or math.isinf(self.largest_change) else self.largest_change

    def of_one_model(self) -> PairedDifference:
        """The same of one model that has not changed: an item that it left without an answer twice is no change.

        So where it gave the same answers throughout, neither these items nor clusters not seen can be apart.
        """
        if not self.answered.is_identical or self.n_missing != self.n_missing_in_both:
            return self
        nothing = End(0.0, 0.0, math.inf)
        return replace(
            self.answered,
            low=nothing,
            high=nothing,
            n_missing=self.n_missing,
            n_missing_in_both=self.n_missing_in_both,
            n_unpaired=self.n_unpaired,
            unpaired_weight=self.unpaired_weight,
            largest_change=0.0,
        )

    def interval(self, confidence: float) -> tuple[float, float]:
        """Confidence interval, from that of the lower bound to that of the upper, within what a difference can be."""
        low, high = self.low.interval(confidence)[0], self.high.interval(confidence)[1]
        least, most = self.spec.limits
        if self.spec.estimator == "mean" and max(abs(self.low.value), abs(self.high.value)) <= most - least:
            low, high = (math.copysign(min(abs(end), most - least), end) for end in (low, high))
        return low, high

    def p_above(self, null: float) -> float:
        """One-sided p against the hypothesis that the difference is at most ``null``; NaN where unknown."""
        return self.low.p_above(null)

    def p_below(self, null: float) -> float:
        """One-sided p against the hypothesis that the difference is at least ``null``; NaN where unknown."""
        return self.high.p_below(null)

    def interval_with_unpaired(self, confidence: float) -> tuple[float, float]:
        """The interval of all items, were those that only one of the two has apart by all that they can be."""
        return self._with_unpaired(*self.interval(confidence))

    def _with_unpaired(self, low: float, high: float) -> tuple[float, float]:
        if not self.unpaired_weight:
            return low, high
        paired = 1 - self.unpaired_weight
        return paired * low - self.unpaired_room, paired * high + self.unpaired_room

    def interval_with_unseen(self, confidence: float) -> tuple[float, float]:
        """The interval of all items, with room for a kind of cluster that is in none of those drawn.

        Of n templates drawn, a share π of all templates has no member with chance (1 - π)^n. So up to 1 - α^(1/n)
        of them, α = (1 - confidence) / 2, may be of a kind that was not seen, and be apart by as much as the quantity
        can be (3 / n at 95 %: the rule of three, Hanley & Lippman-Hand 1983, JAMA 249(13)). Student's t knows
        nothing of them: it calls two models alike although a tenth of the templates moved by 0.3, whenever none
        of the ten in the sample is one of these. Strata have kinds of their own, which weigh as the strata do. Without
        a range there is no such room, and a correlation's has no bound.
        """
        low, high = self.interval(confidence)
        if self.largest_change == 0:
            return self._with_unpaired(low, high)
        if self.spec.estimator == "correlation":
            return -math.inf, math.inf
        if math.isinf(self.largest_change):
            return self._with_unpaired(low, high)
        alpha = (1 - confidence) / 2
        unseen = max((weight * (1 - alpha ** (1 / n)) for weight, n in self.weighted_levels if n), default=1.0)
        most = self.largest_change
        return self._with_unpaired(min(low, low - unseen * (most + low)), max(high, high + unseen * (most - high)))


def paired_differences(
    tables: Sequence[RowTable], specs: Iterable[MeasureSpec], pairs: Sequence[tuple[int, int]]
) -> list[PairedDifference]:
    """The figures' differences of the given pairs of tables, which share their item index: by figure, then by pair."""
    return list(itertools.chain.from_iterable(together(_of_figure(tables, spec, pairs) for spec in specs)))


def _of_figure(
    tables: Sequence[RowTable], spec: MeasureSpec, pairs: Sequence[tuple[int, int]]
) -> Generator[MeanOf, Estimate, list[PairedDifference]]:
    if not has_range(spec) and len(tables) > 2 and any(missing_rows(table, spec).any() for table in tables):
        of_pairs = []
        for pair in pairs:  # what a missing answer can be is taken from these two alone
            (one,) = yield from _of_figure([tables[i] for i in pair], spec, [(0, 1)])
            of_pairs.append(replace(one, a=pair[0], b=pair[1], undefined=tuple(pair[i] for i in one.undefined)))
        return of_pairs
    answers = completed(tables, spec)
    of_answered = yield from _each_pair(
        tables, spec, [table.quantity(spec.quantity) for table in tables], [answer.used for answer in answers], pairs
    )
    with_missing = [pair for pair in pairs if any(answers[i].missing.any() for i in pair) and of_answered[pair].n_items]
    of_asked = yield from _each_pair(
        tables, spec, [answer.quantity for answer in answers], [answer.asked for answer in answers], with_missing
    )
    differences = []
    for pair in pairs:
        difference, (a, b) = of_answered[pair], pair
        used, asked = ([getattr(answers[i], rows) for i in pair] for rows in ("used", "asked"))
        alone, both = asked[0] ^ asked[1], asked[0] & asked[1]
        if pair in of_asked and of_asked[pair].n_items > difference.n_items:
            of_asked[pair].complete = difference
            difference = of_asked[pair]
            difference.n_items = difference.answered.n_items
            difference.n_missing = int(both.sum()) - difference.n_items
            difference.n_missing_in_both = int((answers[a].missing & answers[b].missing).sum())
        for of_items in (difference, difference.answered):
            of_items.n_unpaired = int(alone.sum())
            of_items.unpaired_weight = _weight_of(alone, both, [tables[i] for i in pair], spec)
        if difference.n_items == 0:
            difference.undefined = _undefined(tables, used, spec, a, b)
        differences.append(difference)
    return differences


def _weight_of(alone: Bools, both: Bools, tables: Sequence[RowTable], spec: MeasureSpec) -> float:
    """The part in the figure of rows (n,) that one table alone has, beside those that both have."""
    if not alone.any():
        return 0.0
    if spec.stratum is None or spec.weights is None:
        return float(alone.sum() / (alone | both).sum())
    codes = np.maximum(*(table.codes(spec.stratum) for table in tables))  # -1 where a table lacks the row
    part = 0.0
    for level, weight in spec.weights.items():
        own = codes == tables[0].levels.find(spec.stratum, level)
        part += weight * float((alone & own).sum() / max((own & (alone | both)).sum(), 1))
    return part


def _each_pair(
    tables: Sequence[RowTable],
    spec: MeasureSpec,
    quantities: Sequence[Quantity],
    used: Sequence[Bools],
    pairs: Sequence[tuple[int, int]],
) -> Generator[MeanOf, Estimate, dict[tuple[int, int], PairedDifference]]:
    """The pairs' differences over the rows that both use."""
    # Pairs that share the same items are computed together: mostly that is all of them.
    groups: dict[bytes, tuple[Bools, list[tuple[int, int]]]] = {}
    for a, b in pairs:
        both = used[a] & used[b]
        groups.setdefault(both.tobytes(), (both, []))[1].append((a, b))
    least, most = spec.limits
    differences: dict[tuple[int, int], PairedDifference] = {}
    for both, members in groups.values():
        table = tables[members[0][0]]
        levels, weighted = sampled_levels(table, spec, both), weighted_levels(table, spec, both)
        if spec.estimator == "correlation":
            found = _of_correlations(tables, spec, quantities, both, members)
        else:
            found = yield from _of_means(tables, spec, quantities, both, members)
        for difference in found:
            difference.levels, difference.weighted_levels = levels, weighted
            difference.largest_change = most - least
            differences[difference.a, difference.b] = difference
    return differences


def _undefined(tables: Sequence[RowTable], used: Sequence[Bools], spec: MeasureSpec, a: int, b: int) -> tuple[int, ...]:
    """Of two tables without an item in common: those whose answers do not define the figure, on items both answered."""
    both = tables[a].matching(spec.where) & tables[a].answered
    both &= tables[b].matching(spec.where) & tables[b].answered
    if not both.any():
        return ()
    return tuple(i for i, own in zip((a, b), used, strict=True) if not (own & both).any()) or (a, b)


def _of_means(
    tables: Sequence[RowTable],
    spec: MeasureSpec,
    quantities: Sequence[Quantity],
    both: Bools,
    pairs: Sequence[tuple[int, int]],
) -> Generator[MeanOf, Estimate, list[PairedDifference]]:
    n = int(both.sum())
    differences = [PairedDifference(spec, a, b, "paired t", n) for a, b in pairs]
    if n == 0 or undefined_strata(tables[pairs[0][0]], spec, both):
        return differences
    lows = np.column_stack([q.low[both] for q in quantities])
    highs = np.column_stack([q.high[both] for q in quantities])
    a, b = np.array(pairs).T
    layout = layout_of(tables[a[0]], spec, both)
    clusters, strata = layout.clusters, layout.strata or Strata.one(n)
    at_low = lows[:, b] - highs[:, a]
    at_high = highs[:, b] - lows[:, a]
    # A third model's answers say nothing about these two: each pair by its own values.
    counts, binary = (
        np.array([all(kind(spec, end[:, pair], end[:, pair]) for end in (lows, highs)) for pair in pairs])
        for kind in (is_count, is_binary)
    )
    least, most = spec.limits
    kind = ValueKind(least - most, most - least, counts)
    low = high = yield MeanOf(at_low, layout, kind)
    if not np.array_equal(at_low, at_high):
        high = yield MeanOf(at_high, layout, kind)
    if (same := _same_answers(lows[:, a], at_low, at_high) & ~counts).any():
        certain = clustered_mean(at_low, clusters, strata)
        low, high = low.where(same, certain), high.where(same, certain)
    # Twice the smaller one-sided p: for an exact difference this is the two-sided p.
    p = np.minimum(1.0, 2 * np.minimum(low.p_above(0.0), high.p_below(0.0)))
    ends = [
        ((at < 0).sum(axis=0), (at > 0).sum(axis=0)) for at in (at_low, at_high)
    ]  # items with a yes of a, of b only
    (fewest_b, fewest_a), (most_a, most_b) = (ends[0][1], ends[0][0]), ends[1]
    mcnemar = np.minimum(  # more yes of b, or more of a, even at the bound that is least in favour
        np.where(fewest_b > fewest_a, mcnemar_exact(fewest_b, fewest_a), 1.0),
        np.where(most_a > most_b, mcnemar_exact(most_b, most_a), 1.0),
    )
    crossed = bool(crossed_factors(clusters))
    deviation = _deviation(at_low, strata)
    mean_low, mean_high = map(strata.mean, (lows, highs))
    for i, difference in enumerate(differences):
        difference.test, difference.n_clusters = "paired t, clustered" if clusters else "paired t", low.n_clusters
        if binary[i]:
            at_bounds = [(int(only_a[i]), int(only_b[i])) for only_a, only_b in ends]
            difference.discordant = at_bounds[0], at_bounds[1]
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


def _same_answers(values: Floats, at_low: Floats, at_high: Floats) -> Bools:
    """Whether values (n, k) that vary differ by nothing (k,): the same model's answers, not a sample's luck."""
    nothing = (np.maximum(np.abs(at_low), np.abs(at_high)) < ROUNDING).all(axis=0)
    return np.asarray(nothing & ~is_constant(values, 0.0))


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

    Correlations known only by bounds are apart by what their extremes are, each with its own error. p and interval stay
    unknown where two models gave the same counts: a mean allows for the share of items that may yet differ, but the
    effect of these items on a correlation has no such bound.
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
    if len(covariate) < 4:
        return differences
    for difference in differences:
        if difference.a not in exact or difference.b not in exact:
            ends = [(quantities[i].low[both], quantities[i].high[both]) for i in (difference.a, difference.b)]
            _place_extremes(difference, ends, covariate, clusters)
    if not known:
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


def _place_extremes(
    difference: PairedDifference, bounds: Sequence[tuple[Floats, Floats]], covariate: Floats, clusters: Sequence[Codes]
) -> None:
    """The difference of two correlations of items known by bounds (low, high) of a and of b, at its two extremes."""
    (a_low, a_high), (b_low, b_high) = (
        [extreme_items(*ends, covariate, clusters[0], sign) for sign in (-1, 1)] for ends in bounds
    )
    columns = np.column_stack([items for _, items in (a_high, b_low, a_low, b_high)])
    estimate = unknown_where_few_are_alike(correlations(columns, covariate, clusters).differences([(0, 1), (2, 3)]))
    # An extreme may lie beyond what the items at hand reach: then its own value counts, with their error.
    difference.low = _end(estimate, 0)._replace(value=b_low[0] - a_high[0])
    difference.high = _end(estimate, 1)._replace(value=b_high[0] - a_low[0])
    difference.a_low, difference.a_high = a_low[0], a_high[0]
    difference.p = min(1.0, 2 * min(difference.p_above(0.0), difference.p_below(0.0)))

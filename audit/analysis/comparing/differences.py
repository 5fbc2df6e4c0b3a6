"""Differences in a figure between two models, or two runs of one, computed item by item.

Both answered the same questions, so the variation between questions cancels. The standard error of the mean difference
is clustered like any other (`audit.analysis.estimators`). Only items with a value on both sides count.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from audit.analysis.comparing.paired import End, PairedDifference
from audit.analysis.comparing.significance import mcnemar_exact
from audit.analysis.correlations import correlations, extreme_items, is_mostly_true
from audit.analysis.estimators import (
    ROUNDING,
    Codes,
    Estimate,
    Floats,
    Layout,
    MeanOf,
    Strata,
    ValueKind,
    blocks,
    clustered_mean,
    crossed_factors,
    few_levels_decide,
    gathered,
    is_constant,
    rests_on_few_levels,
    together,
    total,
    unknown_where_few_are_alike,
)
from audit.analysis.rows.design import (
    correlated,
    draw_noise,
    is_binary,
    is_count,
    layout_of,
    sampled_levels,
    undefined_strata,
    weighted_levels,
)
from audit.analysis.rows.missing import Completed, completed, missing_rows
from audit.analysis.rows.table import Bools, Quantity, RowTable
from audit.spool import scratch, selected
from suites.base import MeasureSpec


def paired_differences(
    tables: Sequence[RowTable], specs: Iterable[MeasureSpec], pairs: Sequence[tuple[int, int]]
) -> list[PairedDifference]:
    """The figures' differences of the given pairs of tables, which share their item index: by figure, then by pair."""
    return list(itertools.chain.from_iterable(together(_of_figure(tables, spec, pairs) for spec in specs)))


def paired_sums(
    tables: Sequence[RowTable], specs: Iterable[MeasureSpec], pairs: Sequence[tuple[int, int]]
) -> list[PairedDifference]:
    """For pairs with the first table, the sum of both figures' distances from neutral: b + a - 2 · neutral.

    Computed as the difference between b and a mirrored about the neutral value.
    """
    return list(itertools.chain.from_iterable(together(_of_figure(tables, s, pairs, s.neutral) for s in specs)))


def _mirrored(quantity: Quantity, about: float) -> Quantity:
    value, low, high = (
        gathered(len(of), lambda rows, of=of: 2 * about - of[rows], np.float64)  # type: ignore[misc]
        for of in (quantity.value, quantity.high, quantity.low)
    )
    return Quantity(value, low, high, quantity.draw_variance)


def _mirrored_too(spec: MeasureSpec, about: float) -> MeasureSpec:
    """The specification of a quantity that may also be mirrored."""
    if not spec.has_range:
        return spec
    least, most = spec.limits
    both = min(least, 2 * about - most), max(most, 2 * about - least)
    return replace(spec, kind="difference", range=both, is_count=spec.from_counts)


def _of_figure(
    tables: Sequence[RowTable], spec: MeasureSpec, pairs: Sequence[tuple[int, int]], about: float | None = None
) -> Generator[MeanOf, Estimate, list[PairedDifference]]:
    """The figure's differences; ``about``: the first table, which is a of all pairs, mirrored about that value."""
    if not spec.has_range and len(tables) > 2 and any(missing_rows(table, spec).any() for table in tables):
        of_pairs = []
        for pair in pairs:  # what a missing answer can be is taken from these two alone
            (one,) = yield from _of_figure([tables[i] for i in pair], spec, [(0, 1)])
            of_pairs.append(replace(one, a=pair[0], b=pair[1], undefined=tuple(pair[i] for i in one.undefined)))
        return of_pairs
    # Hundreds of figures wait here for their means: what is as long as the tables must not outlive `_prepared`.
    of_answered, of_asked, facts = _prepared(tables, spec, pairs, about)
    answered = yield from _each_pair(of_answered)
    asked = yield from _each_pair(of_asked)
    differences = []
    for pair in pairs:
        difference, known = answered[pair], facts[pair]
        if pair in asked and asked[pair].n_items > difference.n_items:
            asked[pair].complete = difference
            difference = asked[pair]
            difference.n_items = difference.answered.n_items
            difference.n_missing = known.n_both - difference.n_items
            difference.n_missing_in_both = known.n_missing_in_both
        for of_items in (difference, difference.answered):
            of_items.n_unpaired = known.n_unpaired
            of_items.unpaired_weight = known.unpaired_weight
        if difference.n_items == 0:
            difference.undefined = known.undefined
        differences.append(difference)
    return differences


class _Facts(NamedTuple):
    """What is known of a pair before its difference: numbers of rows, and as in `PairedDifference`."""

    n_both: int
    n_missing_in_both: int
    n_unpaired: int
    unpaired_weight: float
    undefined: tuple[int, ...]


class _Group(NamedTuple):
    """Pairs of tables whose differences are of the same rows; ``found`` are done, unless ``means`` are needed first."""

    found: list[PairedDifference]
    means: _Means | None


def _prepared(
    tables: Sequence[RowTable], spec: MeasureSpec, pairs: Sequence[tuple[int, int]], about: float | None
) -> tuple[list[_Group], list[_Group], dict[tuple[int, int], _Facts]]:
    """What the differences of the answered items need, and those of all that were asked; and each pair's facts."""
    answers = completed(tables, spec)
    quantities = [table.quantity(spec.quantity) for table in tables]
    if about is not None:
        quantities[0] = _mirrored(quantities[0], about)
        answers[0] = replace(answers[0], quantity=_mirrored(answers[0].quantity, about))
        spec = _mirrored_too(spec, about)
    used, asked = [answer.used for answer in answers], [answer.asked for answer in answers]
    facts = {(a, b): _facts_of(tables, spec, answers, (a, b)) for a, b in pairs}
    of_answered = _groups(tables, spec, quantities, used, pairs)
    with_missing = [
        (a, b) for a, b in pairs if (answers[a].missing.any() or answers[b].missing.any()) and (used[a] & used[b]).any()
    ]
    of_asked = _groups(tables, spec, [answer.quantity for answer in answers], asked, with_missing)
    return of_answered, of_asked, facts


def _facts_of(
    tables: Sequence[RowTable], spec: MeasureSpec, answers: Sequence[Completed], pair: tuple[int, int]
) -> _Facts:
    a, b = pair
    used, asked = ([getattr(answers[i], rows) for i in pair] for rows in ("used", "asked"))
    alone, both = asked[0] ^ asked[1], asked[0] & asked[1]
    return _Facts(
        int(both.sum()),
        int((answers[a].missing & answers[b].missing).sum()),
        int(alone.sum()),
        _weight_of(alone, both, [tables[i] for i in pair], spec),
        () if (used[0] & used[1]).any() else _undefined(tables, used, spec, a, b),
    )


def _weight_of(alone: Bools, both: Bools, tables: Sequence[RowTable], spec: MeasureSpec) -> float:
    """The weight in the figure of rows (n,) that only one table has, relative to all rows."""
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


def _groups(
    tables: Sequence[RowTable],
    spec: MeasureSpec,
    quantities: Sequence[Quantity],
    used: Sequence[Bools],
    pairs: Sequence[tuple[int, int]],
) -> list[_Group]:
    """The pairs by the rows that both use: those of the same rows are computed together, usually all of them."""
    groups: dict[bytes, tuple[Bools, list[tuple[int, int]]]] = {}
    for a, b in pairs:
        both = used[a] & used[b]
        groups.setdefault(hashlib.sha256(both.data).digest(), (both, []))[1].append((a, b))
    least, most = spec.limits
    prepared = []
    for both, members in groups.values():
        table = tables[members[0][0]]
        levels, weighted = sampled_levels(table, spec, both), weighted_levels(table, spec, both)
        if spec.estimator == "correlation":
            found, means = _of_correlations(tables, spec, quantities, both, members), None
        else:
            found = [PairedDifference(spec, a, b, "paired t", int(both.sum())) for a, b in members]
            means = _means_of(tables, spec, quantities, both, members)
        for difference in found:
            difference.levels, difference.weighted_levels = levels, weighted
            difference.largest_change = most - least
        prepared.append(_Group(found, means))
    return prepared


def _each_pair(groups: Sequence[_Group]) -> Generator[MeanOf, Estimate, dict[tuple[int, int], PairedDifference]]:
    """The pairs' differences."""
    differences: dict[tuple[int, int], PairedDifference] = {}
    for found, means in groups:
        if means is not None:
            yield from _of_means(means, found)
        differences.update(((difference.a, difference.b), difference) for difference in found)
    return differences


def _undefined(tables: Sequence[RowTable], used: Sequence[Bools], spec: MeasureSpec, a: int, b: int) -> tuple[int, ...]:
    """For tables without common items: those whose answers leave the figure undefined on items that both answered."""
    both = tables[a].matching(spec.where) & tables[a].answered
    both &= tables[b].matching(spec.where) & tables[b].answered
    if not both.any():
        return ()
    return tuple(i for i, own in zip((a, b), used, strict=True) if not (own & both).any()) or (a, b)


class _Means(NamedTuple):
    """Bounds (n, models) of the rows that all pairs (a, b) use, and of these rows alone."""

    spec: MeasureSpec
    lows: Floats
    highs: Floats
    a: Codes
    b: Codes
    layout: Layout


def _means_of(
    tables: Sequence[RowTable],
    spec: MeasureSpec,
    quantities: Sequence[Quantity],
    both: Bools,
    pairs: Sequence[tuple[int, int]],
) -> _Means | None:
    """What the differences of means need; None if there is none."""
    if not both.any() or undefined_strata(tables[pairs[0][0]], spec, both):
        return None
    lows = _beside([selected(q.low, both) for q in quantities])
    is_exact = all(q.high is q.low for q in quantities)
    highs = lows if is_exact else _beside([selected(q.high, both) for q in quantities])
    a, b = np.array(pairs).T
    return _Means(spec, lows, highs, a, b, layout_of(tables[a[0]], spec, both))


def _beside(columns: Sequence[Floats]) -> Floats:
    """Columns (n,) as an array (n, k)."""
    found = scratch((len(columns[0]), len(columns)), np.float64)
    for place, column in enumerate(columns):
        found[:, place] = column
    return found


def _apart_from(b: Codes, values: Floats, a: Codes, others: Floats) -> Floats:
    """Differences (n, pairs) of columns ``b`` of values from columns ``a`` of others, each column in one piece."""
    found = scratch((len(a), len(values)), np.float64).T
    for rows in blocks(len(values)):
        found[rows] = values[rows][:, b] - others[rows][:, a]
    return found


def _of_means(means: _Means, differences: Sequence[PairedDifference]) -> Generator[MeanOf, Estimate, None]:
    """Fill in the differences of the pairs, in order."""
    spec, lows, highs, a, b, layout = means
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    clusters, strata = layout.clusters, layout.strata or Strata.one(len(lows))
    at_low = _apart_from(b, lows, a, highs)
    at_high = at_low if highs is lows else _apart_from(b, highs, a, lows)
    # A third model's answers are irrelevant for these two, so each pair is classified by its own values.
    counts, binary = (
        np.array([all(kind(spec, end[:, i], end[:, i]) for end in (lows, highs) for i in pair) for pair in pairs])
        for kind in (is_count, is_binary)
    )
    least, most = spec.limits
    kind = ValueKind(least - most, most - least, counts, is_change=True)
    low = high = yield MeanOf(at_low, layout, kind)
    if not (at_high is at_low or np.array_equal(at_low, at_high)):
        high = yield MeanOf(at_high, layout, kind)
    if (same := _same_answers(lows, a, at_low, at_high) & ~counts).any():
        certain = clustered_mean(at_low, clusters, strata)
        low, high = low.where(same, certain), high.where(same, certain)
    # Twice the smaller one-sided p: for an exact difference this is the two-sided p.
    p = np.minimum(1.0, 2 * np.minimum(low.p_above(0.0), high.p_below(0.0)))
    ends = [_signs(at) for at in (at_low, at_high)]  # items with a yes of a, of b only
    mcnemar = _mcnemar(*ends)
    crossed = bool(crossed_factors(clusters))
    deviation = _deviation(at_low, strata)
    mean_low, mean_high = map(strata.mean, (lows, highs))
    is_of_few = _few_decide(spec, (lows, highs), (a, b), binary, layout)
    for i, difference in enumerate(differences):
        difference.test, difference.n_clusters = "paired t, clustered" if clusters else "paired t", low.n_clusters
        if binary[i]:
            at_bounds = [(int(only_a[i]), int(only_b[i])) for only_a, only_b in ends]
            difference.discordant = at_bounds[0], at_bounds[1]
        if binary[i] and crossed:
            # McNemar's test assumes independent items, and the t-test needs many discordant
            # ones. Each alone is unreliable, so the more conservative one is used.
            difference.test = "McNemar (exact) and paired t, clustered"
            p[i] = np.nan if np.isnan(p[i]) else max(p[i], mcnemar[i])
        elif binary[i] and not clusters:
            difference.test, p[i] = "McNemar (exact)", mcnemar[i]
        difference.low, difference.high = _end(low, i), _end(high, i)
        difference.a_low, difference.a_high = float(mean_low[difference.a]), float(mean_high[difference.a])
        difference.p = float(p[i])
        difference.deviation = float(deviation[i])
        difference.is_of_few = bool(is_of_few[i])


def _signs(values: Floats) -> tuple[Codes, Codes]:
    """The numbers of values (n, k) below 0, and above (k,)."""
    n = len(values)
    below, above = total(n, lambda at: (values[at] < 0).sum(axis=0)), total(n, lambda at: (values[at] > 0).sum(axis=0))
    return below.astype(np.intp), above.astype(np.intp)


def _mcnemar(at_low: tuple[Codes, Codes], at_high: tuple[Codes, Codes]) -> Floats:
    """McNemar's p (pairs,) from the items with a yes of a, and of b only, at the two bounds."""
    (fewest_b, fewest_a), (most_a, most_b) = (at_low[1], at_low[0]), at_high
    return np.minimum(  # more yes of b, or more of a, even at the bound that is least in favour
        np.where(fewest_b > fewest_a, mcnemar_exact(fewest_b, fewest_a), 1.0),
        np.where(most_a > most_b, mcnemar_exact(most_b, most_a), 1.0),
    )


def _few_decide(
    spec: MeasureSpec, bounds: tuple[Floats, Floats], pairs: tuple[Codes, Codes], binary: Bools, layout: Layout
) -> Bools:
    """Whether a few levels decide each pair's difference, or one of its figures (pairs,).

    ``bounds`` (n, k) are of each model's values, ``pairs`` their columns a and b; ``binary``: of yes and no.
    """
    (lows, highs), (a, b) = bounds, pairs
    clusters, strata = layout.clusters, layout.strata or Strata.one(len(lows))
    decide = np.zeros(len(a), dtype=np.bool_)
    for least, most in [(lows, highs), *([] if lows is highs or np.array_equal(lows, highs) else [(highs, lows)])]:
        decide |= few_levels_decide(_apart_from(b, least, a, most), clusters, strata)
    if spec.kind in ("probability", "share"):
        rests = np.array(
            [any(rests_on_few_levels(x, clusters) for x in ends) for ends in zip(lows.T, highs.T, strict=True)]
        )
        decide |= ~binary & (rests[a] | rests[b])
    return decide


def _same_answers(values: Floats, a: Codes, at_low: Floats, at_high: Floats) -> Bools:
    """Whether columns ``a`` that vary have no differences (pairs,): the same model's answers, rather than chance."""
    nothing = np.array([_is_nothing(at_low[rows], at_high[rows]) for rows in blocks(len(at_low))]).all(axis=0)
    return np.asarray(nothing & ~is_constant(values, 0.0)[a])


def _is_nothing(at_low: Floats, at_high: Floats) -> Bools:
    return np.asarray((np.maximum(np.abs(at_low), np.abs(at_high)) < ROUNDING).all(axis=0))


def _deviation(values: Floats, strata: Strata) -> Floats:
    """Standard deviation (k,) of values (n, k) within their strata."""
    left = len(values) - len(strata.weights)
    if left < 1:
        return np.full(values.shape[1], np.nan)
    means = strata.means(values)
    residual = gathered(values.shape, lambda rows: values[rows] - means[strata.codes[rows]], np.float64)
    constant = np.ptp(residual, axis=0) < ROUNDING
    return np.where(constant, 0.0, np.sqrt(np.square(residual, out=residual).sum(axis=0) / left))


def _end(estimate: Estimate, i: int) -> End:
    below, above = estimate.reach
    return End(
        float(estimate.value[i]),
        max(float(below.se[i]), float(above.se[i])),
        float(estimate.df[i]),
        (float(below.se[i]), float(below.bend[i])),
        (float(above.se[i]), float(above.bend[i])),
        None if estimate.far_df is None else float(estimate.far_df[i]),
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
    noise = {model: draw_noise(quantities[model], both, spec, clusters[0]) for model in models}
    for difference in differences:
        if difference.a not in exact or difference.b not in exact:
            ends = [(quantities[i].low[both], quantities[i].high[both]) for i in (difference.a, difference.b)]
            _place_extremes(difference, ends, covariate, clusters, [noise[i] for i in (difference.a, difference.b)])
    known = [
        one
        for one in known
        if all(_is_known(quantities[i], both, covariate, clusters, noise[i]) for i in (one.a, one.b))
    ]
    if not known:
        return differences
    values = np.column_stack([quantities[model].low[both] for model in exact])
    of_each = correlations(values, covariate, clusters, _columns(values, [noise[model] for model in exact]))
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


def _is_known(
    quantity: Quantity, both: Bools, covariate: Floats, clusters: Sequence[Codes], noise: Floats | None
) -> bool:
    return is_mostly_true(quantity.low[both], covariate, clusters, noise)


def _columns(values: Floats, noise: Sequence[Floats | None]) -> Floats:
    """The variances (n, k) of columns of values (n, k) through draws, 0 where none were drawn."""
    return np.column_stack([np.zeros(len(values)) if one is None else one for one in noise])


def _place_extremes(
    difference: PairedDifference,
    bounds: Sequence[tuple[Floats, Floats]],
    covariate: Floats,
    clusters: Sequence[Codes],
    noise: Sequence[Floats | None],
) -> None:
    """The difference of two correlations of items known by bounds (low, high) of a and of b, at its two extremes."""
    (a_low, a_high), (b_low, b_high) = (
        [extreme_items(*ends, covariate, clusters[0], sign) for sign in (-1, 1)] for ends in bounds
    )
    columns = np.column_stack([items for _, items in (a_high, b_low, a_low, b_high)])
    of_draws = _columns(columns, [*noise, *noise])
    if of_draws.any():
        of_each = correlations(columns, covariate, clusters, of_draws)
        if not all(is_mostly_true(x, covariate, clusters, one) for x, one in zip(columns.T, of_draws.T, strict=True)):
            return  # draws leave it unknown
        a_high, b_low, a_low, b_high = zip(of_each.value.tolist(), columns.T, strict=True)
    else:
        of_each = correlations(columns, covariate, clusters)
    estimate = unknown_where_few_are_alike(of_each.differences([(0, 1), (2, 3)]))
    # An extreme may lie beyond the value at these items: then its own value is used, with their error.
    difference.low = _end(estimate, 0)._replace(value=b_low[0] - a_high[0])
    difference.high = _end(estimate, 1)._replace(value=b_high[0] - a_low[0])
    difference.a_low, difference.a_high = a_low[0], a_high[0]
    difference.p = min(1.0, 2 * min(difference.p_above(0.0), difference.p_below(0.0)))

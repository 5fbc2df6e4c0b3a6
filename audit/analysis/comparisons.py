"""Which of two models has more of something, and how sure that is: pairs of models, item by item.

Both models answered the same questions, so their differences are taken item by item and the
questions' own spread cancels. The interval of the mean difference is clustered like any other
(`audit.analysis.estimators`). Only items that both answered count; the sentence of each comparison says
how many had to be left out. Where they are more than `MOST_UNPAIRED`, nothing is called equivalent.

Many comparisons at once find differences by luck. Holm's correction holds the chance of even one
wrong "larger" or "smaller" to 1 - confidence over all pairs of models and all figures of one
family of one suite: a reader looks over all pairs, so all pairs are corrected together. Figures of
single levels (``is_subgroup``) are a family of their own. Claims of equivalence are corrected likewise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from audit.analysis.estimators import (
    ROUNDING,
    Estimate,
    Floats,
    allow_for_few_outcomes,
    clustered_mean,
    correlations,
    crossed_factors,
    holm,
    unknown_where_few_are_alike,
)
from audit.analysis.measures import RANGES, cluster_codes, correlated, counted, finite, is_binary, usable
from audit.analysis.table import Bools, Levels, Quantity, RowTable, item_index
from audit.results import VERDICT_WORDS, Comparison, Rank, Ranking, Verdict
from suites.base import MeasureSpec, Row

POWER = 0.8
#: Equivalence margin of a measure for which none is given.
DEFAULT_MARGIN = 0.02
#: With more than this share of the items answered by one of the two only, they are not called alike.
MOST_UNPAIRED = 0.05


def compare_models(
    rows_by_model: Mapping[str, Sequence[Row]],
    specs: Iterable[MeasureSpec],
    *,
    suite: str,
    margins: Mapping[str, float] | float = DEFAULT_MARGIN,
    confidence: float = 0.95,
) -> list[Comparison]:
    """Every pair of models on every figure of one suite.

    Parameters
    ----------
    rows_by_model : mapping of model name to its rows
        Derived rows too. Items are matched by id.
    specs : iterable of MeasureSpec
        The figures to compare, each (measure, where) once.
    margins : float or mapping of measure name to float
        Differences within ± the margin do not matter. In a mapping, ``default`` stands for the
        measures it does not name, else `DEFAULT_MARGIN`.
    confidence : float
        Level of the intervals; 1 - confidence is the level of the tests.

    Returns
    -------
    list of Comparison
        By figure, then by pair in the models' order. ``difference`` is b minus a.
        ``effect_size`` is Cohen's d of paired items (mean difference / its standard deviation over
        items; over clusters' jackknife values there is none). ``detectable`` is (t of 1 - α/2m +
        t of 0.8) standard errors, m the tests in the family: the first step of Holm, so the
        smallest difference found with 80 % power whatever the other comparisons say. Where McNemar's
        test counts too, it is at least what that finds if all discordant items fall one way; None
        where so few items are never enough.

    Raises
    ------
    ValueError
        When a model has two rows for one item.
    """
    models = list(rows_by_model)
    pairs = list(itertools.combinations(range(len(models)), 2))
    if not pairs:
        return []
    index = item_index(rows_by_model.values())
    levels = Levels()
    tables = [RowTable(rows, index, levels) for rows in rows_by_model.values()]
    found = [one for spec in specs for one in paired_differences(tables, spec, pairs)]
    families: dict[tuple[str, bool], list[PairedDifference]] = {}
    for one in found:
        one.margin = _margin_of(margins, one.spec.measure)
        families.setdefault((one.spec.family, one.spec.is_subgroup), []).append(one)
    for family in families.values():
        _correct(family)
    return [_comparison(one, models, suite, confidence) for one in found]


@dataclass(slots=True)
class PairedDifference:
    """What one pair's paired items say of one figure: b minus a, then Holm's correction of it.

    ``low`` and ``high`` are the difference's identification bounds, each with its own sampling
    error; they are equal where every item is exact. ``a_low``/``a_high``: the figure of a alone,
    over the same items. ``undefined``: as in `Comparison.undefined_for`. NaN: unknown.
    """

    spec: MeasureSpec
    a: int
    b: int
    test: str
    n_items: int = 0
    left_out: int = 0
    undefined: tuple[int, ...] = ()
    n_clusters: int = 0
    low: float = np.nan  # the difference at its lower identification bound
    high: float = np.nan
    low_se: float = np.nan
    high_se: float = np.nan
    low_df: float = np.nan
    high_df: float = np.nan
    a_low: float = np.nan
    a_high: float = np.nan
    deviation: float = np.nan
    p: float = np.nan
    margin: float = np.nan
    only_a: int | None = None  # discordant items, where both answered yes or no
    only_b: int | None = None
    p_outside: float = np.nan  # two one-sided tests against ± margin
    p_holm: float = np.nan
    p_outside_holm: float = np.nan
    tests: int = 0

    @property
    def exact(self) -> bool:
        return self.low == self.high

    @property
    def unpaired_share(self) -> float:
        """The share of the items of which only one of the two has a value."""
        return _unpaired_share(self.left_out, self.n_items)

    @property
    def p_of_counts_outside(self) -> float:
        """`p_outside` at the margin; NaN where the items are no pairs of yes or no."""
        if self.only_a is None or self.only_b is None or not 0 < self.margin < 1:
            return math.nan
        return p_outside(self.only_a, self.only_b, self.n_items, self.margin)


def paired_differences(
    tables: Sequence[RowTable], spec: MeasureSpec, pairs: Sequence[tuple[int, int]]
) -> Iterator[PairedDifference]:
    """One figure's differences of the given pairs of tables, which share their item index, uncorrected."""
    quantities = [table.quantity(spec.quantity) for table in tables]
    used = [usable(table, spec) for table in tables]
    # Pairs that share the same items are computed together: mostly that is all of them.
    groups: dict[bytes, tuple[Bools, list[tuple[int, int]]]] = {}
    for a, b in pairs:
        both = used[a] & used[b]
        groups.setdefault(both.tobytes(), (both, []))[1].append((a, b))
    differences: dict[tuple[int, int], PairedDifference] = {}
    for both, members in groups.values():
        left_out = [int((used[a] ^ used[b]).sum()) for a, b in members]
        compare = _correlations if spec.estimator == "correlation" else _means
        for one, missed in zip(compare(tables, spec, quantities, both, members), left_out, strict=True):
            one.left_out = missed
            if one.n_items == 0:
                one.undefined = _undefined(tables, used, spec, one.a, one.b)
            differences[one.a, one.b] = one
    for pair in pairs:
        yield differences[pair]


def _undefined(tables: Sequence[RowTable], used: Sequence[Bools], spec: MeasureSpec, a: int, b: int) -> tuple[int, ...]:
    """Of two tables without an item that counts in both: those without the figure where both have an answer."""
    both = tables[a].matching(spec.where) & tables[a].answered
    both &= tables[b].matching(spec.where) & tables[b].answered
    if not both.any():
        return ()
    return tuple(i for i in (a, b) if not (used[i] & both).any()) or (a, b)


def _unpaired_share(left_out: int, n_items: int) -> float:
    return left_out / (left_out + n_items) if left_out else 0.0


def _means(
    tables: Sequence[RowTable],
    spec: MeasureSpec,
    quantities: Sequence[Quantity],
    both: Bools,
    pairs: Sequence[tuple[int, int]],
) -> list[PairedDifference]:
    n = int(both.sum())
    found = [PairedDifference(spec, a, b, "paired t", n) for a, b in pairs]
    if n == 0:
        return found
    lows = np.column_stack([q.low[both] for q in quantities])
    highs = np.column_stack([q.high[both] for q in quantities])
    a, b = np.array(pairs).T
    clusters = cluster_codes(tables[pairs[0][0]], spec, both)
    at_low = lows[:, b] - highs[:, a]
    at_high = highs[:, b] - lows[:, a]
    low = clustered_mean(at_low, clusters)
    high = low if np.array_equal(at_low, at_high) else clustered_mean(at_high, clusters)
    # What a third model answered says nothing of these two: each pair by its own values.
    of_counts, of_binary = (
        np.array([kind(spec, lows[:, pair], highs[:, pair]) for pair in pairs]) for kind in (counted, is_binary)
    )
    if of_counts.any():
        least, most = RANGES[spec.unit]
        allowed = allow_for_few_outcomes(low, at_low, clusters, least - most, most - least)
        low = replace(low, se=np.where(of_counts, allowed.se, low.se))
        high = replace(high, se=np.where(of_counts, allowed.se, high.se))  # counted: both bounds are the same
    low, high = unknown_where_few_are_alike(low), unknown_where_few_are_alike(high)
    # Half of each one-sided test: for an exact difference this is the two-sided p.
    p = np.minimum(1.0, 2 * np.minimum(low.p_above(0.0), high.p_below(0.0)))
    only_b, only_a = (at_low > 0).sum(axis=0), (at_low < 0).sum(axis=0)
    mcnemar = mcnemar_exact(only_b, only_a)
    crossed = bool(crossed_factors(clusters))
    constant = at_low.max(axis=0) - at_low.min(axis=0) < ROUNDING
    deviation = at_low.std(axis=0, ddof=1) if n > 1 else np.full(len(pairs), np.nan)
    deviation = np.where(constant, 0.0, deviation) if n > 1 else deviation
    for i, one in enumerate(found):
        one.test, one.n_clusters = "paired t, clustered" if clusters else "paired t", low.n_clusters
        if of_binary[i]:
            one.only_a, one.only_b = int(only_a[i]), int(only_b[i])
        if of_binary[i] and crossed:
            # McNemar's test takes items as independent, and the t-test leans on many discordant
            # items. Neither alone is safe, so the more careful of the two counts.
            one.test = "McNemar (exact) and paired t, clustered"
            p[i] = np.nan if np.isnan(p[i]) else max(p[i], mcnemar[i])
        elif of_binary[i] and not clusters:
            one.test, p[i] = "McNemar (exact)", mcnemar[i]
        _fill(one, low, high, i)
        one.a_low, one.a_high = float(lows[:, one.a].mean()), float(highs[:, one.a].mean())
        one.p = float(p[i])
        one.deviation = float(deviation[i])
    return found


def _fill(one: PairedDifference, low: Estimate, high: Estimate, i: int) -> None:
    one.low, one.low_se, one.low_df = float(low.value[i]), float(low.se[i]), float(low.df[i])
    one.high, one.high_se, one.high_df = float(high.value[i]), float(high.se[i]), float(high.df[i])


def mcnemar_exact(only_b: Any, only_a: Any) -> Floats:
    """Exact two-sided p of McNemar's test from the counts of the two kinds of discordant items.

    The same as ``statsmodels.stats.contingency_tables.mcnemar(exact=True)``, for arrays.
    """
    fewer, total = np.minimum(only_b, only_a), np.asarray(only_b) + np.asarray(only_a)
    return np.asarray(np.minimum(1.0, 2 * special.bdtr(fewer, total, 0.5)))


def p_outside(only_a: int, only_b: int, n: int, margin: float) -> float:
    """p against "the two shares differ by the margin or more", from n pairs of yes or no.

    Tango's score test (1998, Stat. Med. 17, eq. 8) in both directions. The t test is far too sure
    where few items are discordant: 1 of 200 within ± 0.02 has p = 0.0015 by t, 0.065 by the score, 0.089
    exactly.
    """
    scores = []
    for more, less in ((only_b, only_a), (only_a, only_b)):
        a, c = 2 * n, -less * margin * (1 - margin)
        b = (2 * n - more + less) * margin - more - less
        expected_less = (math.sqrt(b * b - 4 * a * c) - b) / (2 * a)
        variance = n * (2 * expected_less + margin * (1 - margin))
        scores.append((more - less - n * margin) / math.sqrt(variance) if variance > 0 else math.nan)
    return float(special.ndtr(max(scores)))


def _correlations(
    tables: Sequence[RowTable],
    spec: MeasureSpec,
    quantities: Sequence[Quantity],
    both: Bools,
    pairs: Sequence[tuple[int, int]],
) -> list[PairedDifference]:
    """Difference of two correlations over the same clusters: the jackknife leaves a level out of both.

    A correlation known only by bounds is compared by nobody: p and interval stay unknown. So they do
    where two models gave the same counts: a mean allows for the share of items that may yet differ, but
    what so many would do to a correlation has no such bound.
    """
    n = int(both.sum())
    found = [PairedDifference(spec, a, b, "jackknife over clusters", n) for a, b in pairs]
    if n == 0:
        return found
    covariate, clusters = correlated(tables[pairs[0][0]], spec, both)
    for one in found:
        one.n_clusters = len(covariate)
    models = sorted({model for pair in pairs for model in pair})
    exact = [model for model in models if np.array_equal(quantities[model].low[both], quantities[model].high[both])]
    known = [one for one in found if one.a in exact and one.b in exact]
    if not known or len(covariate) < 4:
        return found
    values = np.column_stack([quantities[model].low[both] for model in exact])
    of_each = correlations(values, covariate, clusters)
    places = [(exact.index(one.a), exact.index(one.b)) for one in known]
    estimate = unknown_where_few_are_alike(of_each.differences(places))
    counts = [
        estimate.se[i] == 0 and np.isin(values[:, place], (-1.0, 0.0, 1.0)).all() for i, place in enumerate(places)
    ]
    estimate = replace(estimate, se=np.where(counts, np.nan, estimate.se))
    p = estimate.p_two_sided()
    for i, (one, (a, _)) in enumerate(zip(known, places, strict=True)):
        _fill(one, estimate, estimate, i)
        one.a_low = one.a_high = float(of_each.value[a])
        one.p = float(p[i])
    return found


def _margin_of(margins: Mapping[str, float] | float, measure: str) -> float:
    if isinstance(margins, Mapping):
        return margins.get(measure, margins.get("default", DEFAULT_MARGIN))
    return margins


def _correct(family: Sequence[PairedDifference]) -> None:
    """Two one-sided tests against the margin, and Holm over the family for both questions."""
    low, low_se, low_df, high, high_se, high_df, margin, p = (
        np.array([getattr(one, name) for one in family])
        for name in ("low", "low_se", "low_df", "high", "high_se", "high_df", "margin", "p")
    )
    outside = np.maximum(
        Estimate(low + margin, low_se, low_df, 0, 0).p_above(0.0),
        Estimate(high - margin, high_se, high_df, 0, 0).p_below(0.0),
    )
    # Neither test alone is safe: that of t with few discordant items, the other with clusters.
    outside = np.where(np.isnan(outside), np.nan, np.fmax(outside, [one.p_of_counts_outside for one in family]))
    p_holm, outside_holm = holm(p), holm(outside)
    tests = int(np.isfinite(p).sum())
    for i, one in enumerate(family):
        one.p_outside, one.p_holm, one.p_outside_holm = float(outside[i]), float(p_holm[i]), float(outside_holm[i])
        one.tests = tests


def _comparison(one: PairedDifference, models: Sequence[str], suite: str, confidence: float) -> Comparison:
    spec, alpha = one.spec, 1 - confidence
    low_half = float(special.stdtrit(one.low_df, 1 - alpha / 2)) * one.low_se
    high_half = float(special.stdtrit(one.high_df, 1 - alpha / 2)) * one.high_se
    minimum_detectable_effect = np.nan
    if one.tests and one.low_se > 0:
        df, se = min(one.low_df, one.high_df), max(one.low_se, one.high_se)
        steps = float(special.stdtrit(df, 1 - alpha / (2 * one.tests)) + special.stdtrit(df, POWER))
        minimum_detectable_effect = steps * se + (one.high - one.low)  # what bounds leave open has to be overcome too
        if one.test.startswith("McNemar"):
            minimum_detectable_effect = np.fmax(
                minimum_detectable_effect, _found_by_mcnemar(one.n_items, alpha / one.tests)
            )
    comparison = Comparison(
        suite=suite,
        measure=spec.measure,
        where=dict(spec.where),
        a=models[one.a],
        b=models[one.b],
        difference=finite(one.low) if one.exact else None,
        low=finite(one.low - low_half),
        high=finite(one.high + high_half),
        bound_low=finite(one.low),
        bound_high=finite(one.high),
        p=finite(one.p),
        p_holm=finite(one.p_holm),
        effect_size=finite(one.low / one.deviation) if one.exact and one.deviation > 0 else None,
        margin=one.margin,
        minimum_detectable_effect=finite(minimum_detectable_effect),
        n_items=one.n_items,
        n_clusters=one.n_clusters,
        verdict=_verdict(one, alpha),
        test=one.test,
        family=spec.family,
        words="",
        is_subgroup=spec.is_subgroup,
        n_unpaired=one.left_out,
        undefined_for=[models[i] for i in one.undefined],
        confidence=confidence,
    )
    return comparison.model_copy(update={"words": describe(comparison)})


def _found_by_mcnemar(n: int, alpha: float) -> float:
    """The share of ``n`` items that, all discordant one way, McNemar's exact test finds with `POWER`; inf if none."""
    least = math.floor(math.log2(2 / alpha)) + 1  # discordant items whose p, 2 / 2^least, is below alpha
    return float(special.betaincinv(least, n - least + 1, POWER)) if least <= n else math.inf


def _verdict(one: PairedDifference, alpha: float) -> Verdict:
    if one.n_items == 0:
        return "not comparable"
    if one.p_outside_holm < alpha and one.unpaired_share <= MOST_UNPAIRED:
        return "equivalent"
    if one.p_holm < alpha:
        return "larger" if one.low > 0 else "smaller"
    return "inconclusive"


def describe(c: Comparison) -> str:
    """The comparison as one or two plain sentences."""
    return f"{_judgement(c)}{_left_out(c)}"


def rank_models(comparisons: Iterable[Comparison]) -> list[Ranking]:
    """Rank the models by each figure that has comparisons of all their pairs, the highest value first.

    A model's rank lies between 1 + the models surely larger, and the number of models less those
    surely smaller; "surely" is the corrected verdict, so all intervals of a family hold together
    at its confidence (Mogstad, Romano, Shaikh & Wilhelm 2024, Rev. Econ. Stud. 91(1)). Models that
    are not surely apart, equivalent ones too, are ties.
    """
    figures: dict[tuple[Any, ...], list[Comparison]] = {}
    for c in comparisons:
        figures.setdefault((c.suite, c.measure, *sorted((k, repr(v)) for k, v in c.where.items())), []).append(c)
    compared = ([c for c in some if c.verdict != "not comparable"] for some in figures.values())
    return [_ranking(some) for some in compared if some]  # a model that answered nothing has no rank


def _ranking(figure: Sequence[Comparison]) -> Ranking:
    models = list(dict.fromkeys(name for c in figure for name in (c.a, c.b)))
    above: dict[str, set[str]] = {name: set() for name in models}  # models surely larger
    for c in figure:
        if c.verdict == "larger":
            above[c.a].add(c.b)
        elif c.verdict == "smaller":
            above[c.b].add(c.a)
    below = {name: {other for other in models if name in above[other]} for name in models}
    ranks = [
        Rank(
            model=name,
            best=1 + len(above[name]),
            worst=len(models) - len(below[name]),
            tied_with=[other for other in models if other != name and other not in above[name] | below[name]],
        )
        for name in models
    ]
    first = figure[0]
    return Ranking(
        suite=first.suite,
        measure=first.measure,
        where=first.where,
        ranks=sorted(ranks, key=lambda rank: (rank.best + rank.worst, rank.best)),
    )


def swapped(c: Comparison) -> Comparison:
    """The same comparison with its two models in the other order."""
    opposite: dict[Verdict, Verdict] = {"larger": "smaller", "smaller": "larger"}
    other = c.model_copy(
        update={
            "a": c.b,
            "b": c.a,
            "difference": _minus(c.difference),
            "low": _minus(c.high),
            "high": _minus(c.low),
            "bound_low": _minus(c.bound_high),
            "bound_high": _minus(c.bound_low),
            "effect_size": _minus(c.effect_size),
            "verdict": opposite.get(c.verdict, c.verdict),
        }
    )
    return other.model_copy(update={"words": describe(other)})


def _minus(number: float | None) -> float | None:
    return None if number is None else -number


def _left_out(c: Comparison) -> str:
    if not c.n_unpaired or c.undefined_for:
        return ""
    asked = c.n_unpaired + c.n_items
    told = f" Left out, as only one of them has a value: {c.n_unpaired} of {asked} item{_s(asked)}."
    if c.verdict == "inconclusive" and _unpaired_share(c.n_unpaired, c.n_items) > MOST_UNPAIRED:
        told += f" More than {MOST_UNPAIRED:.0%} of them may hide a difference, so the two are not called equivalent."
    return told


def _judgement(c: Comparison) -> str:
    if c.verdict == "not comparable":
        return f"{c.a} and {c.b} cannot be compared in {_name(c)}: {nothing_in_common(c.undefined_for)}."
    if c.low is None or c.high is None:
        return f"Too little to compare {c.b} with {c.a} in {_name(c)}: {_too_little(c)}."
    span = f"{100 * c.confidence:g}% interval {_signed(c.low)} to {_signed(c.high)}"
    if c.difference is None:
        span += f"; the servers' answers leave it between {_signed(c.bound_low)} and {_signed(c.bound_high)}"
    noise = _noise(c)
    if c.verdict == "equivalent":
        sure = " A difference is there, but it is smaller than that." if _sure(c.p_holm, c) else ""
        return f"{c.b} and {c.a} are equivalent in {_name(c)}: less than ±{c.margin:g} apart ({span}).{sure}{noise}"
    if c.verdict in ("larger", "smaller"):
        by = f" by {_digits(abs(c.difference))}" if c.difference is not None else ""
        return f"{c.b} has a {VERDICT_WORDS[c.verdict]} {_name(c)} than {c.a}{by} ({span}).{noise}"
    luck = ", which among so many comparisons may be luck" if _sure(c.p, c) else ""
    power = (
        f" Only {_digits(c.minimum_detectable_effect)} or more would be found {POWER:.0%} of the time."
        if c.minimum_detectable_effect
        else ""
    )
    return f"{c.b} and {c.a} cannot be told apart in {_name(c)}, nor called equivalent ({span}{luck}).{power}{noise}"


def nothing_in_common(undefined_for: Sequence[str], they: str = "they", both: str = "both") -> str:
    """Why two models, or two runs, have no item with a figure of both; names as in `Comparison.undefined_for`."""
    match undefined_for:
        case []:
            return f"{they} answered no item in common"
        case [one]:
            return f"on the items that {both} answered, it is not defined for {one}"
        case _:
            return f"no item that {both} answered defines it for both"


def _noise(c: Comparison) -> str:
    if c.engine_noise is None or not c.difference:
        return ""
    seen = f"The same weights differ by up to {c.engine_noise:.3f} between engines"
    if c.engine_noise >= abs(c.difference):
        return f" {seen}: this difference is smaller than the engines' noise."
    return f" {seen}: up to {c.engine_noise / abs(c.difference):.0%} of this difference may be the engines' noise."


def _sure(p: float | None, c: Comparison) -> bool:
    return p is not None and p < 1 - c.confidence


def _too_little(c: Comparison) -> str:
    if c.bound_low is not None and c.bound_low != c.bound_high:
        return "one of them is known only by bounds"
    if c.difference == 0 and c.n_clusters > 1:
        return "their answers are alike, which does not show how far others would move it"
    return f"{c.n_items} item{_s(c.n_items)} in {c.n_clusters} cluster{_s(c.n_clusters)}"


def _signed(number: float | None) -> str:
    if number is None:
        return "unknown"
    return ("-" if number <= -ROUNDING else "+") + _digits(abs(number))


def _digits(size: float) -> str:
    """Three decimals, and one digit of what they would show as nothing."""
    return f"{size:.3f}" if size >= 0.0005 or size < ROUNDING else f"{size:.0e}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _name(c: Comparison) -> str:
    where = ", ".join(f"{factor} {level}" for factor, level in c.where.items())
    return f"{c.measure} ({where})" if where else c.measure

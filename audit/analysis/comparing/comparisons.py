"""Compares pairs of models item by item: which has the larger figure, and how certain that is.

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

from audit.analysis.comparing.differences import PairedDifference, paired_difference
from audit.analysis.decisions import DEFAULT_MARGIN, corrected, margin_of
from audit.analysis.estimators.estimate import finite, t_quantile
from audit.analysis.figures import Figure
from audit.analysis.power import POWER
from audit.analysis.table import Table, aligned
from audit.results import Comparison, FigureKey, OpenBecause, Rank, Ranking, Verdict
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

    Parameters
    ----------
    tables : mapping of model name to its table
        Including derived rows. Items are matched by id.
    specs : iterable of MeasureSpec
        The figures to compare, each (measure, where) once.
    margins : float or mapping of measure name to float
        Differences within ± the margin do not matter. A mapping may have a ``default`` for other measures, or else it
        is `DEFAULT_MARGIN`.
    confidence : float
        Level of the intervals; 1 - confidence is the level of the tests.

    Returns
    -------
    list of Comparison
        By figure, then by pair in the models' order. ``difference`` is b minus a. ``effect_size`` is Cohen's d of
        paired items (mean difference / standard deviation over items; none for the jackknife over clusters).
        ``minimum_detectable_effect`` is what another sample of this design detects with 80 % power at α/2m, with m
        tests corrected together: the first step of the correction, whatever the other comparisons show.
    """
    if len(tables) < 2:
        return []
    alpha = 1 - confidence
    own = dict(zip(tables, aligned(list(tables.values())), strict=True))
    pairs = [(spec, *pair) for spec in specs for pair in itertools.combinations(own, 2)]
    differences = [paired_difference(own[a], own[b], spec) for spec, a, b in pairs]
    of_each = [margin_of(margins, difference.spec.measure) for difference in differences]
    p = np.array([_p_values(of, margin) for of, margin in zip(differences, of_each, strict=True)]).reshape(-1, 2)
    primary = np.array([difference.spec.primary for difference in differences], dtype=np.bool_)
    alike, apart = (corrected(of_kind, primary, alpha) for of_kind in p.T)
    tests = Counter(primary[np.isfinite(apart.p)].tolist())
    levels = np.column_stack([*alike, *apart]).tolist()
    found = []
    for of, (_, a, b), margin, (p_alike, at_alike, p_apart, at_apart) in zip(
        differences, pairs, of_each, levels, strict=True
    ):
        tested = _Tested(margin, p_alike, at_alike, p_apart, at_apart, alpha, tests[of.spec.primary])
        found.append(_comparison(of, tested, (a, b), suite))
    return found


class _Tested(NamedTuple):
    """What decides about a difference: the margin, the corrected p-values and the levels of "equivalent" and of "not
    the same", and how many tests were corrected together."""

    margin: float
    p_alike: float
    alike: float
    p_apart: float
    apart: float
    alpha: float
    tests: int


def _p_values(
    of: PairedDifference, margin: float, figure: Figure | None = None, *, paired: bool = False
) -> tuple[float, float]:
    """Of the claims that two models are equivalent (two one-sided tests against ± margin), and that one is larger.

    ``figure``: of the answered items alone. ``paired``: as if there were no unpaired items.
    """
    estimate = None if figure is None else figure.estimate
    return of.p_of_margin(margin, estimate, pairs_only=paired), (estimate or of.estimate).p_two_sided()


def _verdict(of: PairedDifference, tested: _Tested) -> Verdict:
    if of.n_items == 0:
        return "not comparable"
    if tested.p_alike < tested.alpha:
        return "equivalent"
    if tested.p_apart < tested.alpha:
        return "larger" if of.figure.bound_low > 0 else "smaller"
    return "inconclusive"


def _comparison(of: PairedDifference, tested: _Tested, models: tuple[str, str], suite: str) -> Comparison:
    spec, answered, alpha = of.spec, of.answered, tested.alpha
    verdict = _verdict(of, tested)
    outer = of.interval_with_unpaired(1 - 2 * tested.alike)
    level = 2 * tested.alike if verdict == "equivalent" else tested.apart
    decided = outer if verdict == "equivalent" else of.interval(1 - level)
    low, high = of.interval(1 - alpha)
    complete = of.interval(1 - alpha, answered.estimate) if of.n_missing else (math.nan, math.nan)
    return Comparison(
        suite=suite,
        measure=spec.measure,
        where=dict(spec.where),
        a=models[0],
        b=models[1],
        difference=finite(answered.value),
        low=finite(low),
        high=finite(high),
        bound_low=finite(of.figure.bound_low),
        bound_high=finite(of.figure.bound_high),
        complete_case_low=finite(complete[0]),
        complete_case_high=finite(complete[1]),
        p=finite(of.estimate.p_two_sided()),
        p_adjusted=finite(tested.p_apart),
        effect_size=finite(answered.value / of.deviation) if of.deviation > 0 else None,
        margin=tested.margin,
        minimum_detectable_effect=finite(_detectable(of, alpha / tested.tests)) if tested.tests else None,
        verdict=verdict,
        identical=of.identical,
        test=of.test,
        family=spec.family,
        is_subgroup=spec.is_subgroup,
        undefined_for=[name for name, is_undefined in zip(models, of.undefined, strict=True) if is_undefined],
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
        levels=dict(of.levels),
    )


def _why_open(of: PairedDifference, tested: _Tested) -> OpenBecause | None:
    """Why nothing is claimed about a difference, unless more items of the same kind would help."""
    if of.n_clusters < 2 or (not of.n_missing and math.isnan(of.estimate.interval(0.5)[0])):
        return "too few clusters"
    if of.n_missing:
        seen, worst = (max(abs(figure.bound_low), abs(figure.bound_high)) for figure in (of.answered, of.figure))
        alike, apart = _p_values(of, tested.margin, of.answered)
        if seen <= tested.margin < worst or alike < tested.alike or apart < tested.apart:
            return "missing answers"
    alike, _ = _p_values(of, tested.margin, paired=True)
    return "unpaired items" if of.n_unpaired and alike < tested.alike else None


def _detectable(of: PairedDifference, alpha: float) -> float:
    """The difference that another sample of this design finds with `POWER` in a two-sided test at this level.

    It lies beyond the half of the interval by the normal quantile of the power; and the bounds are to be overcome.
    """
    low, high = of.estimate.interval(1 - alpha)
    near = of.estimate.interval(0.6826894921370859)  # of one standard error to either side
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
    above: dict[str, set[str]] = {name: set() for name in models}  # models significantly larger
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

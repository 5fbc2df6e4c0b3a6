"""Compares pairs of models item by item: which has the larger figure, and how certain that is.

Many comparisons find some differences by chance. Readers scan all pairs of models and all figures of a suite, so all
are corrected together, as in `audit.analysis.decisions`. Claims of equivalence are corrected in the same way.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scipy import special

from audit.analysis.comparing.differences import PairedDifference, paired_differences
from audit.analysis.decisions import DEFAULT_MARGIN, Claim, Decision, decide, margin_of, would_hold
from audit.analysis.estimators.estimate import finite
from audit.analysis.figures import Figure
from audit.analysis.table import Table, aligned
from audit.results import Comparison, FigureKey, OpenBecause, Rank, Ranking, Verdict
from suites.base import MeasureSpec

#: The power that a minimum detectable effect refers to.
POWER = 0.8


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
    models = list(tables)
    pairs = list(itertools.combinations(range(len(models)), 2))
    if not pairs:
        return []
    alpha = 1 - confidence
    differences = paired_differences(aligned(list(tables.values())), specs, pairs)
    of_each = [margin_of(margins, difference.spec.measure) for difference in differences]
    claims = [_claims(difference, margin) for difference, margin in zip(differences, of_each, strict=True)]
    decisions = decide([(d.spec.primary, own) for d, own in zip(differences, claims, strict=True)], alpha)
    tests = Counter(
        difference.spec.primary
        for difference, decision in zip(differences, decisions, strict=True)
        if math.isfinite(decision.p_adjusted[-1])
    )
    return [
        _comparison(difference, decision, models, suite, margin, alpha, tests[difference.spec.primary])
        for difference, decision, margin in zip(differences, decisions, of_each, strict=True)
    ]


def _claims(of: PairedDifference, margin: float, figure: Figure | None = None, *, paired: bool = False) -> list[Claim]:
    """The claims that two models are equivalent (two one-sided tests against ± margin), and that one is larger.

    ``figure``: of the answered items alone. ``paired``: as if there were no unpaired items.
    """
    estimate = None if figure is None else figure.estimate
    value = (figure or of.figure).bound_low
    return [
        Claim("equivalent", of.p_of_margin(margin, estimate, pairs_only=paired)),
        Claim("larger" if value > 0 else "smaller", of.p_of_difference(estimate)),
    ]


def _comparison(
    of: PairedDifference, decision: Decision, models: Sequence[str], suite: str, margin: float, alpha: float, tests: int
) -> Comparison:
    spec, answered = of.spec, of.answered
    verdict: Verdict = "not comparable" if of.n_items == 0 else decision.outcome or "inconclusive"  # type: ignore[assignment]
    alike, apart = decision.levels
    outer = of.interval_with_unpaired(1 - 2 * alike)
    decided, level = (outer, 2 * alike) if verdict == "equivalent" else (of.interval(1 - apart), apart)
    return Comparison(
        suite=suite,
        measure=spec.measure,
        where=dict(spec.where),
        a=models[of.a],
        b=models[of.b],
        difference=finite(answered.value),
        p=finite(of.p_of_difference()),
        p_adjusted=finite(decision.p_adjusted[-1]),
        effect_size=finite(answered.value / of.deviation) if of.deviation > 0 else None,
        margin=margin,
        minimum_detectable_effect=finite(_detectable(of, alpha / tests)) if tests else None,
        verdict=verdict,
        identical=of.identical,
        test=of.test,
        family=spec.family,
        is_subgroup=spec.is_subgroup,
        undefined_for=[models[i] for i in of.undefined],
        confidence=1 - alpha,
        alike_within=finite(max(map(abs, outer))),
        open_because=None if verdict != "inconclusive" else _why_open(of, decision, margin),
        **decided_facts(of, alpha, decided, 1 - level),
    )


def decided_facts(
    of: PairedDifference, alpha: float, decided: tuple[float, float], confidence: float
) -> dict[str, Any]:
    """The fields of `audit.results.Decided` that follow from a difference.

    Parameters
    ----------
    alpha : float
        1 minus the confidence of the uncorrected intervals.
    decided, confidence
        The interval behind the decision, and its confidence.
    """
    low, high = of.interval(1 - alpha)
    complete = (math.nan, math.nan)
    if of.n_missing:
        complete = of.interval(1 - alpha, of.answered.estimate)
    return {
        "low": finite(low),
        "high": finite(high),
        "bound_low": finite(of.figure.bound_low),
        "bound_high": finite(of.figure.bound_high),
        "complete_case_low": finite(complete[0]),
        "complete_case_high": finite(complete[1]),
        "decided_low": finite(decided[0]),
        "decided_high": finite(decided[1]),
        "decided_confidence": finite(confidence),
        "n_items": of.n_items,
        "n_missing": of.n_missing,
        "n_unpaired": of.n_unpaired,
        "n_clusters": of.n_clusters,
        "primary": of.spec.primary,
        "population": of.spec.population,
        "levels": dict(of.levels),
    }


def _why_open(of: PairedDifference, decision: Decision, margin: float) -> OpenBecause | None:
    """Why nothing is claimed about a difference, unless more items of the same kind would help."""
    if of.n_clusters < 2 or (not of.n_missing and math.isnan(of.estimate.interval(0.5)[0])):
        return "too few clusters"
    if of.n_missing:
        seen, worst = (max(abs(figure.bound_low), abs(figure.bound_high)) for figure in (of.answered, of.figure))
        if seen <= margin < worst or would_hold(_claims(of, margin, of.answered), decision):
            return "missing answers"
    alike = _claims(of, margin, paired=True)[0]
    return "unpaired items" if of.n_unpaired and alike.p < decision.levels[0] else None


def _detectable(of: PairedDifference, alpha: float) -> float:
    """The difference that another sample of this design finds with `POWER` in a two-sided test at this level.

    It lies beyond the half of the interval by the normal quantile of the power; and the bounds are to be overcome.
    """
    low, high = of.estimate.interval(1 - alpha)
    near = of.estimate.interval(0.6826894921370859)  # of one standard error to either side
    bounds = of.figure.bound_high - of.figure.bound_low
    if not high - low > bounds:
        return math.nan
    return (high - low - bounds) / 2 + float(special.ndtri(POWER)) * (near[1] - near[0] - bounds) / 2 + bounds


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


#: Fields of a comparison that change sign, or sides, when the models are swapped.
_ENDS = (("low", "high"), ("bound_low", "bound_high"), ("complete_case_low", "complete_case_high"),
         ("decided_low", "decided_high"))  # fmt: skip


def swapped(c: Comparison) -> Comparison:
    """The same comparison with the two models swapped, without words."""
    opposite: dict[Verdict, Verdict] = {"larger": "smaller", "smaller": "larger"}
    ends = {end: _minus(getattr(c, other)) for pair in _ENDS for end, other in (pair, pair[::-1])}
    return c.model_copy(
        update={
            "a": c.b,
            "b": c.a,
            "difference": _minus(c.difference),
            "effect_size": _minus(c.effect_size),
            "verdict": opposite.get(c.verdict, c.verdict),
            **ends,
        }
    )


def _minus(number: float | None) -> float | None:
    return None if number is None else -number

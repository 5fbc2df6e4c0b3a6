"""Compares pairs of models item by item: which has the larger figure, and how certain that is.

Many comparisons find some differences by chance. Readers scan all pairs of models and all figures of a suite, so all
are corrected together, as in `audit.analysis.decisions`. Claims of equivalence are corrected in the same way.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy import special

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.comparing.paired import PairedDifference
from audit.analysis.components import POWER
from audit.analysis.decisions import (
    DEFAULT_MARGIN,
    Claim,
    Decision,
    decide,
    decided_facts,
    highest_confidence,
    is_within,
    margin_of,
    why_open,
)
from audit.analysis.estimators import finite
from audit.analysis.rows.table import Levels, RowTable, item_index
from audit.results import Comparison, FigureKey, Rank, Ranking, Verdict
from suites.base import MeasureSpec, Row


def compare_models(
    rows_by_model: Mapping[str, Sequence[Row]],
    specs: Iterable[MeasureSpec],
    *,
    suite: str,
    margins: Mapping[str, float] | float = DEFAULT_MARGIN,
    largest_change: float | None = None,
    confidence: float = 0.95,
) -> list[Comparison]:
    """Compare every pair of models on every figure of one suite.

    Parameters
    ----------
    rows_by_model : mapping of model name to its rows
        Including derived rows. Items are matched by id.
    specs : iterable of MeasureSpec
        The figures to compare, each (measure, where) once.
    margins : float or mapping of measure name to float
        Differences within ± the margin do not matter. A mapping may have a ``default`` for other measures, or else it
        is `DEFAULT_MARGIN`.
    largest_change : float, optional
        How far two models are assumed to differ at most on clusters of a kind that was not asked, see
        `PairedDifference.interval_with_unseen`. None: by the whole range.
    confidence : float
        Level of the intervals; 1 - confidence is the level of the tests.

    Returns
    -------
    list of Comparison
        By figure, then by pair in the models' order. ``difference`` is b minus a. ``effect_size`` is Cohen's d of
        paired items (mean difference / standard deviation over items; none for the jackknife over clusters).
        ``minimum_detectable_effect`` is what another sample of this design detects with 80 % power (`End.detected`)
        at α/2m, with m tests corrected together: the first step of the correction, whatever the other comparisons show.
        If McNemar's test is used too, it is at least what that detects if all discordant items fall one way; None if
        there are too few items for any difference.

    Raises
    ------
    ValueError
        If a model has two rows for one item.
    """
    models = list(rows_by_model)
    pairs = list(itertools.combinations(range(len(models)), 2))
    if not pairs:
        return []
    index = item_index(rows_by_model.values())
    levels = Levels()
    tables = [RowTable(rows, index, levels) for rows in rows_by_model.values()]
    alpha = 1 - confidence
    differences = paired_differences(tables, specs, pairs)
    for difference in differences:
        difference.margin = difference.answered.margin = margin_of(margins, difference.spec.measure)
        difference.allow_unseen(largest_change)
    decisions = decide([(difference, _claims(difference, alpha)) for difference in differences], alpha)
    tests = Counter(
        decision.difference.spec.primary for decision in decisions if math.isfinite(decision.p_adjusted[-1])
    )
    return [_comparison(decision, models, suite, alpha, tests[decision.difference.spec.primary])
            for decision in decisions]  # fmt: skip


def _claims(difference: PairedDifference, alpha: float) -> list[Claim]:
    """The claims that two models are equivalent (two one-sided tests against ± margin), and that one is larger."""
    margin = difference.margin
    low, high = difference.interval(0.5)
    p = math.nan
    if math.isfinite(low) and math.isfinite(high):
        # The p of two one-sided tests is half of that of the two-sided interval. Above alpha its value is irrelevant.
        shown = highest_confidence(
            lambda level: is_within(difference.interval_with_unseen(level), margin), 1 - 2 * alpha
        )
        # The t test is unreliable with few discordant items, the score test with clusters: use the larger p.
        p = float(np.fmax((1 - shown) / 2 if shown else 1.0, difference.p_of_counts_outside))
    return [
        Claim("equivalent", p, needs_pairs=True),
        Claim("larger" if difference.low.value > 0 else "smaller", difference.p),
    ]


def _comparison(decision: Decision, models: Sequence[str], suite: str, alpha: float, tests: int) -> Comparison:
    difference, answered = decision.difference, decision.difference.answered
    spec = difference.spec
    verdict: Verdict = "not comparable" if difference.n_items == 0 else decision.outcome or "inconclusive"  # type: ignore[assignment]
    alike, apart = decision.levels
    outer = difference.interval_with_unseen(1 - 2 * alike)
    decided, level = (outer, 2 * alike) if verdict == "equivalent" else (difference.interval(1 - apart), apart)
    because = why_open(
        decision,
        _claims(answered, alpha),
        _claims(difference.of_pairs, alpha) if difference.n_unpaired else (),
        may_hide=_hides_a_difference(difference),
        is_seen_alike=is_within(difference.interval(1 - 2 * alike), difference.margin),
    )
    return Comparison(
        suite=suite,
        measure=spec.measure,
        where=dict(spec.where),
        a=models[difference.a],
        b=models[difference.b],
        difference=finite(answered.low.value) if answered.exact else None,
        p=finite(difference.p),
        p_adjusted=finite(decision.p_adjusted[-1]),
        effect_size=_effect_size(answered),
        margin=difference.margin,
        minimum_detectable_effect=finite(_minimum_detectable_effect(difference, alpha, tests)),
        verdict=verdict,
        test=difference.test,
        family=spec.family,
        is_subgroup=spec.is_subgroup,
        undefined_for=[models[i] for i in difference.undefined],
        confidence=1 - alpha,
        alike_within=finite(max(map(abs, outer))),
        open_because=None if verdict == "not comparable" else because,
        **decided_facts(difference, alpha, decided, 1 - level),
    )


def _hides_a_difference(difference: PairedDifference) -> bool:
    """Whether the missing answers may hide a difference above the margin that the others do not show."""
    seen, apart = (max(abs(d.low.value), abs(d.high.value)) for d in (difference.answered, difference))
    return seen <= difference.margin < apart


def _effect_size(difference: PairedDifference) -> float | None:
    """Cohen's d of paired items."""
    if difference.exact and difference.deviation > 0:
        return finite(difference.low.value / difference.deviation)
    return None


def _minimum_detectable_effect(difference: PairedDifference, alpha: float, tests: int) -> float:
    low, high = difference.low, difference.high
    if not (tests and low.se > 0):
        return math.nan
    # The gap between the bounds has to be overcome, too.
    effect = max(end.detected(1 - alpha / (2 * tests), POWER) for end in (low, high)) + (high.value - low.value)
    if difference.test.startswith("McNemar"):
        effect = float(np.fmax(effect, _found_by_mcnemar(difference.n_items, alpha / tests)))
    return effect


def _found_by_mcnemar(n: int, alpha: float) -> float:
    """The share of ``n`` items, all discordant one way, that McNemar's exact test detects with `POWER`; inf if none."""
    least = math.floor(math.log2(2 / alpha)) + 1  # discordant items whose p, 2 / 2^least, is below alpha
    return float(special.betaincinv(least, n - least + 1, POWER)) if least <= n else math.inf


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


def swapped(c: Comparison) -> Comparison:
    """The same comparison with the two models swapped, without words."""
    opposite: dict[Verdict, Verdict] = {"larger": "smaller", "smaller": "larger"}
    return c.model_copy(
        update={
            "a": c.b,
            "b": c.a,
            "difference": _minus(c.difference),
            "low": _minus(c.high),
            "high": _minus(c.low),
            "bound_low": _minus(c.bound_high),
            "bound_high": _minus(c.bound_low),
            "complete_case_low": _minus(c.complete_case_high),
            "complete_case_high": _minus(c.complete_case_low),
            "decided_low": _minus(c.decided_high),
            "decided_high": _minus(c.decided_low),
            "unseen_low": _minus(c.unseen_high),
            "unseen_high": _minus(c.unseen_low),
            "effect_size": _minus(c.effect_size),
            "verdict": opposite.get(c.verdict, c.verdict),
            "words": "",
        }
    )


def _minus(number: float | None) -> float | None:
    return None if number is None else -number

"""Decisions about differences: what may be claimed after correction for all figures of a suite.

Two models may be claimed to be equivalent, or one to be larger or smaller (`comparing.comparisons`); of two runs, that
a model regressed, improved or is unchanged (`audit.analysis.gate`). Rankings and engine noise rest on the former. Both
use the same rule, for each suite separately, so that adding a suite hides nothing:

* The suite's primary figures are tested separately. Holm's correction limits the chance of even one wrong claim among
  them. So other figures do not make it harder to detect a primary one.
* All other figures of the suite share a false discovery rate (Benjamini & Hochberg 1995, J. R. Stat. Soc. B 57): the
  expected share of wrong claims. The procedure is proven for positively dependent tests (Benjamini & Yekutieli 2001,
  Ann. Stat. 29(4)), and for two-sided tests of correlated means no correlation is known to break it (Reiner-Benjamini
  2007, Biom. J. 49(1)). Benjamini and Yekutieli's own factor, which allows for arbitrary dependence, would demand 5 to
  9 times smaller p-values from such suites. `tests/simulations` measures the rate on every suite's own figures. The
  claim that a figure got worse or better by more than its margin is tested among the figures that did so in the sample:
  the others are not part of the family (`conditional_false_discovery`).

Nothing is claimed with fewer than `FEWEST_CLUSTERS` levels of a sampled factor: three templates say next to nothing
about the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from audit.analysis.comparing.paired import PairedDifference
from audit.analysis.comparing.significance import Corrected, conditional_false_discovery, false_discovery, holm
from audit.analysis.estimators import finite
from audit.results import OpenBecause

#: The default margin of a measure.
DEFAULT_MARGIN = 0.02
#: With fewer levels of a sampled factor nothing is claimed.
FEWEST_CLUSTERS = 5
_BELOW_1 = math.nextafter(1.0, 0.0)


class Claim(NamedTuple):
    """A statement about a difference, and the uncorrected p-value of its null hypothesis.

    ``needs_pairs``: for claims that two are alike, or one is better. Items that only one of them has are then assumed
    to differ as much as possible, and nothing is claimed if answers are missing for a quantity without a range, since
    they may hide the opposite.
    ``is_doubled``: the p-value is twice a one-sided one, or 1 if the estimate is not on the claim's side.
    """

    outcome: str
    p: float
    needs_pairs: bool = False
    is_doubled: bool = False

    def in_look(self, share: float) -> Claim:
        """The claim at a look that may spend this share of the error: its p-value over all looks, by Bonferroni."""
        if not self.p < 1:  # an unknown p stays NaN
            return self
        return self._replace(p=min(self.p / share, _BELOW_1))  # exactly 1 means that the estimate is on the other side


class Decision(NamedTuple):
    """What is claimed about a difference.

    Attributes
    ----------
    outcome : str or None
        The first of its claims that holds, None if none does.
    p_adjusted : tuple of float
        The corrected p-value of each claim.
    levels : tuple of float
        The level at which the correction tested each claim's uncorrected p-value.
    """

    difference: PairedDifference
    outcome: str | None
    p_adjusted: tuple[float, ...]
    levels: tuple[float, ...]

    def in_look(self, share: float) -> Decision:
        """The decision with levels for the p-values of a single look, which may spend this share of the error."""
        return self._replace(levels=tuple(level * share for level in self.levels))


def decide(suite: Sequence[tuple[PairedDifference, Sequence[Claim]]], alpha: float) -> list[Decision]:
    """Decide about each difference of one suite.

    Parameters
    ----------
    suite : sequence of (difference, claims)
        Each difference has the same kinds of claims, in order of precedence. Each kind is corrected separately.
    alpha : float
        For each kind of claim: the chance of even one wrong claim among the primary figures, and the expected share of
        wrong claims among the others.
    """
    if not suite:
        return []
    p = np.array([[claim.p for claim in claims] for _, claims in suite], dtype=float)
    p[[difference.fewest_levels < FEWEST_CLUSTERS for difference, _ in suite]] = np.nan
    primary = np.array([difference.spec.primary for difference, _ in suite])
    adjusted, levels = np.full_like(p, np.nan), np.full_like(p, np.nan)
    for kind, claim in enumerate(suite[0][1]):
        of_others = conditional_false_discovery if claim.is_doubled else false_discovery
        for rows, correct in ((primary, holm), (~primary, of_others)):
            corrected: Corrected = correct(p[rows, kind], alpha)
            adjusted[rows, kind], levels[rows, kind] = corrected
    decisions = []
    for (difference, claims), own, at in zip(suite, adjusted.tolist(), levels.tolist(), strict=True):
        held = (
            claim.outcome
            for claim, p_adjusted in zip(claims, own, strict=True)
            if p_adjusted < alpha and (not claim.needs_pairs or _may_be_alike(difference))
        )
        decisions.append(Decision(difference, next(held, None), tuple(own), tuple(at)))
    return decisions


def why_open(
    decision: Decision,
    if_complete: Sequence[Claim],
    if_paired: Sequence[Claim],
    *,
    may_hide: bool,
    is_seen_alike: bool,
) -> OpenBecause | None:
    """Why nothing is claimed about a difference, unless more items of the same kind would help.

    Parameters
    ----------
    if_complete, if_paired : sequences of Claim
        The claims that would hold if the missing answers were like the others, and if there were no unpaired items.
    may_hide : bool
        Whether the missing answers alone could hide a relevant difference.
    is_seen_alike : bool
        Whether the clusters asked are alike, so that only the allowance for other kinds leaves the question open.
    """
    difference = decision.difference
    if decision.outcome is not None:
        return None
    if difference.fewest_levels < FEWEST_CLUSTERS:
        return "too few clusters"
    if_complete, if_paired = (
        [claim for claim, level in zip(claims, decision.levels, strict=True) if claim.p < level] if claims else []
        for claims in (if_complete, if_paired)
    )
    if difference.n_missing and (may_hide or if_complete):
        return "missing answers"
    may_differ = is_seen_alike and difference.unpaired_room > difference.margin
    if difference.n_unpaired and (may_differ or any(claim.needs_pairs for claim in if_paired)):
        return "unpaired items"
    return "kinds not asked" if is_seen_alike else None


def decided_facts(
    difference: PairedDifference, alpha: float, decided: tuple[float, float], confidence: float
) -> dict[str, Any]:
    """The fields of `audit.results.Decided` that follow from a difference.

    Parameters
    ----------
    alpha : float
        1 minus the confidence of the uncorrected intervals.
    decided, confidence
        The interval behind the decision, and its confidence.
    """
    complete = difference.complete
    low, high = difference.interval(1 - alpha)
    complete_low, complete_high = (math.nan, math.nan) if complete is None else complete.interval(1 - alpha)
    unseen_low, unseen_high = difference.interval_with_unseen(1 - alpha)
    return {
        "low": finite(low),
        "high": finite(high),
        "bound_low": finite(difference.low.value),
        "bound_high": finite(difference.high.value),
        "complete_case_low": finite(complete_low),
        "complete_case_high": finite(complete_high),
        "decided_low": finite(decided[0]),
        "decided_high": finite(decided[1]),
        "decided_confidence": finite(confidence),
        "largest_change": difference.assumed_change,
        "unseen_low": finite(unseen_low),
        "unseen_high": finite(unseen_high),
        "is_of_few": difference.answered.is_of_few,
        "n_items": difference.n_items,
        "n_missing": difference.n_missing,
        "n_unpaired": difference.n_unpaired,
        "n_clusters": difference.n_clusters,
        "primary": difference.spec.primary,
        "population": difference.spec.population,
        "levels": difference.levels,
        "fewest_levels": difference.fewest_levels,
    }


def _may_be_alike(difference: PairedDifference) -> bool:
    """Whether equivalence may be claimed: no missing answers without bounds could hide a difference."""
    return difference.spec.has_range or not difference.n_missing or difference.is_identical


def is_within(interval: tuple[float, float], margin: float) -> bool:
    """Whether the interval lies between minus and plus ``margin``."""
    return -margin < interval[0] and interval[1] < margin


def highest_confidence(holds: Callable[[float], bool], least: float = 0.0) -> float:
    """The highest confidence, from ``least`` up, at which ``holds``; 0 if it does not hold even there."""
    if not holds(least):
        return 0.0
    shown, open_ = 1.0 - least, 1e-15  # bracket of 1 - confidence: it holds at the first, and not at the second
    if holds(1 - open_):
        return 1 - open_
    while shown / open_ > 1.001:
        middle = math.sqrt(shown * open_)
        shown, open_ = (middle, open_) if holds(1 - middle) else (shown, middle)
    return 1 - shown


def margin_of(margins: Mapping[str, float] | float, measure: str) -> float:
    """A measure's margin; a mapping may have a ``default`` for other measures, or else it is `DEFAULT_MARGIN`."""
    if isinstance(margins, Mapping):
        return margins.get(measure, margins.get("default", DEFAULT_MARGIN))
    return margins

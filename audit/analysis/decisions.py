"""Decisions about differences: what may be claimed of them once all of a suite are corrected.

Between two models a difference may be claimed to be equivalent, larger or smaller (`comparing.comparisons`);
between two runs, that a model regressed, improved or is unchanged (`audit.analysis.gate`). Rankings and the noise of
engines rest on the former. Both use one rule, suite by suite, so that a further suite hides nothing:

* The suite's primary figures are tested by themselves. Holm's correction holds the chance of even one wrong claim
  among them. However many other figures there are, a primary one is found as if they were not.
* All other figures of the suite share one false discovery rate (Benjamini & Hochberg 1995, J. R. Stat. Soc. B 57):
  of what is claimed, so large a share is wrong on average. The procedure is proven for tests that depend positively
  on each other (Benjamini & Yekutieli 2001, Ann. Stat. 29(4)), and for two-sided tests of correlated means no
  correlation is known to break it (Reiner-Benjamini 2007, Biom. J. 49(1)). Benjamini and Yekutieli's own factor,
  which allows for any dependence whatever, would ask 5 to 9 times smaller p-values of such suites. `tests/simulations`
  measures the rate on every suite's own figures. That a figure got worse or better by more than its margin is tested
  among those that did so in the sample: the others are no part of the family (`conditional_false_discovery`).

Nothing is claimed of fewer than `FEWEST_CLUSTERS` levels of a factor that is a sample: three templates say next to
nothing about the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from audit.analysis.comparing.paired import PairedDifference
from audit.analysis.comparing.significance import Corrected, conditional_false_discovery, false_discovery, holm
from audit.results import OpenBecause

#: Margin of a measure for which none is given.
DEFAULT_MARGIN = 0.02
#: Nothing is claimed of fewer levels of a sampled factor.
FEWEST_CLUSTERS = 5
_BELOW_1 = math.nextafter(1.0, 0.0)


class Claim(NamedTuple):
    """A statement about a difference, and the uncorrected p-value of its null hypothesis.

    ``needs_pairs``: that two are alike, or one is better. Items that only one of them has count as apart by all that
    can be, and it is not claimed where answers are missing of a quantity without a range: they may hide the opposite.
    ``is_doubled``: the p-value is twice a one-sided one, 1 where the estimate is not on the claim's side.
    """

    outcome: str
    p: float
    needs_pairs: bool = False
    is_doubled: bool = False

    def in_look(self, share: float) -> Claim:
        """The claim in a look that may spend this share of the error: its p-value over all looks, by Bonferroni."""
        if not self.p < 1:  # an unknown p stays NaN
            return self
        return self._replace(p=min(self.p / share, _BELOW_1))  # 1 says more than that: no sign of it


class Decision(NamedTuple):
    """What is claimed of a difference.

    Attributes
    ----------
    outcome : str or None
        The first of its claims that holds, None if none does.
    p_adjusted : tuple of float
        The corrected p of each claim.
    levels : tuple of float
        The level at which the correction tested each claim's own p.
    """

    difference: PairedDifference
    outcome: str | None
    p_adjusted: tuple[float, ...]
    levels: tuple[float, ...]

    def in_look(self, share: float) -> Decision:
        """The decision with the levels of a look's own p-values, which may spend this share of the error."""
        return self._replace(levels=tuple(level * share for level in self.levels))


def decide(suite: Sequence[tuple[PairedDifference, Sequence[Claim]]], alpha: float) -> list[Decision]:
    """Decide about each difference of one suite.

    Parameters
    ----------
    suite : sequence of (difference, claims)
        Each difference has the same kinds of claims, in order of precedence. The correction runs once for each kind.
    alpha : float
        Chance of even one wrong claim of a kind among the primary figures, and the share of wrong claims of a kind
        among the others.
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
    """Why nothing is claimed of a difference, where more items like those at hand may not help.

    Parameters
    ----------
    if_complete, if_paired : sequences of Claim
        The claims as they would be, were the missing answers like the others, and were there no unpaired items.
    may_hide : bool
        Whether the missing answers alone may hold what was asked for.
    is_seen_alike : bool
        Whether the clusters that were asked are alike, and only the room for others leaves it open.
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


def _may_be_alike(difference: PairedDifference) -> bool:
    """Whether nothing that is missing without bounds could hide that the two differ."""
    return difference.has_range or not difference.n_missing or difference.is_identical


def highest_confidence(holds: Callable[[float], bool], least: float = 0.0) -> float:
    """The highest confidence at which an interval still shows it, from ``least`` up; 0 if it does not even there."""
    if not holds(least):
        return 0.0
    shown, open_ = 1.0 - least, 1e-15  # 1 - confidence: shown there, and not shown here
    if holds(1 - open_):
        return 1 - open_
    while shown / open_ > 1.001:
        middle = math.sqrt(shown * open_)
        shown, open_ = (middle, open_) if holds(1 - middle) else (shown, middle)
    return 1 - shown


def margin_of(margins: Mapping[str, float] | float, measure: str) -> float:
    """A measure's margin; in a mapping, ``default`` stands for measures it does not name, else `DEFAULT_MARGIN`."""
    if isinstance(margins, Mapping):
        return margins.get(measure, margins.get("default", DEFAULT_MARGIN))
    return margins

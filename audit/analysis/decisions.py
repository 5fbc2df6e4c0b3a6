"""What may be claimed after correction for all figures of a suite.

Two models may be claimed to be equivalent, or one to be larger or smaller (`comparing.comparisons`); of two runs, that
a model regressed, improved or is unchanged (`audit.analysis.gate`). Both use the same rule, for each suite separately,
so that adding a suite hides nothing:

* The suite's primary figures are tested separately. Holm's correction limits the chance of even one wrong claim among
  them. So other figures do not make it harder to detect a primary one.
* All other figures of the suite share a false discovery rate (Benjamini & Hochberg 1995, J. R. Stat. Soc. B 57): the
  expected share of wrong claims. The procedure is proven for positively dependent tests (Benjamini & Yekutieli 2001,
  Ann. Stat. 29(4)), and for two-sided tests of correlated means no correlation is known to break it (Reiner-Benjamini
  2007, Biom. J. 49(1)). The claim that a figure got worse or better by more than its margin is tested among the figures
  that did so in the sample: the others are not part of the family (`conditional_false_discovery`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from audit.analysis.estimators.families import conditional_false_discovery, false_discovery, holm

#: The default margin of a measure.
DEFAULT_MARGIN = 0.02


class Claim(NamedTuple):
    """A statement about a difference, and the uncorrected p-value of its null hypothesis; NaN if it cannot be tested.

    ``is_doubled``: the p-value is twice a one-sided one, or 1 if the estimate is not on the claim's side.
    """

    outcome: str
    p: float
    is_doubled: bool = False


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

    outcome: str | None
    p_adjusted: tuple[float, ...]
    levels: tuple[float, ...]


def decide(suite: Sequence[tuple[bool, Sequence[Claim]]], alpha: float) -> list[Decision]:
    """Decide about each difference of one suite.

    Parameters
    ----------
    suite : sequence of (is primary, claims)
        Each difference has the same kinds of claims, in order of precedence. Each kind is corrected separately.
    alpha : float
        For each kind of claim: the chance of even one wrong claim among the primary figures, and the expected share of
        wrong claims among the others.
    """
    if not suite:
        return []
    p = np.array([[claim.p for claim in claims] for _, claims in suite], dtype=float)
    primary = np.array([is_primary for is_primary, _ in suite])
    adjusted, levels = np.full_like(p, np.nan), np.full_like(p, np.nan)
    for kind, claim in enumerate(suite[0][1]):
        of_others = conditional_false_discovery if claim.is_doubled else false_discovery
        for rows, correct in ((primary, holm), (~primary, of_others)):
            adjusted[rows, kind], levels[rows, kind] = correct(p[rows, kind], alpha)
    decisions = []
    for (_, claims), own, at in zip(suite, adjusted.tolist(), levels.tolist(), strict=True):
        held = (claim.outcome for claim, p_adjusted in zip(claims, own, strict=True) if p_adjusted < alpha)
        decisions.append(Decision(next(held, None), tuple(own), tuple(at)))
    return decisions


def would_hold(claims: Sequence[Claim], decision: Decision) -> list[Claim]:
    """The claims that would hold at the levels of a decision: of other items, or if nothing were missing."""
    return [claim for claim, level in zip(claims, decision.levels, strict=True) if claim.p < level] if claims else []


def margin_of(margins: Mapping[str, float] | float, measure: str) -> float:
    """A measure's margin; a mapping may have a ``default`` for other measures, or else it is `DEFAULT_MARGIN`."""
    if isinstance(margins, Mapping):
        return margins.get(measure, margins.get("default", DEFAULT_MARGIN))
    return margins

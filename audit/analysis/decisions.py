"""Decisions about differences: what may be claimed of them once the whole family is corrected.

Between two models a difference may be claimed to be equivalent, larger or smaller (`audit.analysis.comparisons`);
between two runs, that a model regressed, improved or is unchanged (`audit.analysis.gate`). Rankings and the noise of
engines rest on the former.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from audit.analysis.differences import PairedDifference
from audit.analysis.significance import holm

#: Margin of a measure for which none is given.
DEFAULT_MARGIN = 0.02
#: With more than this share of the items on one side only, nothing is claimed to be alike.
MOST_UNPAIRED = 0.05


class Claim(NamedTuple):
    """A statement about a difference, and the uncorrected p-value of its null hypothesis.

    ``needs_pairs``: it is not claimed where more than `MOST_UNPAIRED` of the items are unpaired: they may hide the
    opposite.
    """

    outcome: str
    p: float
    needs_pairs: bool = False

    def in_look(self, share: float) -> Claim:
        """The claim in a look that may spend this share of the error: its p-value over all looks, by Bonferroni."""
        return self._replace(p=1.0 if self.p > share else self.p / share)  # an unknown p stays NaN


class Decision(NamedTuple):
    """The first claim of a difference that holds, None if none does; and the corrected p of each claim."""

    difference: PairedDifference
    outcome: str | None
    p_holm: tuple[float, ...]


def decide(family: Sequence[tuple[PairedDifference, Sequence[Claim]]], alpha: float) -> list[Decision]:
    """Decide about each difference of a family.

    Parameters
    ----------
    family : sequence of (difference, claims)
        Each difference has the same kinds of claims, in order of precedence. Holm's correction runs over
        the family, once for each kind.
    alpha : float
        Chance of even one wrong claim of a kind in the family.
    """
    if not family:
        return []
    kinds = zip(*(claims for _, claims in family), strict=True)
    corrected = np.column_stack([holm(np.array([claim.p for claim in kind], dtype=float)) for kind in kinds])
    decisions = []
    for (difference, claims), p_holm in zip(family, corrected.tolist(), strict=True):
        enough_pairs = difference.unpaired_share <= MOST_UNPAIRED
        held = (
            claim.outcome
            for claim, p in zip(claims, p_holm, strict=True)
            if p < alpha and (enough_pairs or not claim.needs_pairs)
        )
        decisions.append(Decision(difference, next(held, None), tuple(p_holm)))
    return decisions


def margin_of(margins: Mapping[str, float] | float, measure: str) -> float:
    """A measure's margin; in a mapping, ``default`` stands for measures it does not name, else `DEFAULT_MARGIN`."""
    if isinstance(margins, Mapping):
        return margins.get(measure, margins.get("default", DEFAULT_MARGIN))
    return margins

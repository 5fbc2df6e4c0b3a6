"""Means with standard errors that fit the kind of values: real numbers, probabilities, shares, or differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.analysis.estimators.alike_strata import allow_for_alike_strata
from audit.analysis.estimators.clusters import Strata, crossed_factors
from audit.analysis.estimators.estimate import (
    Codes,
    Estimate,
    Floats,
    unknown_where_alike,
    unknown_where_few_are_alike,
)
from audit.analysis.estimators.means import clustered_mean
from audit.analysis.estimators.memberships import with_memberships
from audit.analysis.estimators.probabilities import widened_by_logit_model
from audit.analysis.estimators.rare import (
    allow_for_few_outcomes,
    allow_for_unseen_changes,
    allow_for_unseen_outcomes,
)
from audit.analysis.estimators.skewness import allow_for_unseen_skewness, bent_by_skewness
from audit.analysis.estimators.unseen import UNSEEN_LOG_ODDS, allow_for_unseen_kinds


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The range and the kind of values.

    Attributes
    ----------
    least, most : float
        Their range; infinite if there is none.
    is_count : bool or array (k,)
        Whether a column's values are counts.
    is_probability : bool
        Whether they are probabilities, rather than differences of probabilities.
    is_change : bool
        Whether they are what two models differ by, item by item. A decision about these allows for kinds that were not
        drawn by itself (`audit.analysis.comparing.paired`); an interval of others does.
    unseen_log_odds : float
        How far kinds that were not drawn may lie apart, at most, as for `allow_for_unseen_kinds`.
    """

    least: float
    most: float
    is_count: bool | NDArray[np.bool_] = False
    is_probability: bool = False
    is_change: bool = False
    unseen_log_odds: float = UNSEEN_LOG_ODDS

    def holds(self, values: Floats) -> bool:
        """Whether there is a range that contains the values."""
        return bool(np.isfinite(self.most - self.least) and self.least <= values.min() and values.max() <= self.most)


def mean_of_kind(
    values: Floats,
    clusters: Sequence[Codes],
    kind: ValueKind,
    strata: Strata | None = None,
    belongs: Floats | None = None,
) -> Estimate:
    """Mean of each column of ``values`` with a standard error that fits their kind.

    =================  ==============================================================================
    values             error
    =================  ==============================================================================
    any number         `clustered_mean`; unknown where all are alike: `unknown_where_alike`
    counted            `clustered_mean`, at least as far as a score interval: `allow_for_few_outcomes`
    with a range       bent by skewness, with an allowance for unseen outcomes: `bent_by_skewness`,
                       `allow_for_unseen_outcomes`; of changes `allow_for_unseen_changes`
    probabilities      the same, at least as far as a logit-normal model's: `widened_by_logit_model`
    of sampled levels, bent by skewness, and wider by what few levels do not show of it:
    no changes         `allow_for_unseen_skewness`; with a range, at least as far as a kind that was
                       not drawn may lie: `allow_for_unseen_kinds`. Not if counted, one of each level
    =================  ==============================================================================

    Values beyond their range are taken for any number. Parameters as for `clustered_mean`; ``belongs`` as for
    `with_memberships`, which widens each of them, and takes no strata.
    """
    columns = values.reshape(len(values), -1)
    estimate = clustered_mean(columns, clusters, strata)
    if belongs is not None:
        estimate = with_memberships(estimate, columns, clusters, belongs)
    factors = crossed_factors(clusters)
    is_of_sample = not kind.is_change and bool(factors)
    if not kind.holds(columns):
        bent = allow_for_unseen_skewness(bent_by_skewness(estimate)) if is_of_sample else estimate
        return unknown_where_alike(bent, is_change=kind.is_change)
    arguments = (columns, clusters, kind.least, kind.most, strata)
    is_count = np.broadcast_to(kind.is_count, estimate.value.shape)
    counted = allow_for_few_outcomes(estimate, *arguments) if is_count.any() else estimate
    if not is_count.all():
        estimate = bent_by_skewness(estimate, is_change=kind.is_change)
        if kind.is_probability:
            estimate = widened_by_logit_model(estimate, columns, clusters, strata)
        unseen = allow_for_unseen_changes if kind.is_change else allow_for_unseen_outcomes
        estimate = unseen(estimate, *arguments)
    estimate = estimate.where(is_count, counted)
    if strata is not None and factors:
        estimate = allow_for_alike_strata(estimate, columns, clusters, strata)
    if is_of_sample:
        sampled, estimate = estimate, allow_for_unseen_skewness(estimate)
        ends, groups = (kind.least, kind.most), strata or Strata.one(len(columns))
        is_probability = kind.is_probability & ~is_count  # a kind in which every answer is yes is no rarity
        estimate = allow_for_unseen_kinds(
            estimate, clusters, *ends, groups, is_probability=is_probability, log_odds=kind.unseen_log_odds
        )
        if len(factors) == 1 and factors[0].max() + 1 == len(columns):
            # One yes or no of each level: a score interval holds whatever kinds of levels there are.
            estimate = estimate.where(is_count, sampled)
    return unknown_where_few_are_alike(estimate)

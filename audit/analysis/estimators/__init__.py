"""Estimates that allow for dependent items, fixed strata, bounds and rare outcomes.

Takes arrays of values and of codes: clusters, strata. Gives `Estimate`: values, intervals and p-values of columns.
"""

from audit.analysis.estimators.batches import Layout, MeanOf, together
from audit.analysis.estimators.clusters import (
    Strata,
    blocks,
    cluster_means,
    combinations,
    crossed_factors,
    gathered,
    renumbered,
    total,
)
from audit.analysis.estimators.estimate import (
    ROUNDING,
    Codes,
    Estimate,
    Floats,
    Reach,
    finite,
    is_constant,
    tail_quantile,
    unknown_where_few_are_alike,
)
from audit.analysis.estimators.few_levels import few_levels_decide, rests_on_few_levels
from audit.analysis.estimators.kinds import ValueKind, mean_of_kind
from audit.analysis.estimators.means import Moments, clustered_mean, far_degrees, summed_variance
from audit.analysis.estimators.skewness import allow_for_unseen_skewness, bent_by_skewness
from audit.analysis.estimators.unseen import UNSEEN_LOG_ODDS, unseen_share, with_unseen_share

__all__ = [
    "ROUNDING",
    "UNSEEN_LOG_ODDS",
    "Codes",
    "Estimate",
    "Floats",
    "Layout",
    "MeanOf",
    "Moments",
    "Reach",
    "Strata",
    "ValueKind",
    "allow_for_unseen_skewness",
    "bent_by_skewness",
    "blocks",
    "cluster_means",
    "clustered_mean",
    "combinations",
    "crossed_factors",
    "far_degrees",
    "few_levels_decide",
    "finite",
    "gathered",
    "is_constant",
    "mean_of_kind",
    "renumbered",
    "rests_on_few_levels",
    "summed_variance",
    "tail_quantile",
    "together",
    "total",
    "unknown_where_few_are_alike",
    "unseen_share",
    "with_unseen_share",
]

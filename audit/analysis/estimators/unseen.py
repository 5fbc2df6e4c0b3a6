"""Allows for kinds of templates, occupations or other sampled levels that are not in the sample.

Of n levels drawn, a share π of all levels has no member with chance (1 - π)^n. So up to 1 - α^(1/n) of all may be of a
kind that was not seen (3 / n at 95 %: the rule of three, Hanley & Lippman-Hand 1983, JAMA 249(13)). Of 25 templates
that is 14 % at 97.5 %. What varies within the sample says nothing of them, and every interval made from it alone is too
short: where one template in ten raises a probability of 0.3 by 0.3, none of 25 is one of these in 7 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from audit.analysis.estimators.clusters import Strata, crossed_factors
from audit.analysis.estimators.estimate import Codes, Estimate

#: Log-odds by which a kind that was not seen is taken to lie apart, at most, in an interval: 0.3 becomes 0.54.
UNSEEN_LOG_ODDS = 1.0
#: With fewer levels they are taken to lie twice as far: three templates are often all of one of two kinds.
_FEW_LEVELS = 5


def unseen_share(weighted_levels: Sequence[tuple[float, int]], alpha: float) -> float:
    """How much of a figure may rest on kinds not seen, at the level ``alpha`` (one-sided): the most of any factor.

    Parameters
    ----------
    weighted_levels : sequence of (float, int)
        For each sampled factor, in each stratum that has levels of its own: the stratum's weight, and their number.
    """
    return max((weight * (1 - alpha ** (1 / n)) for weight, n in weighted_levels if n), default=1.0)


def with_unseen_share(ends: tuple[float, float], share: float, limits: tuple[float, float]) -> tuple[float, float]:
    """An interval of a figure of which this share, of kinds not seen, may lie anywhere within the limits.

    Without limits nothing is known: -inf and inf.
    """
    (low, high), (least, most) = ends, limits
    if not math.isfinite(most - least):
        return -math.inf, math.inf
    return low - share * (low - least), high + share * (most - high)


def allow_for_unseen_kinds(
    estimate: Estimate,
    clusters: Sequence[Codes],
    least: float,
    most: float,
    strata: Strata,
    *,
    is_probability: bool | NDArray[np.bool_],
    log_odds: float = UNSEEN_LOG_ODDS,
) -> Estimate:
    """The estimate of bounded values with a 95 % interval that holds, too, where a kind was not seen.

    A kind not seen is taken to lie apart by at most ``log_odds``, or by what that can move a probability (0.24 if it is
    1), in differences and in shares of yes and no; twice as far with fewer than five levels, of which nothing is
    claimed. That is an assumption; without it, nothing is said of such kinds below 100 levels. The interval reaches
    that far or as far as the sampling error, whichever is farther: of 25 templates and 20 occupations whose effects are
    of the usual size, the latter.

    Parameters
    ----------
    estimate : Estimate
        Of values whose levels of ``clusters`` are drawn.
    log_odds : float
        0 or more.
    """
    log_odds = 2 * log_odds if estimate.n_clusters < _FEW_LEVELS else log_odds
    most_moved = float(2 * special.expit(log_odds / 2) - 1)
    share = unseen_share(_weighted_levels(clusters, strata), 0.025)
    at = np.clip(estimate.value, least, most)
    inside = np.clip(at, 1e-12, 1 - 1e-12)
    odds = special.logit(inside)
    moved = most_moved * max(1.0, (most - least) / 2)
    below = np.where(is_probability, inside - special.expit(odds - log_odds), np.minimum(at - least, moved))
    above = np.where(is_probability, special.expit(odds + log_odds) - inside, np.minimum(most - at, moved))
    room = share * below, share * above
    return replace(estimate.widened(*room), sampled=estimate.reach)


def _weighted_levels(clusters: Sequence[Codes], strata: Strata) -> list[tuple[float, int]]:
    """As for `unseen_share`. A factor that crosses the strata has its levels in all of them."""
    found = []
    for codes in crossed_factors(clusters):
        stratum = strata.of_levels(codes)
        is_nested = len(stratum) > 0 and len(strata.weights) > 1 and np.array_equal(stratum[codes], strata.codes)
        if is_nested:
            found += list(zip(strata.weights.tolist(), np.bincount(stratum).tolist(), strict=True))
        else:
            found.append((1.0, len(stratum)))
    return found

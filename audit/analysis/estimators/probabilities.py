"""The mean of probabilities over crossed clusters: the interval of a logit-normal model.

Near 0 a few levels dominate a mean, and no method on its own scale is honest. So the log-odds are a sum of normal
effects, one for each sampled factor and one for each cell, and the interval is the generalised one of that model
(Weerahandi 1993, J. Am. Stat. Assoc. 88; of lognormal means Krishnamoorthy & Mathew 2003, J. Stat. Plan. Inference
115): variances are drawn as V · df/χ², the mean of the log-odds as a normal about its estimate, and for each draw
the mean probability is integrated. Draws are a fixed sequence (Roberts' additive recurrence), so that a figure is
always the same.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from scipy import special

from audit.analysis.estimators.design import Design
from audit.analysis.estimators.estimate import Estimate, Floats, Quantiles, Student, Wider
from audit.analysis.estimators.means import Source, clustered_mean, sources, weighted_mean

_DRAWS, _COLUMNS = 512, 8
#: Standard normal nodes, for the mean over a normal's log-odds.
_NODES = np.linspace(-4.5, 4.5, 25)
_NODE_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()
#: A probability below this part of the mean (or as far from 1) adds nothing to it: it is taken for as much.
_LEAST_PART = 1e-3


def mean_probability(values: Floats, design: Design) -> Estimate:
    """The mean of probabilities (n,), of which the interval is the logit-normal model's, or Hall's where wider."""
    plain = clustered_mean(values, design)
    mean = weighted_mean(values, design)
    if (isinstance(plain, Student) and not plain.is_known) or not 0 < mean < 1 or np.ptp(values) == 0:
        return plain
    logits = special.logit(np.clip(values, _LEAST_PART * mean, 1 - _LEAST_PART * (1 - mean)))
    found = sources(logits, design)
    if found is None or design.membership is not None:
        return plain
    cells = _drawn(found.cells, 1) if found.cells.df >= 1 else np.zeros(_DRAWS)
    drawn = [_drawn(of, place) for place, of in enumerate(found.factors.values(), 2)]
    variance = np.maximum(sum(drawn) - (len(drawn) - 1) * cells, np.max(drawn, axis=0))
    of_items = cells / found.cells.spread if found.cells.spread else np.zeros(_DRAWS)
    for of, one in zip(found.factors.values(), drawn, strict=True):
        of_items = of_items + np.maximum(one - cells, 0.0) / of.spread
    shift = special.ndtri(_uniform()[0]) * np.sqrt(variance)
    spread = np.sqrt(of_items)[:, None] * _NODES
    of_strata = np.bincount(design.strata, logits) / np.bincount(design.strata)
    theta = sum(
        weight * (special.expit(centre + shift[:, None] + spread) @ _NODE_WEIGHTS)
        for weight, centre in zip(design.weights, of_strata, strict=True)
    )
    return Wider(plain, Quantiles(mean, np.sort(special.logit(theta))))


def _drawn(of: Source, place: int) -> Floats:
    """Draws of a source's variance; ``place``: the column of the fixed sequence that they come from."""
    return of.variance * _by_chi_square(round(of.df, 3), place)


@lru_cache(maxsize=512)
def _by_chi_square(df: float, place: int) -> Floats:
    return np.asarray(df / special.chdtri(df, 1 - _uniform()[place]))


@cache
def _uniform() -> Floats:
    """Evenly spread points in the unit cube (columns, draws)."""
    root = 2.0
    for _ in range(64):  # of x^(d+1) = x + 1
        root = (1 + root) ** (1 / (_COLUMNS + 1))
    steps = root ** -np.arange(1.0, _COLUMNS + 1)
    return (0.5 + np.arange(1, _DRAWS + 1) * steps[:, None]) % 1

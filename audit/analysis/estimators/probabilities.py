"""The mean of probabilities over crossed clusters: intervals on the scale of the log-odds.

Near 0 a few levels dominate a mean, and no method on its own scale is honest. So the log-odds are a sum of normal
effects, one for each sampled factor and one for each cell, and the mean probability of that model has an error by the
delta method (Cox's method for lognormal means, modified by Zhou & Gao 1997, Stat. Med. 16(7)): of the middle of the
log-odds, and of their variance. Simulations found it narrower than the generalised interval of the same model
(Weerahandi 1993), and no less honest. Where the model is wrong, as with a few levels far from all others, the log-odds
of the plain mean with its clustered error are wider (the delta method of survey software); the wider of the two holds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import special

from audit.analysis.estimators.design import Design
from audit.analysis.estimators.estimate import Estimate, Floats, Student, Wider
from audit.analysis.estimators.means import Sources, clustered_mean, sources

#: Standard normal nodes, for the mean over normal log-odds.
_NODES = np.linspace(-5.0, 5.0, 61)
_NODE_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()
#: A probability below this part of the mean (or as far from 1) adds nothing to it: it is taken for as much.
_LEAST_PART = 1e-3


def mean_probability(values: Floats, design: Design) -> Estimate:
    """The mean of probabilities (n,)."""
    plain = clustered_mean(values, design)
    mean = plain.value
    if not 0 < mean < 1 or not plain.interval(0.5)[0] < mean:
        return plain
    survey = _on_log_odds(plain, mean)
    if design.membership is not None or np.isin(values, (0.0, 1.0)).any():  # shares of a few draws have no log-odds
        return survey
    logits = special.logit(np.clip(values, _LEAST_PART * mean, 1 - _LEAST_PART * (1 - mean)))
    found = sources(logits, design)
    if found is None:
        return survey
    return Wider(survey, _of_model(found, design, np.bincount(design.strata, logits) / np.bincount(design.strata)))


def _on_log_odds(estimate: Estimate, mean: float) -> Estimate:
    """The same error of the mean's log-odds."""
    if isinstance(estimate, Wider):
        return Wider(_on_log_odds(estimate.one, mean), _on_log_odds(estimate.other, mean))
    assert isinstance(estimate, Student)
    return replace(estimate, se=estimate.se / (mean * (1 - mean)), skewness=0.0, scale="logit")


def _of_model(found: Sources, design: Design, middles: Floats) -> Student:
    """The mean probability of normal log-odds with these strata's middles (S,)."""
    cells, spreads = found.cells, [of.spread for of in found.factors.values()]
    squares = [max(of.variance - cells.variance, 0.0) / of.spread for of in found.factors.values()]
    # Of each V: by how much it is multiplied in the variance of the log-odds.
    parts = [(of, 1 / of.spread) for of in found.factors.values()]
    if cells.df:
        squares.append(cells.variance / cells.spread)
        parts.append((cells, 1 / cells.spread - sum(1 / spread for spread in spreads)))
    spread = sum(squares)
    uncertain = sum((factor * of.variance) ** 2 * 2 / (of.df + 2) for of, factor in parts)
    variance, df = found.total()
    at = np.array([[0.0, spread], [1e-4, spread], [0.0, spread + 1e-4]])
    of_odds = middles[:, None, None] + at[:, :1] + np.sqrt(at[:, 1:]) * _NODES
    mean, moved, spread_more = (design.weights @ (special.expit(of_odds) @ _NODE_WEIGHTS)).tolist()
    by_middle, by_spread = (moved - mean) / 1e-4, (spread_more - mean) / 1e-4
    se = math.sqrt(by_middle**2 * variance + by_spread**2 * uncertain) / (mean * (1 - mean))
    return Student(mean, se, min(df, design.most_df), scale="logit")

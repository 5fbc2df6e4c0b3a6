"""Intervals of means that are skewed: one tail of their error is longer than the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from audit.analysis.estimators.estimate import Estimate, Reach

#: With fewer degrees of freedom a third cumulant shows too little to shorten a side.
_LEAST_DF = 4.0
#: What samples of ten or twenty levels show at most; beyond it, the exponential runs away.
_MOST_SKEWNESS = 1.5


def bent_by_skewness(estimate: Estimate) -> Estimate:
    """The estimate with Hall's transformation for its skewness γ (1992, J. R. Stat. Soc. B 54, the exponential one).

    γ is the third cumulant of the estimate's error, the sum of what each cluster factor adds, over the standard error
    cubed. To the side of the longer tail the interval reaches se · (γ/6 + (exp(κt) − 1)/κ) with κ = 2γ/3, to the
    other se · ((1 − exp(−κt))/κ − γ/6). In simulations of 20 exponential values 95 % intervals then miss above in 4.6 %
    and below in 1.9 % (Student's: 7.9 and 0.7). Heavier tails than that take a model.
    """
    if estimate.third is None:
        return estimate
    skewness = np.divide(estimate.third, estimate.se**3, out=np.zeros_like(estimate.se), where=estimate.se > 0)
    size = np.minimum(np.abs(np.nan_to_num(skewness)), _MOST_SKEWNESS)
    t, bend, straight = estimate.t, 2 / 3 * size, np.zeros_like(size)
    of_one = Reach(np.ones_like(t), bend)
    longer = Reach(estimate.se * (1 + size / 6 / of_one.at(t)), bend)
    shorter = Reach(estimate.se * np.minimum(1.0, (-of_one.at(-t) - size / 6) / t), straight)
    shorter = shorter._replace(se=np.where(estimate.df < _LEAST_DF, estimate.se, shorter.se))
    below, above = (
        Reach(*(np.where(is_long, mine, theirs) for mine, theirs in zip(longer, shorter, strict=True)))
        for is_long in (skewness <= 0, skewness > 0)
    )
    return replace(estimate, below=below, above=above)

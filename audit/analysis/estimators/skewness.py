"""Intervals of means that are skewed: one tail of their error is longer than the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from audit.analysis.estimators.estimate import Estimate, Reach

#: What samples of ten or twenty levels show at most; beyond it, the exponential runs away.
_MOST_SKEWNESS = 1.5


def bent_by_skewness(estimate: Estimate) -> Estimate:
    """The estimate with Hall's transformation for its skewness γ (1992, J. R. Stat. Soc. B 54, the exponential one).

    γ is the third cumulant of the estimate's error, the sum of what each cluster factor adds, over the standard error
    cubed. To the side of the longer tail the interval reaches se · (γ/6 + (exp(κt) − 1)/κ) with κ = 2γ/3. In
    simulations of 20 exponential values 95 % intervals then miss above in 4.6 % (Student's: 7.9). Heavier tails than
    that take a model.

    The other side stays Student's, though Hall's would be shorter: five or twenty levels show a skewness by mere luck.
    With a side shortened, intervals over 40 occupations and 5 templates held the truth in 92.8 % where all effects
    were normal, and in 91.6 % where they had heavy tails (t, 5 df); as they are, in 94.9 and 95.1 %.
    """
    if estimate.third is None:
        return estimate
    skewness = np.divide(estimate.third, estimate.se**3, out=np.zeros_like(estimate.se), where=estimate.se > 0)
    size = np.minimum(np.abs(np.nan_to_num(skewness)), _MOST_SKEWNESS)
    t, bend = estimate.t, 2 / 3 * size
    longer = Reach(estimate.se * (1 + size / 6 / Reach(np.ones_like(t), bend).at(t)), bend)
    below, above = (
        Reach(*(np.where(is_long, bent, straight) for bent, straight in zip(longer, side, strict=True)))
        for is_long, side in zip((skewness <= 0, skewness > 0), estimate.reach, strict=True)
    )
    return replace(estimate, below=below, above=above)

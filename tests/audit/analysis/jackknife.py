"""Errors of jackknifed estimates by scipy's kurtosis and cumulants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats


def worth(without: Sequence[float]) -> float:
    """Satterthwaite's degrees of freedom of the jackknife variance of estimates without each level."""
    n = len(without)
    return float(np.clip(2 * n / (stats.kurtosis(without, fisher=False) * (n + 1) / (n - 1) - 1), 1, n - 1))


def jackknife_reach(without: Sequence[float]) -> tuple[float, float]:
    """How far a 95 % jackknife interval reaches below and above: Hall's transformation to the side of the long tail."""
    n = len(without)
    se, t = np.sqrt((n - 1) ** 2 / n * np.var(without, ddof=1)), stats.t.ppf(0.975, worth(without))
    skewness = stats.kstat(-(n - 1) * np.array(without), 3) / n**2 / se**3
    kappa = 2 / 3 * min(abs(skewness), 1.5)
    reach = se * t, se * (kappa / 4 + np.expm1(kappa * t) / kappa)
    return reach if skewness > 0 else reach[::-1]


def few_levels(df: float, n: int) -> float:
    """The factor by which an interval from so few degrees of freedom and levels is wider."""
    return 1 + min(0.4, max(0.0, 4 * (1 / df - 1 / 50), 0.9 * (1 / (n - 1) - 1 / 25)))

"""Tests and their corrections: Holm over a family, McNemar and the score test on paired binary outcomes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from audit.analysis.estimators import Floats


def holm(p: Floats) -> Floats:
    """Holm's adjusted p-values (n,). NaN, a test that could not be made, is not part of the family.

    The same as ``statsmodels.stats.multitest.multipletests(method="holm")``, which forces a garbage
    collection at every call (0.1 s while large tables are in memory).
    """
    adjusted = np.full(len(p), np.nan)
    made = np.flatnonzero(np.isfinite(p))
    order = made[np.argsort(p[made])]
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return adjusted


def mcnemar_exact(only_b: Any, only_a: Any) -> Floats:
    """Exact two-sided p of McNemar's test from the counts of the two kinds of discordant items.

    The same as ``statsmodels.stats.contingency_tables.mcnemar(exact=True)``, for arrays.
    """
    fewer, total = np.minimum(only_b, only_a), np.asarray(only_b) + np.asarray(only_a)
    return np.asarray(np.minimum(1.0, 2 * special.bdtr(fewer, total, 0.5)))


def p_of_counts_outside(only_a: int, only_b: int, n: int, margin: float) -> float:
    """p against "the two shares differ by the margin or more", from n paired binary outcomes.

    Tango's score test (1998, Stat. Med. 17, eq. 8) in both directions. The t test is far too confident
    where few items are discordant: 1 of 200 within ± 0.02 has p = 0.0015 by t, 0.065 by the score, 0.089
    exactly.
    """
    scores = []
    for more, less in ((only_b, only_a), (only_a, only_b)):
        a, c = 2 * n, -less * margin * (1 - margin)
        b = (2 * n - more + less) * margin - more - less
        expected_less = (math.sqrt(b * b - 4 * a * c) - b) / (2 * a)
        variance = n * (2 * expected_less + margin * (1 - margin))
        scores.append((more - less - n * margin) / math.sqrt(variance) if variance > 0 else math.nan)
    return float(special.ndtr(max(scores)))

"""Corrections for multiple tests, and McNemar's and the score test for paired binary outcomes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from audit.analysis.estimators import Codes, Floats


class Corrected(NamedTuple):
    """For each test (n,): its adjusted p-value, and the level at which its own p was tested. NaN if not performed."""

    p: Floats
    level: Floats


def holm(p: Floats, alpha: float = 0.05) -> Corrected:
    """Holm's (1979) correction of p-values (n,): the chance of even one wrong rejection is at most ``alpha``.

    NaN, a test that could not be performed, is not part of the family. The smallest p is tested at alpha / n, the next
    at alpha / (n - 1), until one fails, at whose level all others fail too. Adjusted p-values equal those of
    ``statsmodels.stats.multitest.multipletests(method="holm")``, which forces a garbage collection at every call
    (0.1 s while large tables are in memory).
    """
    made, ranked = _ranked(p)
    left = np.arange(len(ranked), 0, -1.0)
    adjusted = np.minimum(1.0, np.maximum.accumulate(ranked * left))
    level = alpha / left
    rejected = int((adjusted < alpha).sum())
    level[rejected:] = level[rejected] if rejected < len(level) else alpha
    return _in_place(len(p), made, adjusted, level)


def false_discovery(p: Floats, alpha: float = 0.05) -> Corrected:
    """Benjamini and Hochberg's (1995) correction of p-values (n,): at most a share ``alpha`` of rejections is wrong.

    NaN, a test that could not be performed, is not part of the family. Rejected tests were tested at alpha · R / n, R
    the number of rejections: intervals at that level miss the truth in a share alpha of those selected (Benjamini &
    Yekutieli 2005, J. Am. Stat. Assoc. 100(469)). All others fail at alpha · (R + 1) / n. Adjusted p-values equal those
    of ``statsmodels.stats.multitest.multipletests(method="fdr_bh")``.
    """
    made, ranked = _ranked(p)
    n = len(ranked)
    adjusted = np.minimum(1.0, np.minimum.accumulate((ranked * n / np.arange(1, n + 1))[::-1])[::-1])
    rejected = int((adjusted < alpha).sum())
    level = np.where(np.arange(n) < rejected, alpha * rejected / max(n, 1), alpha * min(rejected + 1, n) / max(n, 1))
    return _in_place(len(p), made, adjusted, level)


def conditional_false_discovery(p: Floats, alpha: float = 0.05) -> Corrected:
    """`false_discovery` among tests whose estimate lies on the claim's side; p: twice the one-sided p-values (n,).

    A figure that is not beyond its margin has p = 1, and says nothing about how often the others are wrong. Given that
    a one-sided p is below one half, twice its value is again a p-value: uniform at the boundary of the hypothesis,
    larger inside it. So tests with p = 1 are left out of the family, and the suite's other figures cost little (Zhao,
    Small & Su 2019, J. Am. Stat. Assoc. 114(527); for intervals: Ellis, Pecanka & Goeman 2020, Biostatistics 21(2)).
    """
    beyond = p < 1
    found = false_discovery(np.where(beyond, p, np.nan), alpha)
    within, n = np.isfinite(p) & ~beyond, int(beyond.sum())
    found.p[within], found.level[within] = 1.0, alpha * (int((found.p < alpha).sum()) + 1) / (n + 1)
    return found


def _ranked(p: Floats) -> tuple[Codes, Floats]:
    """Positions of the tests that were performed, the smallest p first, and their p-values."""
    made = np.flatnonzero(np.isfinite(p))
    made = made[np.argsort(p[made], kind="stable")]
    return made, p[made]


def _in_place(n: int, made: Codes, adjusted: Floats, level: Floats) -> Corrected:
    found = Corrected(np.full(n, np.nan), np.full(n, np.nan))
    found.p[made], found.level[made] = adjusted, level
    return found


def mcnemar_exact(only_b: Any, only_a: Any) -> Floats:
    """Exact two-sided p of McNemar's test from the counts of the two kinds of discordant items.

    Like ``statsmodels.stats.contingency_tables.mcnemar(exact=True)``, but for arrays.
    """
    fewer, total = np.minimum(only_b, only_a), np.asarray(only_b) + np.asarray(only_a)
    return np.asarray(np.minimum(1.0, 2 * special.bdtr(fewer, total, 0.5)))


def p_of_counts_outside(only_a: int, only_b: int, n: int, margin: float) -> float:
    """p-value of "the two shares differ by the margin or more", from n paired binary outcomes.

    Tango's score test (1998, Stat. Med. 17, eq. 8) in both directions. The t test is far too confident if few items are
    discordant: for 1 of 200 and ± 0.02 it gives p = 0.0015, the score test 0.065, and an exact test 0.089.
    """
    scores = []
    for more, less in ((only_b, only_a), (only_a, only_b)):
        a, c = 2 * n, -less * margin * (1 - margin)
        b = (2 * n - more + less) * margin - more - less
        expected_less = (math.sqrt(b * b - 4 * a * c) - b) / (2 * a)
        variance = n * (2 * expected_less + margin * (1 - margin))
        scores.append((more - less - n * margin) / math.sqrt(variance) if variance > 0 else math.nan)
    return float(special.ndtr(max(scores)))

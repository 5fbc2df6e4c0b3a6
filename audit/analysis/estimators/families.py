"""Families of tests: Holm for the primary figures, Benjamini and Hochberg for the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from audit.analysis.estimators.estimate import Codes, Floats


class Corrected(NamedTuple):
    """For each test (n,): its adjusted p-value, and the level at which its own p was tested. NaN if not performed."""

    p: Floats
    level: Floats


def holm(p: Floats, alpha: float = 0.05) -> Corrected:
    """Holm's (1979) correction of p-values (n,): the chance of even one wrong rejection is at most ``alpha``.

    NaN, a test that could not be performed, is not part of the family. The smallest p is tested at alpha / n, the next
    at alpha / (n - 1), until one fails, at whose level all others fail too.
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
    Yekutieli 2005, J. Am. Stat. Assoc. 100(469)). All others fail at alpha · (R + 1) / n.
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

"""What may be claimed after correction for all figures of a suite.

Two models may be claimed to be equivalent, or one to be larger or smaller (`comparing.comparisons`); of two runs, that
a model regressed, improved or is unchanged (`audit.analysis.gate`). Each kind of claim is corrected by itself, for each
suite separately, so that adding a suite hides nothing:

* The suite's primary figures are tested separately. Holm's correction limits the chance of even one wrong claim among
  them. So other figures do not make it harder to detect a primary one.
* All other figures of the suite share a false discovery rate (Benjamini & Hochberg 1995, J. R. Stat. Soc. B 57): the
  expected share of wrong claims. The procedure is proven for positively dependent tests (Benjamini & Yekutieli 2001,
  Ann. Stat. 29(4)), and for two-sided tests of correlated means no correlation is known to break it (Reiner-Benjamini
  2007, Biom. J. 49(1)).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from audit.analysis.estimators.estimate import Floats
from audit.analysis.table import Bools

#: The default margin of a measure.
DEFAULT_MARGIN = 0.02


class Corrected(NamedTuple):
    """For each test (n,): its adjusted p-value, and the level at which its own p was tested. NaN if not performed."""

    p: Floats
    level: Floats


def corrected(p: Floats, primary: Bools, alpha: float) -> Corrected:
    """The p-values (n,) of one kind of claim about a suite's figures, corrected as described above.

    NaN, a test that could not be performed, is not part of a family.
    """
    found = Corrected(np.full(len(p), np.nan), np.full(len(p), np.nan))
    for of_kind, correct in ((primary, holm), (~primary, false_discovery)):
        made = np.flatnonzero(of_kind & np.isfinite(p))
        made = made[np.argsort(p[made], kind="stable")]
        found.p[made], found.level[made] = correct(p[made], alpha)
    return found


def holm(p: Floats, alpha: float = 0.05) -> Corrected:
    """Holm's (1979) correction of ascending p-values (n,): the chance of even one wrong rejection is at most ``alpha``.

    The smallest p is tested at alpha / n, the next at alpha / (n - 1), until one fails, at whose level all others fail
    too.
    """
    left = np.arange(len(p), 0, -1.0)
    adjusted = np.minimum(1.0, np.maximum.accumulate(p * left))
    level = alpha / left
    rejected = int((adjusted < alpha).sum())
    level[rejected:] = level[rejected] if rejected < len(level) else alpha
    return Corrected(adjusted, level)


def false_discovery(p: Floats, alpha: float = 0.05) -> Corrected:
    """Benjamini and Hochberg's (1995) correction of ascending p-values (n,): a share ``alpha`` of rejections is wrong.

    Rejected tests were tested at alpha · R / n, R the number of rejections: intervals at that level miss the truth in a
    share alpha of those selected (Benjamini & Yekutieli 2005, J. Am. Stat. Assoc. 100(469)). All others fail at
    alpha · (R + 1) / n.
    """
    n = len(p)
    adjusted = np.minimum(1.0, np.minimum.accumulate((p * n / np.arange(1, n + 1))[::-1])[::-1])
    rejected = int((adjusted < alpha).sum())
    level = np.where(np.arange(n) < rejected, alpha * rejected / max(n, 1), alpha * min(rejected + 1, n) / max(n, 1))
    return Corrected(adjusted, level)


def margin_of(margins: Mapping[str, float] | float, measure: str) -> float:
    """A measure's margin; a mapping may have a ``default`` for other measures, or else it is `DEFAULT_MARGIN`."""
    if isinstance(margins, Mapping):
        return margins.get(measure, margins.get("default", DEFAULT_MARGIN))
    return margins

"""Missing answers as bounds: a missing answer may be any value in the quantity's range.

Leaving it out would assume that it is like the others, which favours a model that refuses its worst items. So a figure
is computed with all missing answers at one end of the range and again at the other, as for answers known only by bounds
(Manski 2003, Partial Identification of Probability Distributions; Horowitz & Manski 2000, J. Am. Stat. Assoc. 95(449)),
and a decision holds only if it holds for every possible answer. The estimate from the answered items alone, the
complete cases, is reported beside it.

A quantity without a range has no such bounds. Its missing answers are assumed to lie within the range of the answered
items of all models; nothing is called equivalent on that assumption.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from audit.analysis.figures import meant, usable
from audit.analysis.table import Bools, Quantity, Table
from suites.base import MeasureSpec


class Completed(NamedTuple):
    """One figure's quantity in one table, in which a missing answer has the range as its bounds.

    ``used`` (n,) are rows with the quantity, ``missing`` (n,) those that would have it but lack an answer.
    """

    quantity: Quantity
    used: Bools
    missing: Bools

    @property
    def asked(self) -> Bools:
        """Rows (n,) that the figure would use if all were answered."""
        return self.used | self.missing


def completed(tables: Sequence[Table], spec: MeasureSpec) -> list[Completed]:
    """A figure's quantity in each table, with missing answers as bounds."""
    found = [
        Completed(table.quantity(spec.quantity), usable(table, spec), missing_rows(table, spec)) for table in tables
    ]
    if not any(of.missing.any() for of in found):
        return found
    if not spec.has_range and not any(of.used.any() for of in found):  # nothing was answered at all
        return [of._replace(missing=np.zeros_like(of.missing)) for of in found]
    return bounded(found, spec)


def bounded(found: Sequence[Completed], spec: MeasureSpec) -> list[Completed]:
    """With bounds in place of missing answers: the quantity's range, or else that of the answered items."""
    least, most = spec.limits
    if not spec.has_range:
        ends = [(of.quantity.low[of.used].min(), of.quantity.high[of.used].max()) for of in found if of.used.any()]
        least, most = (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (math.nan, math.nan)
    return [of._replace(quantity=_bounded(of, least, most)) if of.missing.any() else of for of in found]


def _bounded(of: Completed, least: float, most: float) -> Quantity:
    ends = (math.nan, of.quantity.value), (least, of.quantity.low), (most, of.quantity.high)
    value, low, high = (np.where(of.missing, end, column) for end, column in ends)
    return Quantity(value, low, high, of.quantity.draw_variance)


def missing_rows(table: Table, spec: MeasureSpec) -> Bools:
    """Rows (n,) without an answer that a figure would use; one that has its quantity all the same is not."""
    if not table.missing.any():
        return table.missing
    return table.missing & meant(table, spec) & np.isnan(table.quantity(spec.quantity).low)

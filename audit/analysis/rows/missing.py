"""Missing answers as bounds: a missing answer may be any value in the quantity's range.

Leaving it out would assume that it is like the others, which favours a model that refuses its worst items. So a figure
is computed with all missing answers at one end of the range and again at the other, as for answers known only by bounds
(Horowitz & Manski 2000, J. Am. Stat. Assoc. 95(449)), and a decision holds only if it holds for every possible answer.
The estimate from the answered items alone, the complete cases, is reported beside it.

A quantity without a range has no such bounds. Its missing answers are assumed to lie within the range of the answered
items of all models; nothing is called equivalent on that assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit.analysis.estimators import Floats, gathered
from audit.analysis.rows.design import covariate_values, usable
from audit.analysis.rows.table import Bools, Quantity, RowTable
from audit.spool import selected
from suites.base import MeasureSpec


@dataclass(frozen=True, slots=True)
class Completed:
    """One figure's quantity in one table, including missing answers.

    Attributes
    ----------
    quantity : Quantity
        As in the table; a missing answer has no value, and the range as its bounds.
    used, missing : array (n,)
        Rows with the quantity, and rows that would have it but lack an answer.
    """

    quantity: Quantity
    used: Bools
    missing: Bools

    @property
    def asked(self) -> Bools:
        """Rows (n,) that the figure would use if all were answered."""
        return self.used | self.missing


def completed(tables: Sequence[RowTable], spec: MeasureSpec) -> list[Completed]:
    """A figure's quantity in each table, with missing answers as bounds."""
    found = [(table.quantity(spec.quantity), usable(table, spec), missing_rows(table, spec)) for table in tables]
    if not any(missing.any() for _, _, missing in found):
        return [Completed(*parts) for parts in found]
    least, most = limits(spec, [(quantity, used) for quantity, used, _ in found])
    if not least <= most:  # nothing was answered at all
        return [Completed(quantity, used, np.zeros_like(missing)) for quantity, used, missing in found]
    return [
        Completed(
            Quantity(
                _where(missing, np.nan, quantity.value),
                _where(missing, least, quantity.low),
                _where(missing, most, quantity.high),
                quantity.draw_variance,
            )
            if missing.any()
            else quantity,
            used,
            missing,
        )
        for quantity, used, missing in found
    ]


def missing_rows(table: RowTable, spec: MeasureSpec) -> Bools:
    """Rows (n,) without an answer that a figure would use; one that has its quantity all the same is not."""
    if not table.missing.any():
        return table.missing
    return table.missing & meant(table, spec) & np.isnan(table.quantity(spec.quantity).low)


def meant(table: RowTable, spec: MeasureSpec) -> Bools:
    """Rows (n,) that a figure is about, answered or not: not those of strata without a weight."""
    rows = table.matching(spec.where)
    if spec.stratum is not None and spec.weights is not None:
        weighted = [table.levels.find(spec.stratum, level) for level in spec.weights]
        codes, known = table.codes(spec.stratum), [code for code in weighted if code is not None]
        rows &= gathered(len(rows), lambda some: np.isin(codes[some], known), np.bool_)
    if spec.estimator == "correlation":
        rows &= np.isfinite(covariate_values(table, spec))
    return rows


def limits(spec: MeasureSpec, seen: Sequence[tuple[Quantity, Bools]]) -> tuple[float, float]:
    """The range of a missing answer: the quantity's, or else that of the answered items."""
    if spec.has_range:
        return spec.limits
    ends = [(selected(q.low, used).min(), selected(q.high, used).max()) for q, used in seen if used.any()]
    return (float(min(low for low, _ in ends)), float(max(high for _, high in ends))) if ends else (np.nan, np.nan)


def _where(rows: Bools, value: float, column: Floats) -> Floats:
    """The column with a value in some rows."""
    return gathered(len(column), lambda some: np.where(rows[some], value, column[some]), np.float64)

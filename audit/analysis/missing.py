"""Answers that are missing, as bounds: a missing answer of a quantity may be anything that the quantity can be.

Leaving it out would take it for an answer like the others, but a model that refuses its worst items looks
better for it. So a figure is computed with all missing answers at the one end of the range and again at the other, as
for answers known only by bounds (Horowitz & Manski 2000, J. Am. Stat. Assoc. 95(449)), and a decision holds only if it
holds for every answer that could have come. What the answered items alone give, the complete case, stands beside it.

A quantity without a range has no such bounds. Its missing answers are taken to lie within what the answered items
show, of whichever model; nothing is called alike on that assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit.analysis.design import covariate_values, usable
from audit.analysis.table import Bools, Quantity, RowTable
from suites.base import MeasureSpec


@dataclass(frozen=True, slots=True)
class Completed:
    """One figure's quantity in one table, its missing answers included.

    Attributes
    ----------
    quantity : Quantity
        As in the table; a missing answer has the range for bounds and no value.
    used, missing : array (n,)
        Rows with the quantity, and rows without an answer that would have it.
    """

    quantity: Quantity
    used: Bools
    missing: Bools

    @property
    def asked(self) -> Bools:
        """Rows (n,) that the figure would rest on, were all answered."""
        return self.used | self.missing


def completed(tables: Sequence[RowTable], spec: MeasureSpec) -> list[Completed]:
    """A figure's quantity in each table with the missing answers as bounds."""
    found = [(table.quantity(spec.quantity), usable(table, spec), missing_rows(table, spec)) for table in tables]
    if not any(missing.any() for _, _, missing in found):
        return [Completed(*parts) for parts in found]
    least, most = limits(spec, [(quantity, used) for quantity, used, _ in found])
    if not least <= most:  # nothing was answered anywhere: there is nothing to complete
        return [Completed(quantity, used, np.zeros_like(missing)) for quantity, used, missing in found]
    return [
        Completed(
            Quantity(
                np.where(missing, np.nan, quantity.value),
                np.where(missing, least, quantity.low),
                np.where(missing, most, quantity.high),
            )
            if missing.any()
            else quantity,
            used,
            missing,
        )
        for quantity, used, missing in found
    ]


def missing_rows(table: RowTable, spec: MeasureSpec) -> Bools:
    """Rows (n,) without an answer that a figure would rest on."""
    if not table.missing.any():
        return table.missing
    missing = table.missing & table.matching(spec.where)
    if spec.stratum is not None and spec.weights is not None:
        weighted = [table.levels.find(spec.stratum, level) for level in spec.weights]
        missing &= np.isin(table.codes(spec.stratum), [code for code in weighted if code is not None])
    if spec.estimator == "correlation":
        missing &= np.isfinite(covariate_values(table, spec))
    return missing


def has_range(spec: MeasureSpec) -> bool:
    """Whether it is known what the quantity can be."""
    return bool(np.isfinite(spec.limits).all())


def limits(spec: MeasureSpec, seen: Sequence[tuple[Quantity, Bools]]) -> tuple[float, float]:
    """What a missing answer can be: the quantity's range, or else what the answered items show."""
    if has_range(spec):
        return spec.limits
    low, high = (np.concatenate([getattr(q, end)[used] for q, used in seen]) for end in ("low", "high"))
    return (float(low.min()), float(high.max())) if low.size else (np.nan, np.nan)

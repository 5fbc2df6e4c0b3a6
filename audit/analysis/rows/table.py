"""Rows as columns, so that thousands of figures can be computed in seconds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter

import numpy as np

from audit.analysis.estimators import Codes, Floats, Layout
from suites.base import Factor, IdentifiedInterval, Row

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity of all rows (n,). ``low`` and ``high`` are NaN if a row lacks it; they equal ``value`` if it is
    exact, and are the same array as ``value`` if it is exact in all rows. ``value`` is NaN if only bounds are known.
    ``draw_variance`` is None if no value was counted from drawn answers, and NaN where it is unknown."""

    value: Floats
    low: Floats
    high: Floats
    draw_variance: Floats | None = None


@dataclass
class Levels:
    """Codes of the factors' levels, shared by tables that are compared."""

    by_factor: dict[str, dict[tuple[bool, Factor], int]] = field(default_factory=dict)

    def code(self, factor: str, level: Factor) -> int:
        """The level's code, a new one if the level is new. True differs from 1."""
        if (codes := self.by_factor.get(factor)) is None:
            codes = self.by_factor[factor] = {}
        return codes.setdefault((level is True or level is False, level), len(codes))

    def codes_of(self, factor: str, levels: Sequence[Factor]) -> Codes:
        """The levels' codes (n,). A column has few distinct levels, and each is looked up once."""
        if bool in set(map(type, levels)):  # True and 1 are the same key of a dict
            return np.array([self.code(factor, level) for level in levels], dtype=np.intp)
        codes = {level: self.code(factor, level) for level in dict.fromkeys(levels)}
        return np.fromiter(map(codes.__getitem__, levels), np.intp, len(levels))

    def find(self, factor: str, level: Factor) -> int | None:
        """The level's code; None if no row has it."""
        return self.by_factor.get(factor, {}).get((isinstance(level, bool), level))

    def names(self, factor: str) -> list[Factor]:
        """The levels in order of their codes."""
        return [level for _, level in self.by_factor.get(factor, {})]


class RowTable:
    """The rows of one model as arrays over a list of items.

    Parameters
    ----------
    rows : sequence
        At most one per item.
    index : mapping, optional
        Position of each item id, shared by tables that are to be paired. Items without a row have no value and match
        no condition. Default: the order of the rows.
    levels : Levels, optional
        Shared with other tables.

    Raises
    ------
    ValueError
        If an item has more than one row.
    """

    def __init__(
        self, rows: Sequence[Row], index: Mapping[str, int] | None = None, levels: Levels | None = None
    ) -> None:
        self.index = item_index([rows]) if index is None else index
        self.levels = levels or Levels()
        n = len(self.index)
        if index is None and n == len(rows):
            position = np.arange(n)
            self.reasons: list[str | None] = [_reason(row) for row in rows]
        else:
            position = np.array([self.index[row.item_id] for row in rows], dtype=np.intp)
            times = np.bincount(position)
            if times.max(initial=0) > 1:
                raise ValueError(f"item {list(self.index)[int(times.argmax())]!r} has more than one row")
            self.reasons = [None] * n
            for at, row in zip(position.tolist(), rows, strict=True):
                self.reasons[at] = _reason(row)
        self.missing: Bools = np.array([reason is not None for reason in self.reasons], dtype=np.bool_)
        self.answered: Bools = np.zeros(n, dtype=np.bool_)
        self.answered[position] = True
        self.answered &= ~self.missing
        #: Cache of the clusters and strata behind figures (`audit.analysis.rows.design.layout_of`).
        self.layouts: dict[Hashable, Layout] = {}
        self._masks: dict[tuple[str, int], Bools] = {}
        self._codes: dict[str, Codes] = {}
        self._quantities: dict[str, Quantity] = {}
        self._has: dict[str, Bools] = {}
        self._memberships: dict[str, list[tuple[int, Codes]]] = {}
        for at, row in zip(position.tolist(), rows, strict=True):
            for factor, levels_of_row in row.memberships.items():
                codes = self.levels.codes_of(factor, levels_of_row)
                self._memberships.setdefault(factor, []).append((at, codes))
        for places, alike in _alike(rows, position):
            factors, values = [row.factors for row in alike], [row.values for row in alike]
            for factor in factors[0]:
                self.codes(factor)[places] = self.levels.codes_of(factor, list(map(itemgetter(factor), factors)))
            for name in values[0]:
                self._quantities[name] = _filled(self.quantity(name), places, list(map(itemgetter(name), values)))

    def quantity(self, name: str) -> Quantity:
        """A quantity by name; all NaN if no row has it."""
        if name not in self._quantities:
            nothing = np.full(len(self.index), np.nan)
            self._quantities[name] = Quantity(nothing, nothing, nothing)
        return self._quantities[name]

    def has(self, name: str) -> Bools:
        """Rows (n,) that have the quantity."""
        if name not in self._has:
            self._has[name] = np.isfinite(self.quantity(name).low)
        return self._has[name]

    def codes(self, factor: str) -> Codes:
        """Level codes (n,) of a factor, -1 if a row does not have it."""
        if factor not in self._codes:
            self._codes[factor] = np.full(len(self.index), -1, dtype=np.intp)
        return self._codes[factor]

    def belongs(self, factor: str, used: Bools) -> Floats:
        """Indicators (used, G): 1 if a used row (n,) belongs to a level of the factor, for the G levels that occur."""
        occurring = [(at, codes) for at, codes in self._memberships.get(factor, []) if used[at]]
        if not occurring:
            return np.zeros((int(used.sum()), 0))
        place = np.cumsum(used) - 1
        rows = np.repeat([place[at] for at, _ in occurring], [len(codes) for _, codes in occurring])
        levels, own = np.unique(np.concatenate([codes for _, codes in occurring]), return_inverse=True)
        belongs = np.zeros((int(used.sum()), len(levels)))
        belongs[rows, own] = 1.0
        return belongs

    def members(self, factor: str, used: Bools) -> list[Factor]:
        """The levels of the factor that some used row (n,) belongs to, in order of their codes."""
        names = self.levels.names(factor)
        codes = {int(code) for at, codes in self._memberships.get(factor, []) if used[at] for code in codes}
        return [names[code] for code in sorted(codes)]

    def matching(self, where: Mapping[str, Factor]) -> Bools:
        """Rows (n,) whose factors equal ``where``. A row without a named factor does not match."""
        mask = np.ones(len(self.index), dtype=np.bool_)
        for factor, level in where.items():
            code = self.levels.find(factor, level)
            if code is None:
                return np.zeros(len(self.index), dtype=np.bool_)
            if (factor, code) not in self._masks:
                self._masks[factor, code] = self.codes(factor) == code
            mask &= self._masks[factor, code]
        return mask


def _reason(row: Row) -> str | None:
    """Why a row counts as missing, as any row without values does; None if it does not."""
    return row.missing if row.missing is not None or row.values else "no value"


def item_index(rows_of_models: Iterable[Sequence[Row]]) -> dict[str, int]:
    """Position of each item of any model, in order of first appearance."""
    index: dict[str, int] = {}
    for rows in rows_of_models:
        for row in rows:
            index.setdefault(row.item_id, len(index))
    return index


def _alike(rows: Sequence[Row], position: Codes) -> Iterator[tuple[Codes, list[Row]]]:
    """Groups of rows with the same factors and quantities, and their positions, so that columns are filled at once."""
    by_names: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for number, row in enumerate(rows):
        by_names.setdefault((tuple(row.factors), tuple(row.values)), []).append(number)
    for numbers in by_names.values():
        yield position[numbers], [rows[number] for number in numbers]


def _filled(column: Quantity, places: Codes, numbers: Sequence[IdentifiedInterval]) -> Quantity:
    value = np.array(list(map(attrgetter("value"), numbers)), dtype=float)  # None becomes NaN
    low, high = (np.fromiter(map(attrgetter(bound), numbers), float, len(numbers)) for bound in ("low", "high"))
    column.value[places] = value
    if any(number.draw_variance != 0 for number in numbers):
        variance = np.zeros(len(column.value)) if column.draw_variance is None else column.draw_variance
        variance[places] = np.array([number.draw_variance for number in numbers], dtype=float)  # None becomes NaN
        column = replace(column, draw_variance=variance)
    if column.low is column.value:
        if (low == value).all() and (high == value).all():
            return column
        column = replace(column, low=column.value.copy(), high=column.value.copy())
    column.low[places], column.high[places] = low, high
    return column

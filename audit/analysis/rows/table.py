"""Rows as columns, so that thousands of figures can be computed in seconds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.analysis.estimators import Codes, Floats, Layout
from audit.analysis.rows.packed import LevelColumn, NumberColumn, PackedRows, RowBlock, RowsAlike, Shape, row_blocks
from audit.analysis.rows.spool import Room, mapped
from suites.base import Factor, Row

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

#: Bytes of what is computed again where it would take more: rows with a level, and layouts.
_MOST_CACHED = 32 * 2**20
#: Rows of a column that are gathered in memory before they are put aside.
_AT_ONCE = 2**17


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
        self.reasons: list[str | None] = [None] * n
        self.answered: Bools = np.zeros(n, dtype=np.bool_)
        self._layouts: dict[Hashable, Layout] = {}
        self._bytes_of_layouts = 0
        self._masks: dict[tuple[str, int], Bools] = {}
        self._codes: dict[str, Codes] = {}
        self._quantities: dict[str, Quantity] = {}
        self._has: dict[str, Bools] = {}
        self._memberships: dict[str, list[tuple[int, Codes]]] = {}
        alike: dict[Shape, _Columns] = {}
        # Rows that are all there is stand in their own order.
        in_order = len(rows) == n and (index is None or (isinstance(rows, PackedRows) and rows.positions is index))
        start = 0
        for block in row_blocks(rows):
            size = len(block.ids)
            position = np.arange(start, start + size) if in_order else self._positions(block.ids)
            self._add(block, position)
            for own in block.alike:
                alike.setdefault(own.shape, _Columns(own.shape)).add(own, position)
            start += size
        self.missing: Bools = np.array([reason is not None for reason in self.reasons], dtype=np.bool_)
        self.answered &= ~self.missing
        while alike:  # each is dropped once it is filled in
            self._fill(alike.pop(next(iter(alike))))

    def _positions(self, ids: Sequence[str]) -> Codes:
        position = np.array([self.index[item] for item in ids], dtype=np.intp)
        if len(np.unique(position)) < len(ids) or self.answered[position].any():
            twice = next(item for item, n in Counter(ids).items() if n > 1 or self.answered[self.index[item]])
            raise ValueError(f"item {twice!r} has more than one row")
        return position

    def _add(self, block: RowBlock, position: Codes) -> None:
        """Take over what belongs to single rows of a block."""
        self.answered[position] = True
        places = position.tolist()
        for own in block.alike:
            if not own.shape[1]:  # a row without values counts as missing
                for at in own.places.tolist():
                    self.reasons[places[at]] = "no value"
        for at, reason in block.missing.items():
            self.reasons[places[at]] = reason
        for at, memberships in block.memberships.items():
            for factor, levels in memberships.items():
                self._memberships.setdefault(factor, []).append((places[at], self.levels.codes_of(factor, levels)))

    def _fill(self, columns: _Columns) -> None:
        """Fill in rows that have the same factors and quantities."""
        position = columns.take_position()
        for factor, (levels, codes) in columns.take_factors():
            self.codes(factor)[position] = self.levels.codes_of(factor, levels)[codes]
            self._codes[factor] = mapped(self._codes[factor])
        for name, numbers in columns.take_values():
            self._quantities[name] = _mapped(_filled(self.quantity(name), position, numbers))

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

    def layout(self, key: Hashable, make: Callable[[], Layout]) -> Layout:
        """The layout that ``make`` gives, which is kept under a key for the figures that share it."""
        found = self._layouts.get(key)
        if found is None:
            found = make()
            if self._bytes_of_layouts + found.size > _MOST_CACHED:
                self._layouts.clear()
                self._bytes_of_layouts = 0
            self._layouts[key] = found
            self._bytes_of_layouts += found.size
        return found

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
            of_level = self._masks.get((factor, code))
            if of_level is None:
                of_level = self.codes(factor) == code
                if (len(self._masks) + 1) * len(self.index) <= _MOST_CACHED:
                    self._masks[factor, code] = of_level
            mask &= of_level
        return mask


def item_index(rows_of_models: Iterable[Sequence[Row]]) -> Mapping[str, int]:
    """Position of each item of any model, in order of first appearance."""
    models = list(rows_of_models)
    packed = [rows.positions for rows in models if isinstance(rows, PackedRows)]
    if len(packed) == len(models) and all(index is packed[0] for index in packed[1:]) and packed:
        return packed[0]
    index: dict[str, int] = {}
    for rows in models:
        for item in rows.positions if isinstance(rows, PackedRows) else (row.item_id for row in rows):
            index.setdefault(item, len(index))
    return index


class _Gathered:
    """An array that is put together piece by piece; of a large one only the last pieces are in memory."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._whole: list[NDArray[Any]] = []
        self._last: list[NDArray[Any]] = []
        self.size = 0

    def add(self, piece: NDArray[Any]) -> None:
        """Append values."""
        self._last.append(piece)
        self.size += len(piece)
        if sum(map(len, self._last)) >= _AT_ONCE:
            self._whole.append(mapped(np.concatenate(self._last), self._room))
            self._last.clear()

    def take(self) -> NDArray[Any]:
        """All values; none are left here."""
        pieces = [*self._whole, *self._last]
        self._whole, self._last = [], []
        return np.concatenate(pieces)


class _Numbers:
    """One quantity of rows, put together block by block."""

    def __init__(self, room: Room) -> None:
        self._value = _Gathered(room)
        self._others: list[tuple[slice, NumberColumn]] = []  # with bounds, or counted from drawn answers

    def add(self, column: NumberColumn) -> None:
        """Append a block's."""
        start = self._value.size
        self._value.add(column.value)
        if not column.is_exact or column.draw_variance is not None:
            self._others.append((slice(start, self._value.size), column))

    def take(self) -> Quantity:
        """All; none are left here."""
        value, others = self._value.take(), self._others
        self._others = []
        low = high = value
        if not all(column.is_exact for _, column in others):
            low, high = value.copy(), value.copy()
            for rows, column in others:
                low[rows], high[rows] = column.low, column.high
        variance = None
        if any(column.draw_variance is not None for _, column in others):
            variance = np.zeros(len(value))
            for rows, column in others:
                variance[rows] = 0.0 if column.draw_variance is None else column.draw_variance
        return Quantity(value, low, high, variance)


class _Columns:
    """Rows with the same factors and quantities, gathered block by block, so that columns are filled at once."""

    def __init__(self, shape: Shape) -> None:
        self._names, self._quantities = shape
        room = Room()  # its files go with these columns
        self._position = _Gathered(room)
        self._levels: list[tuple[dict[tuple[bool, Factor], int], _Gathered]] = [
            ({}, _Gathered(room)) for _ in self._names
        ]
        self._numbers = [_Numbers(room) for _ in self._quantities]

    def add(self, rows: RowsAlike, position: Codes) -> None:
        """Add the rows of a block whose rows are at ``position``."""
        self._position.add(position[rows.places])
        for (found, codes), column in zip(self._levels, rows.factors, strict=True):
            codes.add(_coded(column, found))
        for numbers, of_block in zip(self._numbers, rows.values, strict=True):
            numbers.add(of_block)

    def take_position(self) -> Codes:
        """The rows' positions (n,)."""
        return self._position.take()

    def take_factors(self) -> Iterator[tuple[str, tuple[list[Factor], Codes]]]:
        """Each factor's distinct levels in order of first appearance, and the rows' codes (n,) among these."""
        for name, (found, codes) in zip(self._names, self._levels, strict=True):
            yield name, ([level for _, level in found], codes.take())

    def take_values(self) -> Iterator[tuple[str, Quantity]]:
        """Each quantity of these rows (n,)."""
        for name, numbers in zip(self._quantities, self._numbers, strict=True):
            yield name, numbers.take()


def _coded(column: LevelColumn, found: dict[tuple[bool, Factor], int]) -> Codes:
    """The codes (n,) of a block's rows among all levels ``found`` so far. True differs from 1; 1.0 does not."""
    own = []
    for level in column.levels:
        known = math.nan if isinstance(level, float) and math.isnan(level) else level  # else no two of them are equal
        own.append(found.setdefault((level is True or level is False, known), len(found)))
    return np.asarray(np.array(own, dtype=np.intp)[column.codes])


def _mapped(quantity: Quantity) -> Quantity:
    value, variance = mapped(quantity.value), quantity.draw_variance
    low, high = (value if end is quantity.value else mapped(end) for end in (quantity.low, quantity.high))
    return Quantity(value, low, high, None if variance is None else mapped(variance))


def _filled(column: Quantity, places: Codes, given: Quantity) -> Quantity:
    column.value[places] = given.value
    if given.draw_variance is not None:
        variance = np.zeros(len(column.value)) if column.draw_variance is None else column.draw_variance
        variance[places] = given.draw_variance
        column = replace(column, draw_variance=variance)
    if column.low is column.value:
        if (given.low == given.value).all() and (given.high == given.value).all():
            return column
        column = replace(column, low=column.value.copy(), high=column.value.copy())
    column.low[places], column.high[places] = given.low, given.high
    return column

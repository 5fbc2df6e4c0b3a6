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
from audit.analysis.rows.item_index import are_alike
from audit.analysis.rows.packed import LevelColumn, NumberColumn, PackedRows, RowBlock, RowsAlike, Shape, row_blocks
from audit.spool import Room, mapped, scratch
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
        self._reasons: dict[str, int] = {}
        self._reason = _full(n, -1, np.int32)
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
        in_order = len(rows) == n and (
            index is None or (isinstance(rows, PackedRows) and are_alike(rows.positions, index))
        )
        start = 0
        for block in row_blocks(rows):
            size = len(block.ids)
            position = np.arange(start, start + size) if in_order else self._positions(block.ids)
            self._add(block, position)
            for own in block.alike:
                alike.setdefault(own.shape, _Columns(own.shape)).add(own, position)
            start += size
        self.missing: Bools = mapped(self._reason >= 0)
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
                    self._is_missing(places[at], "no value")
        for at, reason in block.missing.items():
            self._is_missing(places[at], reason)
        for at, memberships in block.memberships.items():
            for factor, levels in memberships.items():
                self._memberships.setdefault(factor, []).append((places[at], self.levels.codes_of(factor, levels)))

    def _is_missing(self, position: int, reason: str) -> None:
        self._reason[position] = self._reasons.setdefault(reason, len(self._reasons))

    def _fill(self, columns: _Columns) -> None:
        """Fill in rows that have the same factors and quantities."""
        for factor, levels, codes in columns.factors():
            column, own = self.codes(factor), self.levels.codes_of(factor, levels)
            for position, piece in zip(columns.position(), codes, strict=True):
                column[position] = own[piece]
        for name, numbers in columns.values():
            self._quantities[name] = _filled(self.quantity(name), columns.position(), numbers)

    def quantity(self, name: str) -> Quantity:
        """A quantity by name; all NaN if no row has it."""
        if name not in self._quantities:
            nothing = _full(len(self.index), np.nan, np.float64)
            self._quantities[name] = Quantity(nothing, nothing, nothing)
        return self._quantities[name]

    def has(self, name: str) -> Bools:
        """Rows (n,) that have the quantity."""
        if name not in self._has:
            self._has[name] = mapped(np.isfinite(self.quantity(name).low))
        return self._has[name]

    def codes(self, factor: str) -> Codes:
        """Level codes (n,) of a factor, -1 if a row does not have it."""
        if factor not in self._codes:
            self._codes[factor] = _full(len(self.index), -1, np.intp)
        return self._codes[factor]

    def missing_for(self, is_meant: Callable[[str], bool]) -> Bools:
        """Rows (n,) without an answer for a reason that is meant."""
        meant = np.array([*map(is_meant, self._reasons), False])  # -1, an answer, takes the last
        return np.asarray(meant[self._reason])

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
                    self._masks[factor, code] = mapped(of_level)
            mask &= of_level
        return mask


def item_index(rows_of_models: Iterable[Sequence[Row]]) -> Mapping[str, int]:
    """Position of each item of any model, in order of first appearance."""
    models = list(rows_of_models)
    packed = [rows.positions for rows in models if isinstance(rows, PackedRows)]
    if len(packed) == len(models) and all(are_alike(index, packed[0]) for index in packed[1:]) and packed:
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

    def add(self, piece: NDArray[Any]) -> None:
        """Append values."""
        self._last.append(piece)
        if sum(map(len, self._last)) >= _AT_ONCE:
            self._whole.append(mapped(np.concatenate(self._last), self._room))
            self._last.clear()

    def pieces(self) -> list[NDArray[Any]]:
        """All values, in pieces that are as long as those of other arrays of the same rows."""
        return [*self._whole, *([np.concatenate(self._last)] if self._last else [])]

    def as_before(self, before: Callable[[NDArray[Any]], NDArray[Any]]) -> _Gathered:
        """Another array, of what is made of the pieces so far."""
        other = _Gathered(self._room)
        other._whole, other._last = list(map(before, self._whole)), list(map(before, self._last))
        return other


class _Numbers:
    """One quantity of rows, put together block by block."""

    def __init__(self, room: Room) -> None:
        self._value = _Gathered(room)
        self._ends: tuple[_Gathered, _Gathered] | None = None  # from the first row with bounds on
        self._variance: _Gathered | None = None  # from the first row that was counted from drawn answers on

    def add(self, column: NumberColumn) -> None:
        """Append a block's."""
        if self._ends is None and not column.is_exact:
            self._ends = self._value.as_before(np.asarray), self._value.as_before(np.asarray)
        if self._variance is None and column.draw_variance is not None:
            self._variance = self._value.as_before(lambda piece: np.broadcast_to(0.0, piece.shape))
        self._value.add(column.value)
        if self._ends is not None:
            for end, own in zip(self._ends, (column.low, column.high), strict=True):
                end.add(own)
        if self._variance is not None:
            known = np.broadcast_to(0.0, column.value.shape) if column.draw_variance is None else column.draw_variance
            self._variance.add(known)

    def pieces(self) -> list[Quantity]:
        """All, piece by piece."""
        values = self._value.pieces()
        lows, highs = (values, values) if self._ends is None else (end.pieces() for end in self._ends)
        variances = [None] * len(values) if self._variance is None else self._variance.pieces()
        return list(map(Quantity, values, lows, highs, variances))


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

    def position(self) -> list[Codes]:
        """The rows' positions, piece by piece."""
        return self._position.pieces()

    def factors(self) -> Iterator[tuple[str, list[Factor], list[Codes]]]:
        """Each factor's distinct levels in order of first appearance, and the rows' codes among these."""
        for name, (found, codes) in zip(self._names, self._levels, strict=True):
            yield name, [level for _, level in found], codes.pieces()

    def values(self) -> Iterator[tuple[str, list[Quantity]]]:
        """Each quantity of these rows."""
        for name, numbers in zip(self._quantities, self._numbers, strict=True):
            yield name, numbers.pieces()


def _coded(column: LevelColumn, found: dict[tuple[bool, Factor], int]) -> Codes:
    """The codes (n,) of a block's rows among all levels ``found`` so far. True differs from 1; 1.0 does not."""
    own = []
    for level in column.levels:
        known = math.nan if isinstance(level, float) and math.isnan(level) else level  # else no two of them are equal
        own.append(found.setdefault((level is True or level is False, known), len(found)))
    return np.asarray(np.array(own, dtype=np.intp)[column.codes])


def _full(n: int, value: float, dtype: Any) -> NDArray[Any]:
    column = scratch(n, dtype, stays=True)
    column[:] = value
    return column


def _copied(column: Floats) -> Floats:
    copy = scratch(len(column), np.float64, stays=True)
    copy[:] = column
    return copy


def _filled(column: Quantity, positions: Sequence[Codes], given: Sequence[Quantity]) -> Quantity:
    """A column with rows at some positions, piece by piece."""
    if any(piece.draw_variance is not None for piece in given):
        if column.draw_variance is None:
            column = replace(column, draw_variance=_full(len(column.value), 0.0, np.float64))
        assert column.draw_variance is not None
        for at, piece in zip(positions, given, strict=True):
            column.draw_variance[at] = piece.draw_variance
    for at, piece in zip(positions, given, strict=True):
        column.value[at] = piece.value
    if column.low is column.value:
        if all((end == piece.value).all() for piece in given for end in (piece.low, piece.high)):
            return column
        column = replace(column, low=_copied(column.value), high=_copied(column.value))
    for at, piece in zip(positions, given, strict=True):
        column.low[at], column.high[at] = piece.low, piece.high
    return column

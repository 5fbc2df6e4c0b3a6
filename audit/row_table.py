"""Rows as columns, so that thousands of figures are filtered from them in seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from audit.statistics import Codes, Floats
from suites.base import Factor, Row

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
Numbers = tuple[float, float, float]  # value, low, high


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity of all rows: ``low`` and ``high`` (n,), NaN where a row has none; they are
    equal to ``value`` where it is exact. ``value`` is NaN where only the bounds are known."""

    value: Floats
    low: Floats
    high: Floats


@dataclass
class Levels:
    """Codes of the factors' levels, shared by the tables that are to be compared."""

    by_factor: dict[str, dict[tuple[bool, Factor], int]] = field(default_factory=dict)

    def code(self, factor: str, level: Factor) -> int:
        """The level's code, new if it was never seen. True is not 1."""
        if (codes := self.by_factor.get(factor)) is None:
            codes = self.by_factor[factor] = {}
        return codes.setdefault((level is True or level is False, level), len(codes))

    def find(self, factor: str, level: Factor) -> int | None:
        """The level's code, None if no row has it."""
        return self.by_factor.get(factor, {}).get((isinstance(level, bool), level))

    def names(self, factor: str) -> list[Factor]:
        """The levels in the order of their codes."""
        return [level for _, level in self.by_factor.get(factor, {})]


class RowTable:
    """The rows of one model as arrays over a list of items.

    Parameters
    ----------
    rows : sequence
        Each item once.
    index : mapping, optional
        Position of each item id: rows of several models share it to be paired. Items without
        a row hold no value and match no condition. None: the rows' own order.
    levels : Levels, optional
        Shared with the other tables.

    Raises
    ------
    ValueError
        When an item comes twice: its figures would count it twice or lose one.
    """

    def __init__(
        self, rows: Sequence[Row], index: Mapping[str, int] | None = None, levels: Levels | None = None
    ) -> None:
        self.index = item_index([rows]) if index is None else index
        self.levels = levels or Levels()
        n = len(self.index)
        position = np.array([self.index[row.item_id] for row in rows], dtype=np.intp)
        if len(np.unique(position)) != len(position):
            twice = next(i for i, count in enumerate(np.bincount(position)) if count > 1)
            raise ValueError(f"item {list(self.index)[twice]!r} has more than one row")
        self.reasons: list[str | None] = [None] * n
        for at, row in zip(position, rows, strict=True):
            self.reasons[at] = row.missing
        self.missing: Bools = np.array([reason is not None for reason in self.reasons], dtype=np.bool_)
        self._masks: dict[tuple[str, int], Bools] = {}
        self._codes = {name: _column(n, *found) for name, found in self._levels_of(rows, position.tolist()).items()}
        self._quantities = {name: _quantity(n, *found) for name, found in _values_of(rows, position.tolist()).items()}

    def _levels_of(self, rows: Sequence[Row], position: list[int]) -> dict[str, tuple[list[int], list[int]]]:
        """For each factor the places of the rows that have it, and their level codes."""
        found: dict[str, tuple[list[int], list[int]]] = {}
        for at, row in zip(position, rows, strict=True):
            for factor, level in row.factors.items():
                if (column := found.get(factor)) is None:
                    column = found[factor] = ([], [])
                column[0].append(at)
                column[1].append(self.levels.code(factor, level))
        return found

    def quantity(self, name: str) -> Quantity:
        """A quantity by its name; all NaN if no row has it."""
        if name not in self._quantities:
            nothing = np.full(len(self.index), np.nan)
            self._quantities[name] = Quantity(nothing, nothing, nothing)
        return self._quantities[name]

    def codes(self, factor: str) -> Codes:
        """Level codes (n,) of a factor, -1 where a row does not have it."""
        if factor not in self._codes:
            self._codes[factor] = np.full(len(self.index), -1, dtype=np.intp)
        return self._codes[factor]

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


def item_index(rows_of_models: Iterable[Sequence[Row]]) -> dict[str, int]:
    """Position of each item that any of the models has, in order of first appearance."""
    index: dict[str, int] = {}
    for rows in rows_of_models:
        for row in rows:
            index.setdefault(row.item_id, len(index))
    return index


def _values_of(rows: Sequence[Row], position: list[int]) -> dict[str, tuple[list[int], list[Numbers]]]:
    """For each quantity the places of the rows that have it, and its (value, low, high) there."""
    found: dict[str, tuple[list[int], list[Numbers]]] = {}
    for at, row in zip(position, rows, strict=True):
        for name, bounded in row.values.items():
            places, numbers = found.setdefault(name, ([], []))
            places.append(at)
            numbers.append((math.nan if bounded.value is None else bounded.value, bounded.low, bounded.high))
    return found


def _column(n: int, places: list[int], codes: list[int]) -> Codes:
    column = np.full(n, -1, dtype=np.intp)
    column[places] = codes
    return column


def _quantity(n: int, places: list[int], found: list[Numbers]) -> Quantity:
    numbers = np.full((3, n), np.nan)
    numbers[:, places] = np.array(found).T
    return Quantity(*numbers)

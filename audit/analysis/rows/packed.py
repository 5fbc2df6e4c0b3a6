"""Rows as compressed columns of blocks, since a million of them do not fit in memory as objects.

A row of five numbers takes two kilobytes as an object, and some 60 bytes here. A number, a level or a text comes back
as it was, to the last bit and with its type.
"""

from __future__ import annotations

import bisect
import itertools
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from audit.analysis.rows.item_index import positions_of
from audit.analysis.table import Codes, Floats
from audit.spool import Slot, Spool
from suites.base import Factor, IdentifiedInterval, Row

#: Rows that are packed together.
BLOCK = 512

Shape = tuple[tuple[str, ...], tuple[str, ...]]
"""The names of a row's factors, and of its quantities."""


@dataclass(slots=True)
class LevelColumn:
    """One factor of some rows: its distinct levels, in order of their first row, and each row's code."""

    levels: list[Factor]
    codes: Codes

    @classmethod
    def of(cls, levels: Iterable[Factor]) -> LevelColumn:
        """The column of these levels. True differs from 1, and 1 from 1.0."""
        found: dict[tuple[type, Factor], int] = {}
        codes = [found.setdefault((type(level), level), len(found)) for level in levels]
        return cls([level for _, level in found], np.array(codes, dtype=np.intp))


@dataclass(slots=True)
class NumberColumn:
    """One quantity of some rows: value (NaN if only bounds are known), low and high (n,), the same array if equal.

    ``others`` are numbers by row that are no plain float, as they were: a whole number is stored without a point.
    ``draw_variance`` (n,) is None if no value was counted from drawn answers, and NaN where it is unknown.
    """

    value: Floats
    low: Floats
    high: Floats
    others: dict[int, IdentifiedInterval]
    draw_variance: Floats | None = None

    @classmethod
    def of(cls, numbers: Sequence[IdentifiedInterval]) -> NumberColumn:
        """The column of these numbers."""
        given = [(number.value, number.low, number.high, number.draw_variance) for number in numbers]
        # None becomes NaN
        value, low, high, variance = (np.array(parts, dtype=float) for parts in zip(*given, strict=True))
        others = {at: numbers[at] for at, parts in enumerate(given) if not all(map(_is_plain, parts))}
        if not others and low.tobytes() == value.tobytes() == high.tobytes():  # -0.0 equals 0.0, and is another number
            low = high = value
        return cls(value, low, high, others, variance if variance.any() else None)

    @property
    def is_exact(self) -> bool:
        """Whether the bounds are the values' own array."""
        return self.low is self.value

    def numbers(self) -> list[IdentifiedInterval]:
        """The numbers, as they were."""
        if self.is_exact and self.draw_variance is None:
            return [IdentifiedInterval(value, value, value) for value in self.value.tolist()]
        variances = itertools.repeat(0.0) if self.draw_variance is None else map(_or_none, self.draw_variance.tolist())
        ends = zip(map(_or_none, self.value.tolist()), self.low.tolist(), self.high.tolist(), variances, strict=False)
        found = list(itertools.starmap(IdentifiedInterval, ends))
        for at, number in self.others.items():
            found[at] = number
        return found


def _or_none(number: float) -> float | None:
    return None if number != number else number


def _is_plain(number: float | None) -> bool:
    return number is None or type(number) is float


@dataclass(slots=True)
class RowsAlike:
    """The rows of a block that have the same factors and quantities, at their ``places`` in the block."""

    shape: Shape
    places: Codes
    factors: list[LevelColumn]
    values: list[NumberColumn]


@dataclass(slots=True)
class RowBlock:
    """Some rows as columns; ``missing``, ``sources`` and ``memberships`` by place, for the rows that have them."""

    ids: list[str]
    alike: list[RowsAlike]
    missing: dict[int, str]
    sources: dict[int, tuple[str, ...]]
    memberships: dict[int, Mapping[str, tuple[str, ...]]]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> RowBlock:
        """The block of these rows."""
        by_shape: dict[Shape, list[int]] = {}
        for place, row in enumerate(rows):
            by_shape.setdefault((tuple(row.factors), tuple(row.values)), []).append(place)
        alike = []
        for shape, places in by_shape.items():
            of_factors, of_values = [rows[at].factors for at in places], [rows[at].values for at in places]
            factors = [LevelColumn.of([of[name] for of in of_factors]) for name in shape[0]]
            values = [NumberColumn.of([of[name] for of in of_values]) for name in shape[1]]
            alike.append(RowsAlike(shape, np.array(places, dtype=np.intp), factors, values))
        return cls(
            [row.item_id for row in rows],
            alike,
            {at: row.missing for at, row in enumerate(rows) if row.missing is not None},
            {at: row.sources for at, row in enumerate(rows) if row.sources},
            {at: row.memberships for at, row in enumerate(rows) if row.memberships},
        )

    def rows(self) -> list[Row]:
        """The rows, as they were."""
        found: list[Row] = [None] * len(self.ids)  # type: ignore[list-item]
        for alike in self.alike:
            names, quantities = alike.shape
            levels = [[of.levels[code] for code in of.codes.tolist()] for of in alike.factors]
            of_factors = zip(*levels, strict=True) if names else itertools.repeat(())
            numbers = [column.numbers() for column in alike.values]
            of_values = zip(*numbers, strict=True) if quantities else itertools.repeat(())
            for at, own, values in zip(alike.places.tolist(), of_factors, of_values, strict=False):
                found[at] = Row(
                    self.ids[at],
                    dict(zip(names, own, strict=True)),
                    dict(zip(quantities, values, strict=True)),
                    self.missing.get(at),
                    self.sources.get(at, ()),
                    self.memberships.get(at, {}),
                )
        return found

    def packed(self) -> bytes:
        """The block in few bytes."""
        alike = [
            (one.shape, _small(one.places), [(of.levels, _small(of.codes)) for of in one.factors],
             [_packed_numbers(of) for of in one.values])
            for one in self.alike
        ]  # fmt: skip
        parts = (self.ids, alike, self.missing, self.sources, self.memberships)
        return zlib.compress(pickle.dumps(parts, pickle.HIGHEST_PROTOCOL), 1)

    @classmethod
    def unpacked(cls, data: bytes) -> RowBlock:
        """Read back what `packed` gave."""
        ids, alike, *others = pickle.loads(zlib.decompress(data))  # safe to unpickle: pickled by this process
        return cls(
            ids,
            [
                RowsAlike(
                    shape,
                    _wide(places),
                    [LevelColumn(levels, _wide(codes)) for levels, codes in factors],
                    [_unpacked_numbers(*numbers) for numbers in values],
                )
                for shape, places, factors, values in alike
            ],
            *others,
        )


def _small(codes: Codes) -> bytes:
    return codes.astype(np.uint32).tobytes()


def _wide(codes: bytes) -> Codes:
    return np.frombuffer(codes, np.uint32).astype(np.intp)


def _packed_numbers(column: NumberColumn) -> tuple[Any, ...]:
    variance = None if column.draw_variance is None else column.draw_variance.tobytes()
    if column.is_exact:
        return column.value.tobytes(), variance
    return column.value.tobytes(), variance, column.low.tobytes(), column.high.tobytes(), column.others


def _unpacked_numbers(*parts: Any) -> NumberColumn:
    value = np.frombuffer(parts[0], float)
    variance = None if parts[1] is None else np.frombuffer(parts[1], float)
    if len(parts) == 2:
        return NumberColumn(value, value, value, {}, variance)
    return NumberColumn(value, np.frombuffer(parts[2], float), np.frombuffer(parts[3], float), parts[4], variance)


class PackedRows(Sequence[Row]):
    """Rows in order, of which a block at a time is unpacked.

    Parameters
    ----------
    slots : sequence of (Slot, int)
        Where each block lies in the spool, and its number of rows.
    positions : mapping, optional
        The position of each item, if it is known.
    """

    def __init__(
        self, spool: Spool, slots: Sequence[tuple[Slot, int]], positions: Mapping[str, int] | None = None
    ) -> None:
        self._spool, self._slots, self._positions = spool, slots, positions
        self._ends = list(itertools.accumulate(n for _, n in slots))
        self._last: tuple[int, list[Row]] = -1, []  # the block used last

    @classmethod
    def of(cls, rows: Iterable[Row]) -> PackedRows:
        """These rows, iterated over once."""
        spool, slots, source = Spool(), [], iter(rows)
        while some := list(itertools.islice(source, BLOCK)):
            slots.append((spool.add(RowBlock.of(some).packed()), len(some)))
        return cls(spool, slots)

    @property
    def positions(self) -> Mapping[str, int]:
        """The position of each item, in order of first appearance."""
        if self._positions is None:
            self._positions = positions_of(self._ids)
        if self._positions is None:  # an id occurs twice
            found: dict[str, int] = {}
            for item in self._ids():
                found.setdefault(item, len(found))
            self._positions = found
        return self._positions

    def _ids(self) -> Iterator[str]:
        return itertools.chain.from_iterable(block.ids for block in self.blocks())

    def blocks(self) -> Iterator[RowBlock]:
        """The rows block by block."""
        return (RowBlock.unpacked(self._spool.get(slot)) for slot, _ in self._slots)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Row]:
        return itertools.chain.from_iterable(block.rows() for block in self.blocks())

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        number = bisect.bisect_right(self._ends, at)
        last = self._last
        if last[0] != number:
            rows = RowBlock.unpacked(self._spool.get(self._slots[number][0])).rows()
            last = self._last = number, rows
        return last[1][at - (self._ends[number] - self._slots[number][1])]


def row_blocks(rows: Sequence[Row]) -> Iterator[RowBlock]:
    """Any rows block by block."""
    if isinstance(rows, PackedRows):
        return rows.blocks()
    return (RowBlock.of(rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK))

"""The one columnar table between suites and report: a model's rows on a suite, as a polars frame.

polars rather than pandas: imported in 0.2 s of CPU and 35 MB (pandas 0.35 s, 43 MB), and it reads and writes compressed
tables by itself (pandas needs pyarrow for that). It is imported when a table is built, not with this module.
"""

from __future__ import annotations

import io
import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from suites.base import Factor, IdentifiedInterval, Row

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Bools = NDArray[np.bool_]

#: The reason of a row that has neither a value nor a reason.
NO_VALUE = "no value"
#: Rows that are made at once when a table is read row by row.
_ROWS_AT_ONCE = 1024
#: The columns of a quantity; the last three only where some row needs them.
_PARTS = ("value", "low", "high", "draw_variance")
_HEADER_SIZE = 8

LevelKey = tuple[bool, Factor]


class Quantity(NamedTuple):
    """One quantity of all rows (n,).

    ``low`` and ``high`` are NaN where a row lacks it, and the same array as ``value`` if it is exact in all rows.
    ``value`` is NaN where only bounds are known. ``draw_variance`` is None if no value was counted from drawn answers,
    and NaN where it is unknown.
    """

    value: Floats
    low: Floats
    high: Floats
    draw_variance: Floats | None = None

    @property
    def is_exact(self) -> bool:
        """Whether every row that has it has it exactly."""
        return self.low is self.value and self.high is self.value


def level_key(level: Factor) -> LevelKey:
    """A level as a key: True differs from 1, although Python considers them equal."""
    return isinstance(level, bool), level


class TableBuilder:
    """Collects rows as columns."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._missing: list[str | None] = []
        self._sources: list[tuple[str, ...] | None] = []
        self._factors: dict[str, _FactorColumn] = {}
        self._numbers: dict[str, _NumberColumn] = {}
        self._memberships: dict[str, list[tuple[str, ...] | None]] = {}

    def add(self, row: Row) -> None:
        """Add a row.

        Raises
        ------
        ValueError
            If there is one of this item already.
        """
        at = len(self._missing)
        if self._ids.setdefault(row.item_id, at) != at:
            raise ValueError(f"item {row.item_id!r} has more than one row")
        self._missing.append(row.missing if row.values or row.missing else NO_VALUE)
        self._sources.append(row.sources or None)
        for name, level in row.factors.items():
            if (factor := self._factors.get(name)) is None:
                factor = self._factors[name] = _FactorColumn()
            factor.put(at, level)
        for name, number in row.values.items():
            if (column := self._numbers.get(name)) is None:
                column = self._numbers[name] = _NumberColumn()
            column.put(at, number)
        for name, members in row.memberships.items():
            own = self._memberships.setdefault(name, [])
            own.extend([None] * (at - len(own)))
            own.append(tuple(members))

    def build(self) -> Table:
        """The table of the rows so far, in their order."""
        import polars as pl

        n = len(self._missing)
        columns: dict[str, pl.Series] = {
            "item_id": pl.Series(list(self._ids), dtype=pl.String),
            "missing": pl.Series(self._missing, dtype=pl.String),
            "sources": pl.Series(self._sources, dtype=pl.List(pl.String)),
        }
        for name, factor in self._factors.items():
            columns[f"factor.{name}"] = pl.Series(factor.filled(n), dtype=pl.Int32)
        for name, number in self._numbers.items():
            columns |= {f"{part}.{name}": pl.Series(column) for part, column in number.filled(n).items()}
        for name, members in self._memberships.items():
            padded = members + [None] * (n - len(members))
            columns[f"membership.{name}"] = pl.Series(padded, dtype=pl.List(pl.String))
        levels = {name: [level for _, level in factor.levels] for name, factor in self._factors.items()}
        return Table(pl.DataFrame(columns), levels)


class _FactorColumn:
    """Level codes of the rows so far, in order of first appearance."""

    def __init__(self) -> None:
        self.levels: dict[LevelKey, int] = {}
        self._codes = array("i")

    def put(self, at: int, level: Factor) -> None:
        if len(self._codes) < at:
            self._codes.extend([-1] * (at - len(self._codes)))
        known = math.nan if level != level else level  # else no two of them are equal
        self._codes.append(self.levels.setdefault((known is True or known is False, known), len(self.levels)))

    def filled(self, n: int) -> NDArray[np.int32]:
        return _padded(self._codes, n, -1, np.int32)


class _NumberColumn:
    """Value, bounds and draw variance of the rows so far; of the last three only from the first that needs them on."""

    def __init__(self) -> None:
        self._value, self._low, self._high = array("d"), array("d"), array("d")
        self._variance = array("d")

    def put(self, at: int, number: IdentifiedInterval) -> None:
        value = self._value
        if len(value) < at:
            value.extend([math.nan] * (at - len(value)))
        low, high, variance = number.low, number.high, number.draw_variance
        if self._low or not number.value == low == high:
            for column, end in ((self._low, low), (self._high, high)):
                column.extend(value[len(column) : at])
                column.append(end)
        if variance != 0:
            self._variance.extend([0.0] * (at - len(self._variance)))
            self._variance.append(math.nan if variance is None else variance)
        value.append(math.nan if number.value is None else number.value)

    def filled(self, n: int) -> dict[str, Floats]:
        columns = {"value": _padded(self._value, n, math.nan, np.float64)}
        if self._low:
            columns["low"] = _padded(self._low, n, math.nan, np.float64)
            columns["high"] = _padded(self._high, n, math.nan, np.float64)
        if self._variance:
            columns["draw_variance"] = _padded(self._variance, n, 0.0, np.float64)
        return columns


def _padded(column: array[Any], n: int, fill: float, dtype: type[Any]) -> NDArray[Any]:
    full = np.full(n, fill, dtype=dtype)
    full[: len(column)] = np.frombuffer(column, dtype=dtype)
    return full


@dataclass
class Table:
    """A model's rows on one suite as columns.

    Parameters
    ----------
    data : polars.DataFrame
        As `TableBuilder` makes it: ``item_id``, ``missing`` (why there is no answer, else null), ``sources``; for each
        factor its level codes (-1: the row does not have it); for each quantity its numbers (NaN: the row does not have
        it); for each membership its levels. `frame` is the form for readers.
    levels : mapping of str to list
        The levels of each factor, in order of their codes.
    present : array (n,), optional
        Rows that exist: False where only another model was asked (`aligned`). Default: all.
    """

    data: pl.DataFrame
    levels: dict[str, list[Factor]]
    present: Bools = field(default_factory=lambda: np.empty(0, dtype=np.bool_))

    def __post_init__(self) -> None:
        if not self.present.size:
            self.present = np.ones(len(self.data), dtype=np.bool_)
        self._codes: dict[str, Codes] = {}
        self._quantities: dict[str, Quantity] = {}
        self._masks: dict[tuple[str, int], Bools] = {}
        self._index: dict[str, int] | None = None
        reasons = self.data["missing"]
        self.missing: Bools = ~reasons.is_null().to_numpy() & self.present
        self.answered: Bools = self.present & ~self.missing

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Table:
        """The table of these rows."""
        builder = TableBuilder()
        for row in rows:
            builder.add(row)
        return builder.build()

    def __len__(self) -> int:
        return len(self.data)

    @property
    def ids(self) -> list[str]:
        """The rows' items, in order."""
        return list(self.index)

    @property
    def index(self) -> Mapping[str, int]:
        """The position of each item."""
        if self._index is None:
            self._index = {item: at for at, item in enumerate(self.data["item_id"].to_list())}
        return self._index

    @property
    def factors(self) -> list[str]:
        """The names of the factors."""
        return _named("factor.", self.data.columns)

    @property
    def quantities(self) -> list[str]:
        """The names of the quantities."""
        return _named("value.", self.data.columns)

    @property
    def memberships(self) -> list[str]:
        """The factors to several levels of which a row may belong."""
        return _named("membership.", self.data.columns)

    # -- columns -------------------------------------------------------------------------------

    def quantity(self, name: str) -> Quantity:
        """A quantity by name; all NaN if no row has it."""
        if (found := self._quantities.get(name)) is None:
            value, low, high, variance = (self._floats(part, name) for part in _PARTS)
            if value is None:
                value = np.full(len(self), np.nan)
            bounds = (value, value) if low is None or high is None else (low, high)
            found = self._quantities[name] = Quantity(value, *bounds, variance)
        return found

    def _floats(self, part: str, name: str) -> Floats | None:
        column = f"{part}.{name}"
        return self.data[column].to_numpy() if column in self.data.columns else None

    def has(self, name: str) -> Bools:
        """Rows (n,) that have the quantity, if only by bounds."""
        return np.isfinite(self.quantity(name).low)

    def codes(self, factor: str) -> Codes:
        """Level codes (n,) of a factor, -1 where a row does not have it."""
        if (found := self._codes.get(factor)) is None:
            column = f"factor.{factor}"
            is_there = column in self.data.columns
            found = self.data[column].to_numpy().astype(np.intp) if is_there else np.full(len(self), -1)
            self._codes[factor] = found
        return found

    def find(self, factor: str, level: Factor) -> int | None:
        """The code of a level; None if the factor does not have it."""
        key = level_key(level)
        return next((code for code, known in enumerate(self.levels.get(factor, ())) if level_key(known) == key), None)

    def matching(self, where: Mapping[str, Factor]) -> Bools:
        """Rows (n,) whose factors equal ``where``. A row without a named factor does not match."""
        mask = self.present.copy()
        for factor, level in where.items():
            if (code := self.find(factor, level)) is None:
                return np.zeros(len(self), dtype=np.bool_)
            if (of_level := self._masks.get((factor, code))) is None:
                of_level = self._masks[factor, code] = self.codes(factor) == code
            mask &= of_level
        return mask

    def missing_for(self, is_meant: Callable[[str], bool]) -> Bools:
        """Rows (n,) without an answer for a reason that is meant."""
        reasons = self.data["missing"]
        meant = [reason for reason in reasons.unique().to_list() if reason is not None and is_meant(reason)]
        return reasons.is_in(meant).fill_null(False).to_numpy()

    def belongs(self, factor: str, used: Bools) -> tuple[Floats, list[str]]:
        """Indicators (used, G): 1 where a used row (n,) belongs to a level; and the levels (G,), in order."""
        column = f"membership.{factor}"
        lists = self.data[column].to_list() if column in self.data.columns else [None] * len(self)
        of_used = [lists[at] or () for at in np.flatnonzero(used).tolist()]
        place = {level: at for at, level in enumerate(dict.fromkeys(chain.from_iterable(of_used)))}
        belongs = np.zeros((len(of_used), len(place)))
        for at, levels in enumerate(of_used):
            belongs[at, [place[level] for level in levels]] = 1.0
        return belongs, list(place)

    # -- rows ----------------------------------------------------------------------------------

    def rows(self) -> Sequence[Row]:
        """The rows, each made when it is read."""
        return _Rows(self)

    def slice(self, start: int, stop: int) -> list[Row]:
        """Rows from ``start`` to before ``stop``."""
        part = self.data[start:stop]
        size = len(part)
        factors: list[dict[str, Factor]] = [{} for _ in range(size)]
        for name in self.factors:
            levels = self.levels[name]
            for of_row, code in zip(factors, part[f"factor.{name}"].to_list(), strict=True):
                if code >= 0:
                    of_row[name] = levels[code]
        values: list[dict[str, IdentifiedInterval]] = [{} for _ in range(size)]
        for name in self.quantities:
            for of_row, number in zip(values, self._numbers(name, start, stop), strict=True):
                if number is not None:
                    of_row[name] = number
        memberships: list[dict[str, tuple[str, ...]]] = [{} for _ in range(size)]
        for name in self.memberships:
            for of_row, members in zip(memberships, part[f"membership.{name}"].to_list(), strict=True):
                if members is not None:
                    of_row[name] = tuple(members)
        ids, missing, sources = (part[name].to_list() for name in ("item_id", "missing", "sources"))
        return [
            Row(ids[at], factors[at], values[at], missing[at], tuple(sources[at] or ()), memberships[at])
            for at in range(size)
        ]

    def _numbers(self, name: str, start: int, stop: int) -> Iterator[IdentifiedInterval | None]:
        quantity = self.quantity(name)
        columns = [column[start:stop].tolist() for column in quantity[:3]]
        variances = [0.0] * len(columns[0])
        if quantity.draw_variance is not None:
            variances = quantity.draw_variance[start:stop].tolist()
        for value, low, high, variance in zip(*columns, variances, strict=True):
            known = None if math.isnan(variance) else variance
            yield None if math.isnan(low) else IdentifiedInterval(_or_none(value), low, high, known)

    # -- forms outside of the process ------------------------------------------------------------

    def frame(self) -> pl.DataFrame:
        """The table as readers know it.

        ``item_id``, ``missing``, a column for each factor with its levels, for each quantity ``NAME`` (null where only
        bounds are known), ``NAME.low``, ``NAME.high`` and ``NAME.draw_variance`` where some row has bounds or draws;
        then ``sources`` and the memberships. A factor whose name is that of another column is ``factor.NAME``.
        """
        import polars as pl

        data = self.data
        numbers = {
            name if part == "value" else f"{name}.{part}": data[column].fill_nan(None)
            for name in self.quantities
            for part in _PARTS
            if (column := f"{part}.{name}") in data.columns
        }
        members = {f"membership.{name}": data[f"membership.{name}"] for name in self.memberships}
        taken = {"item_id": data["item_id"], "missing": data["missing"]}
        beside = {**numbers, "sources": data["sources"], **members}
        factors = {
            f"factor.{name}" if name in taken or name in beside else name: self._decoded(name) for name in self.factors
        }
        return pl.DataFrame({**taken, **factors, **beside})

    def _decoded(self, factor: str) -> list[Factor]:
        """The level of each row (n), as text if levels are of several kinds; None where it has none."""
        levels = self.levels[factor]
        if len({type(level) for level in levels} - {type(None)}) > 1:
            levels = [None if level is None else str(level) for level in levels]
        of_codes = [*levels, None]  # -1 takes the last
        return [of_codes[code] for code in self.data[f"factor.{factor}"].to_list()]

    def to_bytes(self) -> bytes:
        """The table as bytes: its levels as JSON, then the compressed columns."""
        header = json.dumps(self.levels).encode()
        columns = io.BytesIO()
        self.data.write_ipc(columns, compression="zstd")
        return len(header).to_bytes(_HEADER_SIZE, "little") + header + columns.getvalue()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Table:
        """The table that `to_bytes` wrote."""
        import polars as pl

        end = _HEADER_SIZE + int.from_bytes(stored[:_HEADER_SIZE], "little")
        levels = json.loads(stored[_HEADER_SIZE:end])
        return cls(pl.read_ipc(io.BytesIO(stored[end:])), levels)


class _Rows(Sequence[Row]):
    """A table read row by row; the last few are kept."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._start, self._made = 0, []  # type: tuple[int, list[Row]]

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        if not self._start <= at < self._start + len(self._made):
            self._start = at - at % _ROWS_AT_ONCE
            self._made = self._table.slice(self._start, self._start + _ROWS_AT_ONCE)
        return self._made[at - self._start]

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), _ROWS_AT_ONCE):
            yield from self._table.slice(start, start + _ROWS_AT_ONCE)


def aligned(tables: Sequence[Table]) -> list[Table]:
    """The tables over all their items, in order of first appearance, with the same codes for the same levels.

    A row that only another table has is not ``present``: it has no value and matches no condition.
    """
    first = tables[0]
    if all(table is first or (table.levels == first.levels and table.ids == first.ids) for table in tables):
        return list(tables)
    ids = list(dict.fromkeys(chain.from_iterable(table.ids for table in tables)))
    codes: dict[str, dict[LevelKey, int]] = {}
    for table in tables:
        for name, levels in table.levels.items():
            shared = codes.setdefault(name, {})
            for level in levels:
                shared.setdefault(level_key(level), len(shared))
    levels = {name: [level for _, level in shared] for name, shared in codes.items()}
    return [_over(table, ids, codes, levels) for table in tables]


def _over(
    table: Table, ids: Sequence[str], codes: Mapping[str, Mapping[LevelKey, int]], levels: dict[str, list[Factor]]
) -> Table:
    """The table over these items, with these codes."""
    import polars as pl

    n = len(table)
    places = np.array([table.index.get(item, n) for item in ids], dtype=np.int64)
    padded = pl.concat([table.data, table.data.clear(1)])[places]  # where it has no row: the last one, all null
    numbers = [pl.col(name).fill_null(math.nan) for name in table.data.columns if name.partition(".")[0] in _PARTS]
    recoded = []
    for name in table.factors:
        own = np.array([*(codes[name][level_key(level)] for level in table.levels[name]), -1], dtype=np.int32)
        recoded.append(pl.Series(f"factor.{name}", own[padded[f"factor.{name}"].fill_null(-1).to_numpy()]))
    data = padded.with_columns(pl.Series("item_id", ids, dtype=pl.String), *numbers, *recoded)
    present = places < n
    present[present] = table.present[places[present]]
    return Table(data, levels, present)


def _named(prefix: str, columns: Sequence[str]) -> list[str]:
    return [name.removeprefix(prefix) for name in columns if name.startswith(prefix)]


def _or_none(number: float) -> float | None:
    return None if number != number else number

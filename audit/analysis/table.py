"""The one columnar table between suites and report: a model's rows on a suite, as a polars frame.

polars rather than pandas: imported in 0.2 s of CPU and 35 MB (pandas 0.35 s, 43 MB), and it reads and writes compressed
tables by itself (pandas needs pyarrow for that). It is imported when a table is built, not with this module.
"""

from __future__ import annotations

import io
import json
import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from suites.base import RUN, Factor, Family, IdentifiedInterval, Row

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Bools = NDArray[np.bool_]

#: The reason of a row that has neither a value nor a reason.
NO_VALUE = "no value"
#: Rows that are made at once when a table is read row by row.
_ROWS_AT_ONCE = 1024
#: The columns of a quantity, "value.NAME"…; the last three only where some row needs them.
_PARTS = ("value", "low", "high", "draw_variance")
_HEADER_SIZE = 8

#: Rows of which figures' groups are kept: of each some 100 bytes.
_MOST_CACHED = 500_000

LevelKey = tuple[bool, Factor]
T = TypeVar("T")


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


def level_key(level: Factor) -> LevelKey:
    """A level as a key: True differs from 1, although Python considers them equal."""
    return isinstance(level, bool), level


class TableBuilder:
    """Collects rows as columns. ``families``: as in `suites.base.Suite`."""

    def __init__(self, families: Mapping[str, Family] | None = None) -> None:
        self._families = dict(families or {})
        self._ids: dict[str, int] = {}
        self._keys: list[str] = []
        self._missing: list[str | None] = []
        self._sources: list[tuple[str, ...] | None] = []
        self._factors: dict[str, _FactorColumn] = {}
        self._numbers: dict[str, _NumberColumn] = {}
        self._memberships: dict[str, list[tuple[str, ...] | None]] = {}

    def add(self, row: Row, key: str = "") -> None:
        """Add a row. ``key``: under which its answer is stored; empty for one that is derived from others.

        Raises
        ------
        ValueError
            If there is one of this item already.
        """
        at = len(self._missing)
        if self._ids.setdefault(row.item_id, at) != at:
            raise ValueError(f"item {row.item_id!r} has more than one row")
        self._keys.append(key)
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
            "key": pl.Series(self._keys, dtype=pl.String),
            "missing": pl.Series(self._missing, dtype=pl.String),
            "sources": pl.Series(self._sources, dtype=pl.List(pl.String)),
        }
        for name, factor in self._factors.items():
            columns[f"factor.{name}"] = pl.Series(_padded(factor.codes, n, -1, np.int32))
        for name, number in self._numbers.items():
            columns |= {f"{part}.{name}": pl.Series(column) for part, column in number.filled(n).items()}
        for name, members in self._memberships.items():
            padded = members + [None] * (n - len(members))
            columns[f"membership.{name}"] = pl.Series(padded, dtype=pl.List(pl.String))
        levels = {name: [level for _, level in factor.levels] for name, factor in self._factors.items()}
        return Table(pl.DataFrame(columns), levels, self._families)


class _FactorColumn:
    """Level codes of the rows so far, in order of first appearance."""

    def __init__(self) -> None:
        self.levels: dict[LevelKey, int] = {}
        self.codes = array("i")

    def put(self, at: int, level: Factor) -> None:
        if len(self.codes) < at:
            self.codes.extend([-1] * (at - len(self.codes)))
        known = math.nan if level != level else level  # else no two of them are equal
        self.codes.append(self.levels.setdefault((known is True or known is False, known), len(self.levels)))


class _NumberColumn:
    """Value, bounds and draw variance of the rows so far; of the last three only from the first that needs them on."""

    def __init__(self) -> None:
        self._value, self._low, self._high, self._variance = array("d"), array("d"), array("d"), array("d")

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
        As `TableBuilder` makes it: ``item_id``, ``key``, ``missing`` (why there is no answer, else null), ``sources``;
        for each factor its level codes (-1: the row does not have it); for each quantity its numbers (NaN: the row does
        not have it); for each membership its levels. `frame` is the form for readers.
    levels : mapping of str to list
        The levels of each factor, in order of their codes.
    families : mapping of str to Family
        The coarser factor above a factor or membership: `suites.base.Suite.families`.
    present : array (n,), optional
        Rows that exist: False where only another model was asked (`aligned`). Default: all.
    """

    data: pl.DataFrame
    levels: dict[str, list[Factor]]
    families: dict[str, Family] = field(default_factory=dict)
    present: Bools = field(default_factory=lambda: np.empty(0, dtype=np.bool_))

    def __post_init__(self) -> None:
        if not self.present.size:
            self.present = np.ones(len(self.data), dtype=np.bool_)
        self._codes: dict[str, Codes] = {}
        self._quantities: dict[str, Quantity] = {}
        self._masks: dict[tuple[str, int], Bools] = {}
        self._places: dict[str, dict[LevelKey, int]] = {}
        self._index: dict[str, int] | None = None
        self._cache: dict[Hashable, Any] = {}
        self._cached = 0
        self.missing: Bools = self.data["missing"].is_not_null().to_numpy() & self.present
        self.answered: Bools = self.present & ~self.missing

    @classmethod
    def of(cls, rows: Iterable[Row], families: Mapping[str, Family] | None = None) -> Table:
        """The table of these rows."""
        builder = TableBuilder(families)
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
    def keys(self) -> list[str]:
        """The key of each row's answer; empty for derived rows."""
        found: list[str] = self.data["key"].to_list()
        return found

    def named(self, prefix: str) -> list[str]:
        """The names of the factors ("factor"), quantities ("value") or memberships ("membership")."""
        return [name[len(prefix) + 1 :] for name in self.data.columns if name.startswith(f"{prefix}.")]

    # -- columns -------------------------------------------------------------------------------

    def quantity(self, name: str) -> Quantity:
        """A quantity by name; all NaN if no row has it."""
        if (found := self._quantities.get(name)) is None:
            columns = [f"{part}.{name}" for part in _PARTS]
            value, low, high, variance = (
                self.data[column].to_numpy() if column in self.data.columns else None for column in columns
            )
            value = np.full(len(self), np.nan) if value is None else value
            bounds = (value, value) if low is None or high is None else (low, high)
            found = self._quantities[name] = Quantity(value, *bounds, variance)
        return found

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

    def cluster_codes(self, factor: str) -> tuple[str, Codes]:
        """What intervals cluster by in place of a factor: its name and codes (n,), the family's if it has one."""
        family = self.families.get(factor)
        if family is None:
            return factor, self.codes(factor)
        numbers: dict[tuple[bool, LevelKey], int] = {}  # a level without a family is one of its own
        of_level = [
            (True, level_key(family.of[level])) if level in family.of else (False, level_key(level))
            for level in self.levels.get(factor, ())
        ]
        own = np.array([*(numbers.setdefault(one, len(numbers)) for one in of_level), -1], dtype=np.intp)
        return family.name, own[self.codes(factor)]

    def find(self, factor: str, level: Factor) -> int | None:
        """The code of a level; None if the factor does not have it."""
        if (codes := self._places.get(factor)) is None:
            levels = self.levels.get(factor, ())
            codes = self._places[factor] = {level_key(known): code for code, known in enumerate(levels)}
        return codes.get(level_key(level))

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
        return np.asarray(reasons.is_in(meant).fill_null(False).to_numpy())

    def belongs(self, membership: str, used: Bools) -> tuple[str, Floats]:
        """What intervals cluster by in place of a membership, as `cluster_codes`: its name, and indicators (used, G)
        that are 1 where a used row (n,) belongs to a level; for the levels that occur."""
        column, family = f"membership.{membership}", self.families.get(membership)
        lists = self.data[column].to_list() if column in self.data.columns else [None] * len(self)
        of_used = [lists[at] or () for at in np.flatnonzero(used).tolist()]
        if family is not None:
            of_used = [[str(family.of.get(level, level)) for level in levels] for levels in of_used]
        place = {level: at for at, level in enumerate(dict.fromkeys(chain.from_iterable(of_used)))}
        belongs = np.zeros((len(of_used), len(place)))
        for at, levels in enumerate(of_used):
            belongs[at, [place[level] for level in levels]] = 1.0
        return membership if family is None else family.name, belongs

    def cached(self, key: Hashable, make: Callable[[], T], size: int) -> T:
        """What ``make`` gives of so many rows, kept under a key for the figures that share it."""
        if key not in self._cache:
            if self._cached + size > _MOST_CACHED:
                self._cache.clear()
                self._cached = 0
            self._cache[key] = make()
            self._cached += size
        found: T = self._cache[key]
        return found

    # -- rows ----------------------------------------------------------------------------------

    def rows(self) -> Sequence[Row]:
        """The rows, each made when it is read."""
        return _Rows(self)

    def slice(self, start: int, stop: int) -> list[Row]:
        """Rows from ``start`` to before ``stop``."""
        part = self.data[start:stop]
        size = len(part)
        factors: list[dict[str, Factor]] = [{} for _ in range(size)]
        for name in self.named("factor"):
            levels = self.levels[name]
            for of_row, code in zip(factors, part[f"factor.{name}"].to_list(), strict=True):
                if code >= 0:
                    of_row[name] = levels[code]
        values: list[dict[str, IdentifiedInterval]] = [{} for _ in range(size)]
        for name in self.named("value"):
            for known, number in zip(values, self._numbers(name, start, stop), strict=True):
                if number is not None:
                    known[name] = number
        memberships: list[dict[str, tuple[str, ...]]] = [{} for _ in range(size)]
        for name in self.named("membership"):
            for belongs, members in zip(memberships, part[f"membership.{name}"].to_list(), strict=True):
                if members is not None:
                    belongs[name] = tuple(members)
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
            known = None if variance != variance else variance
            yield None if low != low else IdentifiedInterval(None if value != value else value, low, high, known)

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
            for name in self.named("value")
            for part in _PARTS
            if (column := f"{part}.{name}") in data.columns
        }
        members = {f"membership.{name}": data[f"membership.{name}"] for name in self.named("membership")}
        first = {"item_id": data["item_id"], "missing": data["missing"]}
        last = {**numbers, "sources": data["sources"], **members}
        factors = {
            f"factor.{name}" if name in first or name in last else name: self._decoded(name)
            for name in self.named("factor")
        }
        return pl.DataFrame({**first, **factors, **last})

    def _decoded(self, factor: str) -> list[Factor]:
        """The level of each row (n), as text if levels are of several kinds; None where it has none."""
        levels = self.levels[factor]
        if len({type(level) for level in levels} - {type(None)}) > 1:
            levels = [None if level is None else str(level) for level in levels]
        of_codes = [*levels, None]  # -1 takes the last
        return [of_codes[code] for code in self.data[f"factor.{factor}"].to_list()]

    def to_bytes(self) -> bytes:
        """The table as bytes: its levels and families as JSON, then the compressed columns."""
        families = {factor: [family.name, list(family.of.items())] for factor, family in self.families.items()}
        header = json.dumps([self.levels, families]).encode()
        columns = io.BytesIO()
        self.data.write_ipc(columns, compression="zstd")
        return len(header).to_bytes(_HEADER_SIZE, "little") + header + columns.getvalue()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Table:
        """The table that `to_bytes` wrote."""
        import polars as pl

        end = _HEADER_SIZE + int.from_bytes(stored[:_HEADER_SIZE], "little")
        levels, families = json.loads(stored[_HEADER_SIZE:end])
        read = {factor: Family(name, dict(of)) for factor, (name, of) in families.items()}
        return cls(pl.read_ipc(io.BytesIO(stored[end:])), levels, read)

    @classmethod
    def of_runs(cls, tables: Sequence[Table]) -> Table:
        """The tables of several runs, each of the same questions asked afresh, as one with the factor `RUN`.

        Items of the second run and later are ``ITEM~2``, ``ITEM~3``…; with one table that table.
        """
        import polars as pl

        if len(tables) == 1:
            return tables[0]
        levels = _shared_levels(tables)
        parts = []
        for run, table in enumerate(tables, 1):
            data = table.data.with_columns(*_recoded(table, levels), pl.lit(run - 1, pl.Int32).alias(f"factor.{RUN}"))
            if run > 1:
                renamed = pl.col("sources").list.eval(pl.element() + f"~{run}")
                data = data.with_columns(pl.col("item_id") + f"~{run}", renamed)
            parts.append(data)
        numbered: list[Factor] = list(range(1, len(tables) + 1))
        return cls(_without_nulls(pl.concat(parts, how="diagonal")), {**levels, RUN: numbered}, tables[0].families)

    def n_questions(self, used: Bools) -> int:
        """How many questions the used rows (n,) are of: one that was asked in several runs counts once."""
        if RUN not in self.levels:
            return int(used.sum())
        ids = self.data["item_id"].filter(used).str.replace(r"~\d+$", "")
        return int(ids.n_unique())


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
    import polars as pl

    first = tables[0]
    if all(table is first or (table.levels == first.levels and table.ids == first.ids) for table in tables):
        return list(tables)
    ids = list(dict.fromkeys(chain.from_iterable(table.index for table in tables)))
    levels = _shared_levels(tables)
    families = {name: family for table in tables for name, family in table.families.items()}
    found = []
    for table in tables:
        n = len(table)
        places = np.array([table.index.get(item, n) for item in ids], dtype=np.int64)
        data = table.data.with_columns(_recoded(table, levels))
        data = pl.concat([data, data.clear(1)])[places]  # where it has no row: the last one, all null
        data = _without_nulls(data.with_columns(pl.Series("item_id", ids, dtype=pl.String)))
        present = places < n
        present[present] = table.present[places[present]]
        found.append(Table(data, levels, families, present))
    return found


def _shared_levels(tables: Sequence[Table]) -> dict[str, list[Factor]]:
    """All levels of each factor, in order of first appearance."""
    shared: dict[str, dict[LevelKey, Factor]] = {}
    for table in tables:
        for name, levels in table.levels.items():
            for level in levels:
                shared.setdefault(name, {}).setdefault(level_key(level), level)
    return {name: list(levels.values()) for name, levels in shared.items()}


def _recoded(table: Table, levels: Mapping[str, Sequence[Factor]]) -> list[pl.Series]:
    """The table's factors in codes of these levels."""
    import polars as pl

    found = []
    for name, own in table.levels.items():
        place = {level_key(level): code for code, level in enumerate(levels[name])}
        codes = np.array([*(place[level_key(level)] for level in own), -1], dtype=np.int32)
        found.append(pl.Series(f"factor.{name}", codes[table.codes(name)]))
    return found


def _without_nulls(data: pl.DataFrame) -> pl.DataFrame:
    """The columns with NaN for numbers, and -1 for levels, that are not there."""
    import polars as pl

    variances = [name for name in data.columns if name.startswith("draw_variance.")]
    numbers = [name for name in data.columns if name.partition(".")[0] in ("value", "low", "high")]
    for end in ("low", "high"):  # exact in one of several tables: there the bounds are the value
        exact = [name for name in data.columns if name.startswith(f"{end}.")]
        data = data.with_columns(pl.col(name).fill_null(pl.col("value." + name.partition(".")[2])) for name in exact)
    return data.with_columns(
        *(pl.col(name).fill_null(math.nan) for name in numbers),
        *(pl.col(name).fill_null(0.0) for name in variances),
        *(pl.col(name).fill_null(-1) for name in data.columns if name.startswith("factor.")),
        pl.col("key").fill_null(""),
    )

"""The one columnar table between suites and report: a model's rows on a suite, as a polars frame.

polars rather than pandas: imported in 0.2 s of CPU and 35 MB (pandas 0.35 s, 43 MB), and it reads and writes compressed
tables by itself (pandas needs pyarrow for that). It is imported when a table is built, not with this module.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from audit.results.figures import level_key
from suites.base import RUN, Factor, Family, IdentifiedInterval, Row

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Bools = NDArray[np.bool_]

#: The reason of a row that has neither a value nor a reason.
NO_VALUE = "no value"
#: The columns of a quantity, "value.NAME"…; the last three only where some row needs them.
_PARTS = ("value", "low", "high", "draw_variance")
#: What stands beside a table in the files and frames that hold several.
_BESIDE = ("run", "model", "suite", "derived", "prompt", "answers")
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

    def of(self, used: Bools) -> Quantity:
        """Of the used rows (n,) alone."""
        if used.all():
            return self
        value = self.value[used]
        low = value if self.low is self.value else self.low[used]
        high = value if self.high is self.value else self.high[used]
        return Quantity(value, low, high, None if self.draw_variance is None else self.draw_variance[used])

    @property
    def is_exact(self) -> bool:
        """Whether every value is known."""
        return self.low is self.high or np.array_equal(self.low, self.high)


@dataclass
class Table:
    """A model's rows on one suite as columns.

    Parameters
    ----------
    data : polars.DataFrame
        As `of` makes it: ``item_id``, ``missing`` (why there is no answer, else null), ``sources``; for each factor its
        level codes; for each quantity its numbers (null: the row does not have it, and bounds: they are its value); for
        each membership its levels. `frame` is the form for readers.
    levels : mapping of str to list
        The levels of each factor, in order of their codes.
    families : mapping of str to Family
        The coarser factor above a factor or membership: `suites.base.Suite.families`.
    present : array (n,), optional
        Rows that exist: False where only another model was asked (`aligned`). Default: all.
    """

    data: pl.DataFrame
    levels: dict[str, list[Factor]]
    families: Mapping[str, Family] = field(default_factory=dict)
    present: Bools = field(default_factory=lambda: np.empty(0, dtype=np.bool_))

    def __post_init__(self) -> None:
        if not self.present.size:
            self.present = np.ones(len(self.data), dtype=np.bool_)
        self._codes: dict[str, Codes] = {}
        self._quantities: dict[str, Quantity] = {}
        self._cache: dict[Hashable, Any] = {}
        self.missing: Bools = self.data["missing"].is_not_null().to_numpy() & self.present
        self.answered: Bools = self.present & ~self.missing

    @classmethod
    def of(cls, rows: Iterable[Row], families: Mapping[str, Family] | None = None) -> Table:
        """The table of these rows. ``families``: as in `suites.base.Suite`.

        Raises
        ------
        ValueError
            If two are of the same item.
        """
        import polars as pl

        rows = list(rows)
        ids = [row.item_id for row in rows]
        if len(set(ids)) < len(ids):
            raise ValueError(f"item {Counter(ids).most_common(1)[0][0]!r} has more than one row")
        missing = [row.missing if row.values or row.missing else NO_VALUE for row in rows]
        columns: dict[str, pl.Series] = {
            "item_id": pl.Series(ids, dtype=pl.String),
            "missing": pl.Series(missing, dtype=pl.String),
            "sources": pl.Series([row.sources or None for row in rows], dtype=pl.List(pl.String)),
        }
        levels: dict[str, list[Factor]] = {}
        for name in dict.fromkeys(chain.from_iterable(row.factors for row in rows)):
            codes, levels[name] = _coded([row.factors.get(name, _ABSENT) for row in rows])
            columns[f"factor.{name}"] = pl.Series(codes, dtype=pl.Int32)
        for name in dict.fromkeys(chain.from_iterable(row.values for row in rows)):
            for part, numbers in _numbers([row.values.get(name) for row in rows]).items():
                columns[f"{part}.{name}"] = pl.Series(numbers)
        for name in dict.fromkeys(chain.from_iterable(row.memberships for row in rows)):
            columns[f"membership.{name}"] = pl.Series(
                [row.memberships.get(name) for row in rows], dtype=pl.List(pl.String)
            )
        return cls(pl.DataFrame(columns), levels, families or {})

    def __len__(self) -> int:
        return len(self.data)

    @property
    def ids(self) -> list[str]:
        """The rows' items, in order."""
        return list(self.data["item_id"].to_list())

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The position of each item."""
        return {item: at for at, item in enumerate(self.data["item_id"].to_list())}

    def named(self, prefix: str) -> list[str]:
        """The names of the factors ("factor"), quantities ("value") or memberships ("membership")."""
        return [name[len(prefix) + 1 :] for name in self.data.columns if name.startswith(f"{prefix}.")]

    # -- columns -------------------------------------------------------------------------------

    def quantity(self, name: str) -> Quantity:
        """A quantity by name; all NaN if no row has it."""
        if (found := self._quantities.get(name)) is None:
            value, *bounds, drawn = (self._column(part, name) for part in _PARTS)
            values = np.full(len(self), np.nan) if value is None else value.to_numpy()
            low, high = (values if end is None else end.to_numpy() for end in bounds)
            found = Quantity(values, low, high, None if drawn is None else drawn.fill_null(0.0).to_numpy())
            self._quantities[name] = found
        return found

    def _column(self, part: str, name: str) -> pl.Series | None:
        """A column of a quantity. A bound that is not there is the value."""
        if f"{part}.{name}" not in self.data.columns:
            return None
        column = self.data[f"{part}.{name}"]
        return column.fill_null(self.data[f"value.{name}"]) if part in ("low", "high") else column

    def has(self, name: str) -> Bools:
        """Rows (n,) that have the quantity, if only by bounds."""
        return np.isfinite(self.quantity(name).low)

    def codes(self, factor: str) -> Codes:
        """Level codes (n,) of a factor, -1 where a row does not have it."""
        if (found := self._codes.get(factor)) is None:
            column = f"factor.{factor}"
            is_there = column in self.data.columns
            found = self.data[column].fill_null(-1).to_numpy().astype(np.intp) if is_there else np.full(len(self), -1)
            self._codes[factor] = found
        return found

    def cluster_codes(self, factor: str) -> tuple[str, Codes]:
        """What intervals cluster by in place of a factor: its name and codes (n,), the family's if it has one."""
        if (family := self.families.get(factor)) is None:
            return factor, self.codes(factor)
        return family.name, self.cached(("family", factor), lambda: self._family_codes(factor, family))

    def _family_codes(self, factor: str, family: Family) -> Codes:
        numbers: dict[tuple[bool, LevelKey], int] = {}  # a level without a family is one of its own
        keys = [(of in family.of, level_key(family.of.get(of, of))) for of in self.levels.get(factor, ())]
        own = np.array([*(numbers.setdefault(key, len(numbers)) for key in keys), -1], dtype=np.intp)
        return own[self.codes(factor)]

    def find(self, factor: str, level: Factor) -> int | None:
        """The code of a level; None if the factor does not have it."""
        keys = self.cached(("find", factor), lambda: _places(self.levels.get(factor, ())))
        return keys.get(level_key(level))

    def matching(self, where: Mapping[str, Factor]) -> Bools:
        """Rows (n,) whose factors equal ``where``. A row without a named factor does not match."""
        mask = self.present.copy()
        for factor, level in where.items():
            code = self.find(factor, level)
            mask &= self.codes(factor) == (-2 if code is None else code)  # no row has -2
        return mask

    def missing_for(self, reasons: Collection[str]) -> Bools:
        """Rows (n,) without an answer for one of these reasons."""
        return np.asarray(self.data["missing"].is_in(list(reasons)).fill_null(False).to_numpy())

    def belongs(self, membership: str, used: Bools) -> tuple[str, Floats]:
        """What intervals cluster by in place of a membership, as `cluster_codes`: its name, and indicators (used, G)
        that are 1 where a used row (n,) belongs to a level; for the levels that occur."""
        family = self.families.get(membership)
        lists = self.data.get_column(f"membership.{membership}", default=None)
        of_used: list[Sequence[str]] = [()] * int(used.sum())
        if lists is not None:
            of_used = [of or () for of in lists.filter(used).to_list()]
        if family is not None:
            of_used = [[str(family.of.get(level, level)) for level in levels] for levels in of_used]
        place = _places(dict.fromkeys(chain.from_iterable(of_used)))
        belongs = np.zeros((len(of_used), len(place)))
        for at, levels in enumerate(of_used):
            belongs[at, [place[level_key(level)] for level in levels]] = 1.0
        return membership if family is None else family.name, belongs

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, kept under a key for the figures that share it."""
        if key not in self._cache:
            if len(self._cache) * len(self) > _MOST_CACHED:
                self._cache.clear()
            self._cache[key] = make()
        found: T = self._cache[key]
        return found

    def only(self, rows: Bools) -> Table:
        """The table of these rows (n,) alone."""
        return self if rows.all() else Table(self.data.filter(rows), self.levels, self.families)

    def n_questions(self, used: Bools) -> int:
        """How many questions the used rows (n,) are of: one that was asked in several runs counts once."""
        if RUN not in self.levels:
            return int(used.sum())
        ids = self.data["item_id"].filter(used).str.replace(r"~\d+$", "")
        return int(ids.n_unique())

    # -- forms outside of the process ------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """The rows as a suite made them."""
        factors = {name: self._with_levels(name, self.levels[name], _ABSENT) for name in self.named("factor")}
        values = {name: self._intervals(name) for name in self.named("value")}
        members = {name: self.data[f"membership.{name}"].to_list() for name in self.named("membership")}
        columns = (self.data[name].to_list() for name in ("item_id", "missing", "sources"))
        for at, (item, missing, sources) in enumerate(zip(*columns, strict=True)):
            yield Row(
                item,
                {name: of[at] for name, of in factors.items() if of[at] is not _ABSENT},
                {name: number for name, of in values.items() if (number := of[at]) is not None},
                missing,
                tuple(sources or ()),
                {name: tuple(of[at]) for name, of in members.items() if of[at] is not None},
            )

    def factors_of(self, item: str) -> dict[str, Factor]:
        """The factors of an item's row; none if it has no row."""
        rows = [] if (at := self.index.get(item)) is None else [*Table(self.data[at], self.levels).rows()]
        return dict(rows[0].factors) if rows else {}

    def _with_levels(self, factor: str, levels: Sequence[Factor], absent: Any) -> list[Any]:
        """These levels in place of the factor's codes (n,)."""
        of_codes = [*levels, absent]  # -1 takes the last
        return [of_codes[code] for code in self.codes(factor).tolist()]

    def _intervals(self, name: str) -> list[IdentifiedInterval | None]:
        value, low, high, drawn = self.quantity(name)
        variances = np.zeros(len(self)) if drawn is None else drawn
        columns = [[None if n != n else n for n in column.tolist()] for column in (value, low, high, variances)]
        return [None if of[1] is None else IdentifiedInterval(*of) for of in zip(*columns, strict=True)]

    def frame(self) -> pl.DataFrame:
        """The table as readers know it.

        ``item``, ``missing``, a column for each factor with its levels, for each quantity ``NAME`` (null where only
        bounds are known), ``NAME.low``, ``NAME.high`` and ``NAME.draw_variance`` where some row has bounds or draws;
        then ``sources`` and the memberships. A factor whose name is that of another column is ``factor.NAME``. Its
        level "no such text" is "none"; levels of several kinds are text.
        """
        import polars as pl

        numbers = {
            name if part == "value" else f"{name}.{part}": column.fill_nan(None)
            for name in self.named("value")
            for part in _PARTS
            if (column := self._column(part, name)) is not None
        }
        members = {f"membership.{name}": self.data[f"membership.{name}"] for name in self.named("membership")}
        first = {"item": self.data["item_id"], "missing": self.data["missing"]}
        last = {**numbers, "sources": self.data["sources"], **members}
        taken = {*first, *last, *_BESIDE}
        factors = {f"factor.{name}" if name in taken else name: self._readable(name) for name in self.named("factor")}
        return pl.DataFrame({**first, **factors, **last})

    def _readable(self, factor: str) -> list[Factor]:
        levels: list[Factor] = ["none" if level is None else level for level in self.levels[factor]]
        if len({type(level) for level in levels}) > 1:
            levels = [str(level) for level in levels]
        return self._with_levels(factor, levels, None)

    def to_bytes(self) -> bytes:
        """The table as bytes: its levels and families as a line of JSON, then the compressed columns."""
        families = {factor: [family.name, list(family.of.items())] for factor, family in self.families.items()}
        columns = io.BytesIO()
        self.data.write_ipc(columns, compression="zstd")
        return json.dumps([self.levels, families]).encode() + b"\n" + columns.getvalue()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Table:
        """The table that `to_bytes` wrote."""
        import polars as pl

        header, _, columns = stored.partition(b"\n")
        levels, families = json.loads(header)
        read = {factor: Family(name, dict(of)) for factor, (name, of) in families.items()}
        return cls(pl.read_ipc(io.BytesIO(columns)), levels, read)

    @classmethod
    def of_runs(cls, tables: Sequence[Table]) -> Table:
        """The tables of several runs, each of the same questions asked afresh, as one with the factor `RUN`.

        Items of the second run and later are ``ITEM~2``, ``ITEM~3``…; with one table that table.
        """
        import polars as pl

        if len(tables) == 1:
            return tables[0]
        levels, parts = _recoded(tables)
        for at, data in enumerate(parts):
            parts[at] = data.with_columns(pl.lit(at, pl.Int32).alias(f"factor.{RUN}"))
            if at:
                renamed = pl.col("sources").list.eval(pl.element() + f"~{at + 1}")
                parts[at] = parts[at].with_columns(pl.col("item_id") + f"~{at + 1}", renamed)
        numbered: list[Factor] = list(range(1, len(tables) + 1))
        return cls(pl.concat(parts, how="diagonal"), {**levels, RUN: numbered}, tables[0].families)


#: The level of a row without the factor.
_ABSENT: Any = object()


def _coded(column: Sequence[Any]) -> tuple[list[int | None], list[Factor]]:
    """A factor's codes (n), in order of first appearance, and its levels."""
    codes: dict[LevelKey, int] = {}
    found: list[int | None] = []
    for level in column:
        key = level_key(math.nan if level != level else level)  # one NaN: else no two of them are equal
        found.append(None if level is _ABSENT else codes.setdefault(key, len(codes)))
    return found, [level for _, level in codes]


def _places(levels: Iterable[Factor]) -> dict[LevelKey, int]:
    """The position of each level."""
    return {level_key(level): at for at, level in enumerate(levels)}


def _numbers(column: Sequence[IdentifiedInterval | None]) -> dict[str, Floats]:
    """The columns of a quantity (n,) by their part, NaN where a row does not have it."""
    nan = math.nan
    numbers = [(nan,) * 4 if of is None else (of.value, of.low, of.high, of.draw_variance) for of in column]
    value, low, high, drawn = np.array(numbers, dtype=np.float64).reshape(-1, 4).T  # None is NaN
    found, is_there = {"value": value}, ~np.isnan(low)
    if not (np.array_equal(value, low, equal_nan=True) and np.array_equal(value, high, equal_nan=True)):
        found |= {"low": low, "high": high}
    if (drawn[is_there] != 0).any():
        found["draw_variance"] = np.where(is_there, drawn, 0.0)
    return found


def aligned(tables: Sequence[Table]) -> list[Table]:
    """The tables over all their items, in order of first appearance, with the same codes for the same levels.

    A row that only another table has is not ``present``: it has no value and matches no condition.
    """
    import polars as pl

    first = tables[0]
    if all(table is first or (table.levels == first.levels and table.ids == first.ids) for table in tables):
        return list(tables)
    ids = pl.concat([table.data["item_id"] for table in tables]).unique(maintain_order=True).to_frame()
    families = {name: family for table in tables for name, family in table.families.items()}
    levels, parts = _recoded(tables)
    found = []
    for table, own in zip(tables, parts, strict=True):
        own = own.with_columns(pl.Series("present", table.present))
        data = ids.join(own, on="item_id", how="left", maintain_order="left")
        present = data["present"].fill_null(False).to_numpy()
        found.append(Table(data.drop("present"), levels, families, present))
    return found


def _recoded(tables: Sequence[Table]) -> tuple[dict[str, list[Factor]], list[pl.DataFrame]]:
    """All levels of each factor, in order of first appearance; and each table's data with codes of these."""
    import polars as pl

    levels: dict[str, dict[LevelKey, int]] = {}
    found = []
    for table in tables:
        columns = []
        for name, own in table.levels.items():
            place = levels.setdefault(name, {})
            codes = [place.setdefault(level_key(level), len(place)) for level in own]
            code = pl.Series(f"factor.{name}", codes, dtype=pl.Int32)
            columns.append(code.gather(table.data[f"factor.{name}"]))
        found.append(table.data.with_columns(columns))
    return {name: [level for _, level in place] for name, place in levels.items()}, found

"""A figure's change on the questions that two runs share: did *these* get worse?

The questions are taken as they are. What is uncertain is how the model was heard: nothing where the same question has
the same answer every time (then the change is known exactly); else its draws and the noise of its engine, which the
changes of the single questions show, and the run's own shift where each question was asked in several runs.

A missing answer may be any value of the quantity's range (Horowitz and Manski 2000), so that the change has bounds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from audit.analysis.estimators.design import Design
from audit.analysis.figures import design_of, estimator_of, meant, undefined_strata
from audit.analysis.table import Bools, Floats, Table, aligned
from suites.base import RUN, MeasureSpec

Bounds = tuple[float, float]
#: (model, suite) → a run's table; None if it is no longer stored.
TableOf = Callable[[str, str], Table | None]
UNKNOWN: Bounds = (math.nan, math.nan)

#: With fewer shared questions in a stratum they decide nothing, unless they are all; and their noise is unknown.
_FEWEST = 5


class Noise(NamedTuple):
    """What a change is uncertain by.

    Attributes
    ----------
    se, base_se, df : float
        Standard errors of the run's and of the baseline's part, and their degrees of freedom. 0: known exactly.
    run_variance, base_run_variance : float
        Variance of the figure between the night's ``runs``, and between the baseline's.
    """

    se: float = 0.0
    base_se: float = 0.0
    df: float = math.inf
    run_variance: float = 0.0
    base_run_variance: float = 0.0
    runs: int = 1
    base_runs: int = 1

    @property
    def total(self) -> float:
        """Standard error of the change."""
        return math.hypot(self.se, self.base_se)

    @classmethod
    def of_runs(cls, before: Sequence[float], now: Sequence[float]) -> Noise:
        """From a figure's values in the runs of the baseline and in those of the night, which hold the items' noise."""
        base, own = float(np.var(before, ddof=1)), float(np.var(now, ddof=1))
        if math.isnan(base + own):  # a run without a value
            return cls(math.inf, math.inf)
        df = len(before) + len(now) - 2
        pooled = (base * (len(before) - 1) + own * (len(now) - 1)) / df
        ses = math.sqrt(pooled / len(now)), math.sqrt(pooled / len(before))
        return cls(*ses, df, own, base, len(now), len(before))


class Change(NamedTuple):
    """A figure's bounds before and now, whatever the missing answers are; those of the change; and its noise."""

    before: Bounds = UNKNOWN
    now: Bounds = UNKNOWN
    change: Bounds = UNKNOWN
    noise: Noise = Noise()

    @property
    def is_known(self) -> bool:
        """Whether there are bounds."""
        return not math.isnan(sum(self.change))


@dataclass(frozen=True)
class Shared:
    """A figure on the questions that two runs share: their `paired_tables`, and the rows (n,) of these.

    Attributes
    ----------
    asked : array (n,)
        Rows that both runs asked.
    unpaired : array (n,)
        Further ones that have a value by design in one run alone.
    is_all : bool
        Whether no further question of either run belongs to the figure.
    """

    tables: Sequence[Table]
    spec: MeasureSpec
    asked: Bools
    unpaired: Bools
    is_all: bool

    @property
    def answered(self) -> Bools:
        """Rows (n,) with a value in both."""
        before, now = (table.has(self.spec.quantity) for table in self.tables)
        return self.asked & before & now

    @property
    def n_missing(self) -> int:
        """How many questions lack an answer in some run."""
        return self.tables[0].n_questions(self.asked & ~self.answered)

    @property
    def is_enough(self) -> bool:
        """Whether the questions are enough to decide by."""
        return self.is_all or int(np.bincount(self._design(self.asked).strata).min()) >= _FEWEST

    @property
    def is_counted(self) -> bool:
        """Whether some value was counted from drawn answers."""
        variances = (table.quantity(self.spec.quantity).draw_variance for table in self.tables)
        return any(of is not None and np.any(of[self.asked] != 0) for of in variances)

    @property
    def names(self) -> str:
        """A hash of the questions."""
        return hash_of("\n".join(sorted(np.array(self.tables[0].ids, dtype=object)[self.asked].tolist())))

    @property
    def answers(self) -> str:
        """A hash of the questions and tonight's answers."""
        quantity = self.tables[1].quantity(self.spec.quantity)
        return hash_of(self.names, quantity.low[self.asked], quantity.high[self.asked])

    def change(self, rows: Bools, *, is_exact: bool) -> Change:
        """The change over these rows (n,). ``is_exact``: the same question has the same answer every time."""
        if not rows.any() or undefined_strata(self.tables[0], self.spec, rows):
            return Change()
        design = self._design(rows)
        bounds = estimator_of(self.spec).bounds
        was, is_now = (bounds(low, high, design) for low, high in self._ends(rows, self._limits))
        change = is_now[0] - was[1], is_now[1] - was[0]
        return Change(was, is_now, change, self._noise(rows, is_exact=is_exact))

    @property
    def _limits(self) -> Bounds:
        return self.spec.limits if self.spec.has_range else UNKNOWN

    def _design(self, rows: Bools) -> Design:
        """The strata of these rows (n,). The questions are no sample, so that there are no clusters."""
        return replace(design_of(self.tables[0], self.spec, rows), clusters={}, membership=None)

    def _ends(self, rows: Bools, limits: Bounds) -> list[tuple[Floats, Floats]]:
        """Of both runs, the bounds of these rows, with missing answers that may be anything within ``limits``."""
        found = []
        for table in self.tables:
            quantity = table.quantity(self.spec.quantity)
            ends = (end[rows] for end in (quantity.low, quantity.high))
            low, high = (np.where(np.isnan(end), limit, end) for end, limit in zip(ends, limits, strict=True))
            found.append((low, high))
        return found

    def _middles(self, rows: Bools) -> list[Floats]:
        middle = sum(self._limits) / 2
        return [(low + high) / 2 for low, high in self._ends(rows, (middle, middle))]

    def _noise(self, rows: Bools, *, is_exact: bool) -> Noise:
        runs = self.tables[0].codes(RUN)
        if (last := int(runs[rows].max())) > 0:
            of_runs = [rows & (runs == run) for run in range(last + 1)]
            values = [[self._value(of, own) for own in self._middles(of)] for of in of_runs]
            return Noise.of_runs(*zip(*values, strict=True))
        rows = rows & self.answered
        if is_exact:
            return Noise()
        if not rows.any() or undefined_strata(self.tables[0], self.spec, rows):
            return Noise(math.inf, math.inf)
        before, now = self._middles(rows)
        return noise_of(before, now, self._design(rows), self.spec)

    def _value(self, rows: Bools, values: Floats) -> float:
        return estimator_of(self.spec).bounds(values, values, self._design(rows))[0]


def noise_of(before: Floats, now: Floats, design: Design, spec: MeasureSpec) -> Noise:
    """The noise that the changes of single questions (n,) show; half of it is the baseline's."""
    se, df = math.inf, math.inf
    if int(np.bincount(design.strata).min()) >= _FEWEST:
        se, df = estimator_of(spec).noise(before, now, design)
    return Noise(se * math.sqrt(0.5), se * math.sqrt(0.5), df)


def harm_of(change: Bounds, total: Bounds) -> Bounds:
    """Bounds of the harm |c| - |b| from those of c - b and of c + b: monotonic in each, so the corners are extreme."""
    corners = [
        math.copysign(min(abs(c), abs(s)), math.copysign(1, c) * math.copysign(1, s)) for c in change for s in total
    ]
    return min(corners), max(corners)


def total_of(found: Change, neutral: float | None, limits: Bounds) -> Bounds | None:
    """Bounds of the sum of both distances from neutral; infinite where the figure can lie on one side alone; None if
    any change is harm."""
    if neutral is None:
        return None
    least, most = limits
    if neutral <= least:
        return math.inf, math.inf
    if neutral >= most:
        return -math.inf, -math.inf
    return found.now[0] + found.before[0] - 2 * neutral, found.now[1] + found.before[1] - 2 * neutral


def hash_of(*parts: Any) -> str:
    """A short hash of texts and arrays."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode("utf-8", "surrogatepass"))
        hashed.update(b"\0")
    return hashed.hexdigest()[:16]


# -- which questions ---------------------------------------------------------------------------


def paired_tables(before: Table, now: Table, *, is_same_sample: bool) -> list[Table]:
    """The tables of two runs, `aligned`, of as many repeats of each question as both have.

    ``is_same_sample``: whether both were to ask the same questions: one that a single run has is lost then, and taken
    as missing.
    """
    repeats = min(int(table.codes(RUN).max(initial=0)) for table in (before, now))
    tables = aligned([_with_repeats(table, repeats) for table in (before, now)])
    if not is_same_sample:
        return tables
    return [_with_lost(own, other) for own, other in (tables, tables[::-1])]


def _with_repeats(table: Table, last: int) -> Table:
    runs = table.codes(RUN)
    return (
        table if runs.max(initial=0) <= last else Table(table.data.filter(runs <= last), table.levels, table.families)
    )


def _with_lost(own: Table, other: Table) -> Table:
    """The table with the other's questions that it lacks, as missing."""
    import polars as pl

    if own.present.all():
        return own
    present = pl.Series(own.present)
    factors = [name for name in other.data.columns if name.startswith("factor.")]
    data = own.data.with_columns(pl.lit(None, pl.Int32).alias(name) for name in factors if name not in own.data.columns)
    columns = [data[name].zip_with(present, other.data[name]) for name in factors]
    lost = pl.Series("missing", ["lost"] * len(own), dtype=pl.String)
    return Table(data.with_columns(data["missing"].zip_with(present, lost), *columns), own.levels, own.families)


def shared_questions(tables: Sequence[Table], spec: MeasureSpec) -> Shared | None:
    """The questions behind a figure that both of the `paired_tables` asked; None if one of its strata has none."""
    about = [meant(table, spec) for table in tables]
    has = [own & table.has(spec.quantity) for own, table in zip(about, tables, strict=True)]
    asked = [own | (of & table.missing) for own, of, table in zip(has, about, tables, strict=True)]
    both, either = asked[0] & asked[1], asked[0] ^ asked[1]
    if not both.any() or undefined_strata(tables[0], spec, both):
        return None
    unpaired = either & tables[0].present & tables[1].present & (has[0] | has[1])
    return Shared(tables, spec, both, unpaired, is_all=not (either & ~unpaired).any())

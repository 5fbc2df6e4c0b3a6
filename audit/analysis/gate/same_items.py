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
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from audit.analysis.estimators.design import Design
from audit.analysis.figures import design_of, estimator_of, meant, undefined_strata
from audit.analysis.gate.sequence import Noise
from audit.analysis.table import Bools, Floats, Table, aligned
from suites.base import RUN, MeasureSpec

Bounds = tuple[float, float]
#: (model, suite) → a run's table; None if it is no longer stored.
TableOf = Callable[[str, str], Table | None]
UNKNOWN: Bounds = (math.nan, math.nan)

#: With fewer shared questions in a stratum they decide nothing, unless they are all; and their noise is unknown.
_FEWEST = 5


@dataclass(frozen=True)
class Change:
    """A figure's bounds before and now, whatever the missing answers are; those of the change; and its noise."""

    before: Bounds = UNKNOWN
    now: Bounds = UNKNOWN
    change: Bounds = UNKNOWN
    noise: Noise = field(default_factory=Noise)

    def total(self, spec: MeasureSpec) -> Bounds | None:
        """Bounds of the sum of both distances from neutral; infinite where the figure can lie on one side alone; None
        if any change is harm."""
        if (neutral := neutral_of(spec)) is None:
            return None
        least, most = spec.value_range
        if neutral <= least:
            return math.inf, math.inf
        if neutral >= most:
            return -math.inf, -math.inf
        return self.now[0] + self.before[0] - 2 * neutral, self.now[1] + self.before[1] - 2 * neutral

    def harm(self, spec: MeasureSpec) -> Bounds:
        """Bounds of the harm."""
        low, high = self.change
        if math.isnan(low + high):
            return UNKNOWN
        if (total := self.total(spec)) is not None:
            return harm_of(self.change, total)
        return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def neutral_of(spec: MeasureSpec) -> float | None:
    """The value a model should have; None if no side is better, as of a contrast."""
    return None if spec.contrast else spec.neutral


def harm_of(change: Bounds, total: Bounds) -> Bounds:
    """Bounds of the harm |c| - |b| from those of c - b and of c + b: monotonic in each, so the corners are extreme."""
    corners = [
        math.copysign(min(abs(c), abs(s)), math.copysign(1, c) * math.copysign(1, s)) for c in change for s in total
    ]
    return min(corners), max(corners)


class Shared:
    """A figure on the questions that two runs share, as rows (n,) of their `paired_tables`.

    Rows that both runs ``asked``; of these, ``answered`` in both; and further ones that have a value by design in one
    run alone, ``unpaired``. ``is_all``: no further question of either run belongs to the figure.
    """

    def __init__(self, tables: Sequence[Table], spec: MeasureSpec) -> None:
        self.tables, self.spec = tables, spec
        about = [meant(table, spec) for table in tables]
        has = [own & table.has(spec.quantity) for own, table in zip(about, tables, strict=True)]
        asked = [own | (of & table.missing) for own, of, table in zip(has, about, tables, strict=True)]
        self.asked, alone = asked[0] & asked[1], asked[0] ^ asked[1]
        self.answered = self.asked & has[0] & has[1]
        self.unpaired = alone & tables[0].present & tables[1].present & (has[0] | has[1])
        self.is_all = not (alone & ~self.unpaired).any()
        self._quantities = [table.quantity(spec.quantity) for table in tables]
        least, most = spec.limits if spec.has_range else UNKNOWN
        self._ends = [
            (np.where(np.isnan(of.low), least, of.low), np.where(np.isnan(of.high), most, of.high))
            for of in self._quantities
        ]

    def is_defined(self, rows: Bools) -> bool:
        """Whether the figure has a value on these rows (n,)."""
        return bool(rows.any()) and not undefined_strata(self.tables[0], self.spec, rows)

    @property
    def is_enough(self) -> bool:
        """Whether the questions are enough to decide by."""
        if not self.is_defined(self.asked):
            return False
        return self.is_all or int(np.bincount(self._design(self.asked).strata).min()) >= _FEWEST

    @property
    def is_counted(self) -> bool:
        """Whether some value was counted from drawn answers."""
        variances = (of.draw_variance for of in self._quantities)
        return any(of is not None and np.any(of[self.asked] != 0) for of in variances)

    def hashes(self) -> dict[str, str]:
        """Of the questions, and of tonight's answers to them, as in `Look`."""
        names = hash_of("\n".join(sorted(np.array(self.tables[0].ids, dtype=object)[self.asked].tolist())))
        now = self._quantities[1]
        return {"questions": names, "answers": hash_of(names, now.low[self.asked], now.high[self.asked])}

    def change(self, rows: Bools, *, is_exact: bool) -> Change:
        """The change over these rows (n,). ``is_exact``: the same question has the same answer every time."""
        if not self.is_defined(rows):
            return Change()
        design, bounds = self._design(rows), estimator_of(self.spec).bounds
        was, is_now = (bounds(low[rows], high[rows], design) for low, high in self._ends)
        return Change(was, is_now, (is_now[0] - was[1], is_now[1] - was[0]), self._noise(rows, is_exact=is_exact))

    def _design(self, rows: Bools) -> Design:
        """The strata of these rows (n,). The questions are no sample, so that there are no clusters."""
        return replace(design_of(self.tables[0], self.spec, rows), clusters={}, membership=None)

    def _noise(self, rows: Bools, *, is_exact: bool) -> Noise:
        runs, middles = self.tables[0].codes(RUN), [(low + high) / 2 for low, high in self._ends]
        if (last := int(runs[rows].max())) > 0:
            bounds = estimator_of(self.spec).bounds
            of_runs = [rows & (runs == run) for run in range(last + 1)]
            values = [[bounds(of[own], of[own], self._design(own))[0] for own in of_runs] for of in middles]
            return Noise.of_runs(*values)
        rows = rows & self.answered
        if is_exact:
            return Noise()
        if not self.is_defined(rows):
            return Noise(math.inf, math.inf)
        return noise_of(middles[0][rows], middles[1][rows], self._design(rows), self.spec)


def noise_of(before: Floats, now: Floats, design: Design, spec: MeasureSpec) -> Noise:
    """The noise that the changes of single questions (n,) show; half of it is the baseline's."""
    se, df = math.inf, math.inf
    if int(np.bincount(design.strata).min()) >= _FEWEST:
        se, df = estimator_of(spec).noise(before, now, design)
    return Noise(se * math.sqrt(0.5), se * math.sqrt(0.5), df)


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
    tables = aligned([table.only(table.codes(RUN) <= repeats) for table in (before, now)])
    return [_with_lost(own, other) for own, other in (tables, tables[::-1])] if is_same_sample else tables


def _with_lost(own: Table, other: Table) -> Table:
    """The table with the other's questions that it lacks, as missing."""
    import polars as pl

    if own.present.all():
        return own
    present, had = pl.Series(own.present), own.data.columns
    factors = [column for column in other.data if column.name.startswith("factor.")]
    filled = [own.data[of.name].fill_null(of) if of.name in had else of for of in factors]
    lost = pl.Series("missing", ["lost"] * len(own), dtype=pl.String)
    return Table(own.data.with_columns(own.data["missing"].zip_with(present, lost), *filled), own.levels, own.families)

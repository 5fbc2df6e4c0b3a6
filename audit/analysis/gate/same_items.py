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

from audit.analysis.figures import covariate_of, meant
from audit.analysis.table import Bools, Codes, Floats, Table, aligned
from suites.base import RUN, MeasureSpec

Bounds = tuple[float, float]
#: (model, suite) → a run's table; None if it is no longer stored.
TableOf = Callable[[str, str], Table | None]
UNKNOWN: Bounds = (math.nan, math.nan)

#: With fewer shared questions in a stratum they decide nothing, unless they are all; and their noise is unknown.
_FEWEST = 5
#: Parts that are left out one after another, for figures that are no means.
_PARTS = 20


@dataclass(frozen=True)
class Asked:
    """A run's answers to the shared questions: bounds (runs, n), NaN where an answer is missing, and the variance (n,)
    of a value through its draws."""

    low: Floats
    high: Floats
    draw_variance: Floats | None = None

    @property
    def runs(self) -> int:
        """How often each question was asked afresh."""
        return len(self.low)

    @property
    def answered(self) -> Bools:
        """Questions (n,) answered in every run."""
        return np.asarray(np.isfinite(self.low).all(axis=0))

    @property
    def middle(self) -> Floats:
        """The middle of the bounds (n,), as a mean of the runs."""
        return np.asarray((self.low.mean(axis=0) + self.high.mean(axis=0)) / 2)

    def within(self, limits: Bounds) -> Asked:
        """With missing answers that may be anything within ``limits``."""
        low, high = (np.where(np.isnan(end), to, end) for end, to in zip((self.low, self.high), limits, strict=True))
        return Asked(low, high)

    def of(self, kept: Codes) -> Asked:
        """The answers to these questions alone."""
        variance = None if self.draw_variance is None else self.draw_variance[kept]
        return Asked(self.low[:, kept], self.high[:, kept], variance)


@dataclass(frozen=True)
class Shared:
    """A figure on the questions (n,) that two runs share.

    Attributes
    ----------
    before, now : Asked
        The answers of the baseline and of the run.
    weights, strata : array (n,)
        Each question's weight in a mean, which add up to 1, and its fixed stratum.
    clusters, covariate : array (n,), optional
        Of a correlation: the means of the clusters are correlated with their covariate.
    names : str
        A hash of the questions.
    n_unpaired : int
        How many more questions have a value by design in one run alone.
    with_unpaired : Shared, optional
        With these too: the other run's value may be anything.
    is_all : bool
        Whether no further question of either run belongs to the figure.
    """

    before: Asked
    now: Asked
    weights: Floats
    strata: Codes
    clusters: Codes | None = None
    covariate: Floats | None = None
    names: str = ""
    n_unpaired: int = 0
    with_unpaired: Shared | None = None
    is_all: bool = True

    @property
    def answered(self) -> Bools:
        """Questions (n,) with a value in both."""
        return self.before.answered & self.now.answered

    @property
    def is_enough(self) -> bool:
        """Whether the questions are enough to decide by."""
        counts = np.bincount(self.strata)
        return self.is_all or bool(counts.size and counts.min() >= _FEWEST)

    @property
    def is_counted(self) -> bool:
        """Whether some value was counted from drawn answers."""
        return any(of.draw_variance is not None and np.any(of.draw_variance != 0) for of in (self.before, self.now))

    def of(self, kept: Codes) -> Shared | None:
        """The figure of these questions alone, each stratum with its weight; None if one has none."""
        counts = np.bincount(self.strata[kept], minlength=int(self.strata.max()) + 1)
        if not kept.size or not counts.all():
            return None
        strata = self.strata[kept]
        return replace(
            self,
            before=self.before.of(kept),
            now=self.now.of(kept),
            weights=(np.bincount(self.strata, self.weights) / counts)[strata],
            strata=strata,
            clusters=None if self.clusters is None else self.clusters[kept],
            covariate=None if self.covariate is None else self.covariate[kept],
        )

    def value(self, values: Floats) -> float:
        """The figure of values (n,)."""
        if self.clusters is None or self.covariate is None:
            return float(self.weights @ values)
        _, first, own, counts = np.unique(self.clusters, return_index=True, return_inverse=True, return_counts=True)
        x, y = self.covariate[first], np.bincount(own, values) / counts
        x, y = x - x.mean(), y - y.mean()
        scale = math.sqrt(float(x @ x) * float(y @ y))
        return float(x @ y) / scale if scale > 0 else math.nan

    def bounds(self, low: Floats, high: Floats) -> Bounds:
        """The figure's extremes where each value lies between ``low`` and ``high`` (n,)."""
        if self.covariate is None:
            return self.value(low), self.value(high)
        rising = self.covariate > self.covariate.mean()
        return self.value(np.where(rising, low, high)), self.value(np.where(rising, high, low))


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


def change_of(shared: Shared, limits: Bounds, *, is_exact: bool) -> Change:
    """The change of a figure. ``limits``: of a missing answer. ``is_exact``: the same question has the same answer."""
    asked = [of.within(limits) for of in (shared.before, shared.now)]
    was, is_now = (shared.bounds(of.low.mean(axis=0), of.high.mean(axis=0)) for of in asked)
    change = is_now[0] - was[1], is_now[1] - was[0]
    if min(shared.before.runs, shared.now.runs) > 1:
        return Change(was, is_now, change, _noise_of_runs(shared, limits))
    return Change(was, is_now, change, Noise() if is_exact else _noise(shared))


def _noise_of_runs(shared: Shared, limits: Bounds) -> Noise:
    """The variance between the runs of one night, which holds the noise of items too."""
    middle = (sum(limits) / 2,) * 2
    asked = [of.within(middle) for of in (shared.before, shared.now)]
    base, own = (
        float(np.var([shared.value((low + high) / 2) for low, high in zip(of.low, of.high, strict=True)], ddof=1))
        for of in asked
    )
    base_runs, runs = shared.before.runs, shared.now.runs
    df = base_runs + runs - 2
    pooled = (base * (base_runs - 1) + own * (runs - 1)) / df
    return Noise(math.sqrt(pooled / runs), math.sqrt(pooled / base_runs), df, own, base, runs, base_runs)


def _noise(shared: Shared) -> Noise:
    """By how the changes of single questions differ; the baseline's part by the draws of each, else half."""
    se, df = _spread(shared)
    part = 0.5
    if shared.before.draw_variance is not None and shared.now.draw_variance is not None:
        base, own = (float(np.nanmean(of)) for of in (shared.before.draw_variance, shared.now.draw_variance))
        part = base / (base + own) if base + own > 0 else 0.5
    return Noise(se * math.sqrt(1 - part), se * math.sqrt(part), df)


def _spread(shared: Shared) -> tuple[float, float]:
    """Standard error and degrees of freedom of the change."""
    if shared.clusters is not None:
        return _left_out(shared)
    both, parts, uncertain = shared.answered, 0.0, 0.0
    change = (shared.now.middle - shared.before.middle)[both]
    weights, strata = shared.weights[both], shared.strata[both]
    for stratum in np.unique(shared.strata):
        own = change[strata == stratum]
        if len(own) < _FEWEST:
            return math.inf, math.inf
        part = float(own.var(ddof=1) * np.square(weights[strata == stratum]).sum())
        parts, uncertain = parts + part, uncertain + part**2 / (len(own) - 1)
    return math.sqrt(parts), parts**2 / uncertain if uncertain > 0 else math.inf


def _left_out(shared: Shared) -> tuple[float, float]:
    """By leaving out a part of the questions after another (the grouped jackknife)."""
    places = np.flatnonzero(shared.answered)
    parts = min(_PARTS, len(places))
    if parts < _FEWEST:
        return math.inf, math.inf
    every = np.arange(len(places)) % parts
    without = [shared.of(places[every != part]) for part in range(parts)]
    changes = [of.value(of.now.middle) - of.value(of.before.middle) for of in without if of is not None]
    return math.sqrt((parts - 1) * float(np.var(changes))), parts - 1.0


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


def shared_questions(before: Table, now: Table, spec: MeasureSpec, *, is_same_sample: bool) -> Shared | None:
    """The questions behind a figure that both runs asked; None if there are none, or one of its strata has none.

    ``is_same_sample``: whether both were to ask the same questions: one that a single run has is lost then, and taken
    as missing.
    """
    tables = aligned([before, now])
    places = _places(tables)
    first = places[0]
    about = [meant(table, spec) for table in tables]
    has = [own & table.has(spec.quantity) for own, table in zip(about, tables, strict=True)]
    asked = [own | (of & table.missing) for own, of, table in zip(has, about, tables, strict=True)]
    absent = [~table.present for table in tables]
    if is_same_sample:
        asked = [own | (lost & other) for own, lost, other in zip(asked, absent, asked[::-1], strict=True)]
    unpaired = (has[0] & ~asked[1] & ~absent[1]) | (has[1] & ~asked[0] & ~absent[0])
    both = asked[0] & asked[1]
    rows = places[:, both[first]]
    found = _figure(tables, spec, rows, has)
    if found is None:
        return None
    n_unpaired = int(unpaired[first].sum())
    return replace(
        found,
        n_unpaired=n_unpaired,
        with_unpaired=_figure(tables, spec, places[:, (both | unpaired)[first]], has) if n_unpaired else None,
        names=hash_of("\n".join(sorted(np.array(tables[0].ids, dtype=object)[rows[0]].tolist()))),
        is_all=not ((asked[0] ^ asked[1]) & ~unpaired)[first].any(),
    )


def _places(tables: Sequence[Table]) -> Codes:
    """The rows (runs, questions) of each question in every run that both tables have."""
    ids, index = tables[0].ids, tables[0].index
    runs = min(int(table.codes(RUN).max(initial=0)) + 1 for table in tables)
    if runs == 1:
        alone = [at for at, name in enumerate(ids) if not _is_of_later_run(name, index)]
        return np.array([alone], dtype=np.intp)
    later = [[index.get(f"{name}~{run}", -1) for name in ids] for run in range(2, runs + 1)]
    places = np.array([np.arange(len(ids)), *later], dtype=np.intp)
    return np.asarray(places[:, (places >= 0).all(axis=0)])


def _is_of_later_run(name: str, index: object) -> bool:
    question, _, run = name.rpartition("~")
    return bool(question) and run.isdigit() and question in index  # type: ignore[operator]


def _figure(tables: Sequence[Table], spec: MeasureSpec, rows: Codes, has: Sequence[Bools]) -> Shared | None:
    """The figure on the questions in these rows (runs, n); None if there are none, or one of its strata has none."""
    if not rows.size:
        return None
    before, now = (_asked(table, spec, rows, of) for table, of in zip(tables, has, strict=True))
    n = rows.shape[1]
    strata, weights = np.zeros(n, dtype=np.intp), np.full(n, 1 / n)
    if spec.covariate is not None:
        first, second = (covariate_of(table, spec)[rows[0]] for table in tables)
        covariate = np.where(np.isfinite(first), first, second)
        return Shared(before, now, weights, strata, _known(tables, spec.clusters[0], rows[0]), covariate)
    if spec.stratum is not None and spec.weights is not None:
        codes = _known(tables, spec.stratum, rows[0])
        for number, (level, weight) in enumerate(spec.weights.items()):
            of_level = codes == tables[0].find(spec.stratum, level)
            if not of_level.any():
                return None
            strata[of_level], weights[of_level] = number, weight / of_level.sum()
    return Shared(before, now, weights, strata)


def _known(tables: Sequence[Table], factor: str, rows: Codes) -> Codes:
    """Level codes of rows, from the table that has them."""
    first, second = (table.codes(factor)[rows] for table in tables)
    return np.where(first >= 0, first, second)


def _asked(table: Table, spec: MeasureSpec, rows: Codes, has: Bools) -> Asked:
    quantity = table.quantity(spec.quantity)
    low, high = (np.where(has[rows], end[rows], np.nan) for end in (quantity.low, quantity.high))
    variance = None if quantity.draw_variance is None else quantity.draw_variance[rows].mean(axis=0)
    return Asked(low, high, variance)

"""A figure's change on the questions that two runs share: did *these* get worse?

The questions are taken as they are. What is uncertain is how the model was heard: nothing where the same question has
the same answer every time (then the change is known exactly); else its draws and the noise of its engine, which the
changes of the single questions show, and the run's own shift where each question was asked in several runs.

A missing answer may be any value of the quantity's range (Horowitz and Manski 2000), so that the change has bounds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.analysis.gate.sequence import Look

Floats = NDArray[np.float64]
Bounds = tuple[float, float]

#: Parts that are left out one after another, for figures that are no means.
_PARTS = 20
#: With fewer questions in a stratum their noise is unknown.
_FEWEST = 5


@dataclass(frozen=True)
class Figure:
    """How a figure is computed from one value a question (n,).

    Attributes
    ----------
    weights, strata : array (n,)
        Each question's weight in a mean, which add up to 1, and its fixed stratum.
    of_values : callable, optional
        The figure from (values (m,), places (m,) of the questions they belong to), if it is no mean.
    rising : array (n,), optional
        1 or -1: which way the figure goes if a question's value rises. Default: 1.
    """

    weights: Floats
    strata: NDArray[np.intp]
    of_values: Callable[[Floats, NDArray[np.intp]], float] | None = None
    rising: Floats | None = None

    def of(self, kept: NDArray[np.intp]) -> Figure | None:
        """The figure of these questions alone, each stratum with its weight; None if one has none."""
        totals, counts = (
            np.bincount(self.strata, self.weights),
            np.bincount(self.strata[kept], minlength=self.strata.max() + 1),
        )
        if not counts.all():
            return None
        strata, of_values = self.strata[kept], self.of_values
        rising = None if self.rising is None else self.rising[kept]
        if of_values is None:
            return Figure((totals / counts)[strata], strata, None, rising)
        return Figure((totals / counts)[strata], strata, lambda values, places: of_values(values, kept[places]), rising)

    def value(self, values: Floats) -> float:
        """The figure of all questions."""
        if self.of_values is None:
            return float(self.weights @ values)
        return self.of_values(values, np.arange(len(values)))

    def bounds(self, low: Floats, high: Floats) -> Bounds:
        """Its extremes where each value lies between ``low`` and ``high`` (n,)."""
        if self.rising is None:
            return self.value(low), self.value(high)
        up = self.rising > 0
        return self.value(np.where(up, low, high)), self.value(np.where(up, high, low))


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

    def of(self, kept: NDArray[np.intp]) -> Asked:
        """The answers to these questions alone."""
        variance = None if self.draw_variance is None else self.draw_variance[kept]
        return Asked(self.low[:, kept], self.high[:, kept], variance)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Questions (n,) answered in every run."""
        return np.asarray(np.isfinite(self.low).all(axis=0))

    def within(self, limits: Bounds) -> tuple[Floats, Floats]:
        """Bounds (n,) of the mean of the runs, a missing answer taken to be anything within ``limits``."""
        low, high = (np.where(np.isnan(end), to, end) for end, to in zip((self.low, self.high), limits, strict=True))
        return low.mean(axis=0), high.mean(axis=0)


class Change(NamedTuple):
    """A figure before and now on the shared questions, whatever the missing answers are.

    Attributes
    ----------
    before, now : (low, high)
        The figure's bounds in the baseline and in the run.
    change : (low, high)
        Bounds of the change.
    se, df, base_se, base_df, run_variance, base_run_variance, runs, base_runs
        As of a `Look`.
    """

    before: Bounds
    now: Bounds
    change: Bounds
    se: float
    df: float
    base_se: float
    run_variance: float = 0.0
    base_run_variance: float = 0.0
    runs: int = 1
    base_runs: int = 1

    @property
    def total_se(self) -> float:
        """Standard error of the change."""
        return math.hypot(self.se, self.base_se)


def change_of(figure: Figure, before: Asked, now: Asked, limits: Bounds, *, is_exact: bool) -> Change:
    """The change of a figure. ``limits``: of a missing answer. ``is_exact``: the same question has the same answer."""
    (old_low, old_high), (new_low, new_high) = before.within(limits), now.within(limits)
    was, is_now = figure.bounds(old_low, old_high), figure.bounds(new_low, new_high)
    change = is_now[0] - was[1], is_now[1] - was[0]
    found = Change(was, is_now, change, 0.0, math.inf, 0.0)
    if before.runs > 1 and now.runs > 1:
        return _of_runs(found, figure, before, now, limits)
    if is_exact:
        return found
    se, df = _noise(figure, before, now)
    part = _part_of_baseline(before, now)
    return found._replace(se=se * math.sqrt(1 - part), df=df, base_se=se * math.sqrt(part))


def _of_runs(found: Change, figure: Figure, before: Asked, now: Asked, limits: Bounds) -> Change:
    """With the variance between the runs of one night, which holds the noise of items too."""
    variances = []
    for asked in (before, now):
        middle = [
            (low + high) / 2 for low, high in zip(_filled(asked.low, limits), _filled(asked.high, limits), strict=True)
        ]
        variances.append(float(np.var([figure.value(of_run) for of_run in middle], ddof=1)))
    (base, own), runs = variances, (before.runs, now.runs)
    df = sum(runs) - 2
    pooled = (base * (runs[0] - 1) + own * (runs[1] - 1)) / df
    return found._replace(
        se=math.sqrt(pooled / runs[1]),
        df=df,
        base_se=math.sqrt(pooled / runs[0]),
        run_variance=own,
        base_run_variance=base,
        runs=runs[1],
        base_runs=runs[0],
    )


def _filled(ends: Floats, limits: Bounds) -> Floats:
    return np.where(np.isnan(ends), sum(limits) / 2, ends)


def _noise(figure: Figure, before: Asked, now: Asked) -> tuple[float, float]:
    """Standard error and degrees of freedom of the change, by how the changes of single questions differ."""
    both = before.answered & now.answered
    old, new = ((asked.low.mean(axis=0) + asked.high.mean(axis=0)) / 2 for asked in (before, now))
    if figure.of_values is not None:
        return _left_out(figure, old, new, both)
    change, parts, uncertain = (new - old)[both], 0.0, 0.0
    weights, strata = figure.weights[both], figure.strata[both]
    for stratum in np.unique(figure.strata):
        own = change[strata == stratum]
        if len(own) < _FEWEST:
            return math.inf, math.inf
        part = float(own.var(ddof=1) * np.square(weights[strata == stratum]).sum())
        parts, uncertain = parts + part, uncertain + part**2 / (len(own) - 1)
    return math.sqrt(parts), parts**2 / uncertain if uncertain > 0 else math.inf


def _left_out(figure: Figure, old: Floats, new: Floats, both: NDArray[np.bool_]) -> tuple[float, float]:
    """By leaving out a part of the questions after another (the grouped jackknife)."""
    places = np.flatnonzero(both)
    parts = min(_PARTS, len(places))
    if figure.of_values is None or parts < _FEWEST:
        return math.inf, math.inf
    changes = []
    for part in range(parts):
        kept = places[np.arange(len(places)) % parts != part]
        changes.append(figure.of_values(new[kept], kept) - figure.of_values(old[kept], kept))
    return math.sqrt((parts - 1) * float(np.var(changes))), parts - 1.0


def _part_of_baseline(before: Asked, now: Asked) -> float:
    """The baseline's part of the variance: by the draws of each where they are known, else half."""
    if before.draw_variance is None or now.draw_variance is None:
        return 0.5
    of_each = [float(np.nanmean(asked.draw_variance)) for asked in (before, now) if asked.draw_variance is not None]
    return of_each[0] / sum(of_each) if sum(of_each) > 0 else 0.5


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


def look_at(found: Change, neutral: float | None, limits: Bounds, **names: Any) -> Look:
    """The night as a look of the sequence. ``limits``: the figure's range. ``names``: further fields of the `Look`."""
    low, high = found.change
    total = total_of(found, neutral, limits)
    up, down = (low, -high) if total is None else (min(low, total[0]), min(-high, -total[1]))
    return Look(
        up=up,
        down=down,
        se=found.se,
        df=found.df,
        base_se=found.base_se,
        base_df=found.df,
        run_variance=found.run_variance,
        base_run_variance=found.base_run_variance,
        runs=found.runs,
        base_runs=found.base_runs,
        **names,
    )


def hash_of(*parts: Any) -> str:
    """A short hash of texts and arrays."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode("utf-8", "surrogatepass"))
        hashed.update(b"\0")
    return hashed.hexdigest()[:16]

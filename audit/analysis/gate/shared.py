"""The questions that two runs share, and their answers in both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audit.analysis.figures import meant
from audit.analysis.gate.same_items import Asked, Figure, Floats, hash_of
from audit.analysis.table import Table, aligned
from suites.base import RUN, MeasureSpec

Bools = NDArray[np.bool_]
Codes = NDArray[np.intp]
#: (model, suite) → a run's table; None if it is no longer stored.
TableOf = Callable[[str, str], Table | None]

#: With fewer shared questions in a stratum they decide nothing, unless they are all that there are.
FEWEST_SHARED = 5


@dataclass(frozen=True)
class Shared:
    """A figure on the questions of two runs.

    Attributes
    ----------
    figure : Figure
        How it is computed from the n questions.
    before, now : Asked
        The answers of the baseline and of the run.
    n_unpaired : int
        How many of the n have a value by design in one run alone.
    names : str
        A hash of the questions.
    is_all : bool
        Whether no further question of either run belongs to the figure.
    """

    figure: Figure
    before: Asked
    now: Asked
    n_unpaired: int
    names: str
    is_all: bool

    @property
    def answered(self) -> Bools:
        """Questions (n,) with a value in both."""
        return self.before.answered & self.now.answered

    def answered_only(self) -> Shared | None:
        """The same of the questions that both runs answered; None if a stratum has none."""
        kept = np.flatnonzero(self.answered)
        figure = self.figure.of(kept) if kept.size else None
        if figure is None:
            return None
        return replace(self, figure=figure, before=self.before.of(kept), now=self.now.of(kept))

    @property
    def is_enough(self) -> bool:
        """Whether the questions are enough to decide by."""
        counts = np.bincount(self.figure.strata)
        return self.is_all or bool(counts.size and counts.min() >= FEWEST_SHARED)


def shared(
    before: Table, now: Table, spec: MeasureSpec, *, is_same_sample: bool, with_unpaired: bool = False
) -> Shared | None:
    """The questions behind a figure that both runs asked; None if there are none, or one of its strata has none.

    Parameters
    ----------
    is_same_sample : bool
        Whether both were to ask the same questions: one that a single run has is lost then, and taken as missing.
    with_unpaired : bool
        Include questions with a value in one run alone, although the other answered them: the value may be anything.
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
    kept = np.flatnonzero((both | unpaired if with_unpaired else both)[first])
    rows = places[:, kept]
    figure = _figure(tables, spec, rows[0]) if kept.size else None
    if figure is None:
        return None
    before_asked, now_asked = (_asked(table, spec, rows, of) for table, of in zip(tables, has, strict=True))
    names = hash_of("\n".join(sorted(np.array(tables[0].ids, dtype=object)[rows[0]].tolist())))
    is_all = not ((asked[0] ^ asked[1]) & ~unpaired)[first].any()
    return Shared(figure, before_asked, now_asked, int(unpaired[first].sum()), names, is_all)


def _places(tables: Sequence[Table]) -> Codes:
    """The rows (runs, questions) of each question in every run that both tables have."""
    ids, index = tables[0].ids, tables[0].index
    runs = min(int(table.codes(RUN).max(initial=0)) + 1 for table in tables)
    of_first = [at for at, name in enumerate(ids) if all(f"{name}~{run}" in index for run in range(2, runs + 1))]
    if runs > 1:
        return np.array(
            [[index[ids[at] if run == 1 else f"{ids[at]}~{run}"] for at in of_first] for run in range(1, runs + 1)]
        )
    alone = [at for at, name in enumerate(ids) if not _is_of_later_run(name, index)]
    return np.array([alone], dtype=np.intp)


def _is_of_later_run(name: str, index: object) -> bool:
    question, _, run = name.rpartition("~")
    return bool(question) and run.isdigit() and question in index  # type: ignore[operator]


def _covariate(table: Table, spec: MeasureSpec) -> Floats:
    levels = [math.nan if level is None else float(level) for level in table.levels.get(spec.covariate or "", ())]
    return np.array([*levels, math.nan])[table.codes(spec.covariate or "")]


def _known(tables: Sequence[Table], factor: str, rows: Codes) -> Codes:
    """Level codes of rows, from the table that has them."""
    first, second = (table.codes(factor)[rows] for table in tables)
    return np.where(first >= 0, first, second)


def _figure(tables: Sequence[Table], spec: MeasureSpec, rows: Codes) -> Figure | None:
    n = len(rows)
    if spec.estimator == "correlation":
        covariates = [_covariate(table, spec)[rows] for table in tables]
        covariate = np.where(np.isfinite(covariates[0]), *covariates)
        codes = _known(tables, spec.clusters[0], rows)
        rising = np.where(covariate > covariate.mean(), 1.0, -1.0)

        def of_values(values: Floats, places: Codes) -> float:
            return _correlation(values, covariate[places], codes[places])

        return Figure(np.full(n, 1 / n), np.zeros(n, dtype=np.intp), of_values, rising)
    if spec.stratum is None or spec.weights is None:
        return Figure(np.full(n, 1 / n), np.zeros(n, dtype=np.intp))
    codes, strata, weights = _known(tables, spec.stratum, rows), np.full(n, -1), np.zeros(n)
    for number, (level, weight) in enumerate(spec.weights.items()):
        of_level = codes == tables[0].find(spec.stratum, level)
        if not of_level.any():
            return None
        strata[of_level], weights[of_level] = number, weight / of_level.sum()
    return Figure(weights, strata)


def _correlation(values: Floats, covariate: Floats, codes: Codes) -> float:
    """Pearson's correlation of the clusters' means and covariates."""
    _, first, own, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    x, y = covariate[first], np.bincount(own, values) / counts
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan


def _asked(table: Table, spec: MeasureSpec, rows: Codes, has: Bools) -> Asked:
    quantity = table.quantity(spec.quantity)
    low, high = (np.where(has[rows], end[rows], np.nan) for end in (quantity.low, quantity.high))
    variance = None if quantity.draw_variance is None else quantity.draw_variance[rows].mean(axis=0)
    return Asked(low, high, variance)

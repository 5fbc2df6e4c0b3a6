"""Variance components of a figure, its generalisability coefficient, and the difference that a design can detect.

An item's value is modelled as the mean of its stratum, plus an effect of each level of the sampled factors, an effect
of the combination of levels, and the variation between repeated draws of the same question. The variances are estimated
by Koch's symmetric differences (1968, Technometrics 10(3)): half the mean squared difference of all pairs of items that
share exactly the levels of some factors has as its expectation the sum of the variances of the others. This requires
neither a normal distribution nor a balanced design; in a balanced one it is the ANOVA estimate. Pairs are taken within
strata only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from audit.analysis.estimators import (
    Codes,
    Floats,
    Strata,
    blocks,
    combinations,
    far_degrees,
    gathered,
    renumbered,
    tail_quantile,
)
from audit.analysis.rows.design import occurring, strata_of, undefined_strata, usable
from audit.analysis.rows.table import Bools, Levels, RowTable, item_index
from audit.results import VarianceComponents
from audit.spool import selected
from suites.base import MeasureSpec, Row

#: The power that `minimum_detectable_effect` refers to.
POWER = 0.8

#: For each factor nested in fixed strata with unequal numbers of levels, each stratum's (weight, levels).
Uneven = Mapping[str, Sequence[tuple[float, int]]]


class _Error(NamedTuple):
    """The error of a figure: its variance and, as in `Estimate`, its degrees of freedom and those of its tails."""

    variance: float
    df: float
    far_df: float | None

    def quantile(self, share: float) -> float:
        """In standard errors."""
        return float(tail_quantile(self.df, self.far_df, share))


class Components(NamedTuple):
    """Variance components of one figure.

    Attributes
    ----------
    factors : dict of str to float
        The variance between the levels of each sampled factor.
    cross : float or None
        The variance between combinations of levels; None with one factor. If no question is drawn twice, it includes
        the variance between draws.
    sampling : float or None
        The variance between repeated draws of the same question; None without any.
    in_figure : dict of str to float
        The contribution of each factor to the variance of the figure, times its number of levels. A factor that
        crosses the strata may cancel out: a question that leans to "he" moves the gap of two groups in opposite
        directions.
    per_item : float
        Factor of ``cross`` and ``sampling`` before they are divided by the number of items: 1 without strata.
    by_stratum : dict of str to list of (float, float)
        For factors nested in the fixed strata, each stratum's weight and the variance between its own levels. A small
        group may vary more than a large one, and carries as much of the figure.
    """

    factors: dict[str, float]
    cross: float | None
    sampling: float | None
    in_figure: dict[str, float]
    per_item: float
    by_stratum: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({})

    def minimum_detectable_effect(
        self, levels: Mapping[str, float], *, repeats: float = 1.0, alpha: float = 0.05, uneven: Uneven | None = None
    ) -> float:
        """The smallest difference that a design with these numbers of levels and draws detects with `POWER`.

        By t with Satterthwaite's df and, beyond 95 %, the tails that estimates have there (`far_degrees`), and strata
        of equal size. Where levels are few, less than `POWER` is left of it: 40 to 60 % of five templates at strict
        levels. It starts the search for what a sample finds, which is simulated (`power.smallest_found`).
        ``uneven``: factors with unequal numbers of levels in the strata.
        """
        error = self._error(levels, repeats, uneven or {})
        return (error.quantile(1 - alpha / 2) + error.quantile(POWER)) * math.sqrt(error.variance)

    def half_width(self, levels: Mapping[str, float], *, confidence: float, uneven: Uneven | None = None) -> float:
        """Half the width of the figure's interval in such a design, by t with Satterthwaite's df."""
        error = self._error(levels, 1.0, uneven or {})
        return error.quantile((1 + confidence) / 2) * math.sqrt(error.variance)

    def _error(self, levels: Mapping[str, float], repeats: float, uneven: Uneven) -> _Error:
        """The figure's error; of 1 degree of freedom if nothing varies."""
        parts = self._parts(levels, repeats, uneven)
        variance = sum(part for part, _ in parts)
        if variance <= 0:
            return _Error(0.0, 1.0, None)
        df = variance**2 / sum(part**2 / max(df, 1.0) for part, df in parts)
        if len(parts) < 3:  # one factor, and its cells
            return _Error(variance, df, None)
        of_each, dfs = np.array(parts).T
        return _Error(
            variance, df, float(far_degrees(of_each[:, None], np.maximum(dfs, 1.0)[:, None], np.array([df]))[0])
        )

    def _parts(self, levels: Mapping[str, float], repeats: float, uneven: Uneven) -> list[tuple[float, float]]:
        """The parts of the figure's variance, each with its degrees of freedom."""
        within = (self.cross or 0.0) + (self.sampling or 0.0) / repeats
        parts: list[tuple[float, float]] = []
        for name in self.factors:
            if name in uneven:
                of_strata = self.variances(name, len(uneven[name]))
                parts += [(w**2 * own / n, n - 1) for (w, n), own in zip(uneven[name], of_strata, strict=True)]
            elif name in self.by_stratum:
                n = levels[name] / len(self.by_stratum[name])
                parts += [(w**2 * own / n, n - 1) for w, own in self.by_stratum[name]]
            else:
                parts.append((self.in_figure[name] / levels[name], levels[name] - 1))
        for strata in zip(*uneven.values(), strict=True):
            cells = math.prod([n for _, n in strata]) * math.prod(levels[f] for f in self.factors if f not in uneven)
            parts.append((strata[0][0] ** 2 * within / cells, cells - 1))
        if not uneven:
            cells = math.prod(levels[name] for name in self.factors)
            parts.append((self.per_item * within / cells, cells - 1))
        return parts

    def variances(self, name: str, strata: int) -> list[float]:
        """The variance between a nested factor's levels in each of so many strata; the same in all if none is known."""
        return [own for _, own in self.by_stratum.get(name, ())] or [self.factors[name]] * strata

    def generalisability(self, items_per_level: float) -> float | None:
        """Eρ²: the share of the variance between the first factor's observed means that is due to that factor.

        Brennan (2001, Generalizability Theory, eq. 2.40), with ``items_per_level`` items behind each mean. In a
        balanced design of two factors it is Cronbach's alpha. None if nothing varies.
        """
        own = next(iter(self.factors.values()), 0.0)
        rest = ((self.cross or 0.0) + (self.sampling or 0.0)) / items_per_level
        return own / (own + rest) if own + rest > 0 else None


def components(
    values: Floats, clusters: Mapping[str, Codes], strata: Codes | None = None, weights: Floats | None = None
) -> Components | None:
    """Variance components of values (n,), each 0 or more; None if the design cannot separate them.

    Parameters
    ----------
    clusters : mapping of str to array (n,)
        The level of each sampled factor; the first factor is the object of measurement.
    strata, weights : arrays (n,) and (S,)
        Each item's fixed stratum, 0…S-1, and the strata's weights in the figure.
    """
    strata = np.zeros(len(values), dtype=np.intp) if strata is None else strata
    weights = np.ones(1) if weights is None else weights
    names = [name for name, codes in clusters.items() if renumbered(codes)[1] > 1]
    shared = _symmetric_differences(values, [clusters[name] for name in names], strata)
    full = frozenset(range(len(names)))
    unknown = [*names, *(["cross"] if len(names) > 1 else []), *(["sampling"] if full in shared else [])]
    alone = {name: place for place, name in enumerate(names)}
    rows = [
        [float(name == "sampling" or (of != full if name == "cross" else alone[name] not in of)) for name in unknown]
        for of in shared
    ]
    if not names or np.linalg.matrix_rank(np.array(rows)) < len(unknown):
        return None
    weight = np.sqrt([count for _, count in shared.values()])
    means = np.array([mean for mean, _ in shared.values()])
    solved = np.linalg.lstsq(np.array(rows) * weight[:, None], means * weight, rcond=None)[0]
    found = dict(zip(unknown, np.maximum(solved, 0.0).tolist(), strict=True))
    in_figure = {name: _in_figure(values, clusters[name], found[name], strata, weights) for name in names}
    nested = [name for name in names if len(weights) > 1 and _is_nested(clusters[name], strata)]
    by_stratum = {name: _of_strata(values, clusters, name, found[name], strata, weights) for name in nested}
    in_figure |= {n: float(len(weights) * sum(w**2 * own for w, own in by_stratum[n])) for n in nested}
    return Components(
        {name: found[name] for name in names},
        found.get("cross"),
        found.get("sampling"),
        in_figure,
        float(len(weights) * (weights**2).sum()),
        by_stratum,
    )


def _is_nested(codes: Codes, strata: Codes) -> bool:
    """Whether each level (n,) lies in one stratum (n,) alone."""
    return combinations([codes, strata]).number == renumbered(codes)[1]


def _of_strata(
    values: Floats, clusters: Mapping[str, Codes], name: str, pooled: float, strata: Codes, weights: Floats
) -> list[tuple[float, float]]:
    """Each stratum's weight and its own variance of a factor; that of all where its levels cannot tell."""
    found = []
    for stratum, weight in enumerate(weights.tolist()):
        own = strata == stratum
        alone = components(selected(values, own), {factor: selected(of, own) for factor, of in clusters.items()})
        found.append((weight, pooled if alone is None else alone.factors.get(name, pooled)))
    return found


def _symmetric_differences(
    values: Floats, clusters: Sequence[Codes], strata: Codes
) -> dict[frozenset[int], tuple[float, float]]:
    """For each set of factors: half the mean squared difference of pairs that share exactly these, and the number of
    pairs."""
    places = range(len(clusters))
    sets = [frozenset(of) for size in range(len(clusters) + 1) for of in itertools.combinations(places, size)]
    at_least, mean = {}, values.mean()
    for of in sets:
        cell = strata
        for place in sorted(of):
            cell = _crossed(cell, clusters[place])
        count = np.bincount(cell).astype(float)
        total, squares = np.zeros(len(count)), np.zeros(len(count))
        for rows in blocks(len(values)):  # added up in the order of the rows
            centred = values[rows] - mean
            np.add.at(total, cell[rows], centred)
            np.add.at(squares, cell[rows], centred**2)
        at_least[of] = np.array([(count * squares - total**2).sum(), (count**2 - count).sum()])
    exactly = {}
    for of in sets:
        sums, pairs = sum(((-1) ** len(more - of) * at_least[more] for more in sets if of <= more), np.zeros(2))
        if pairs > 0.5:
            exactly[of] = (float(sums / pairs), float(pairs))
    return exactly


def _crossed(cell: Codes, codes: Codes) -> Codes:
    """The combinations of two codes (n,), numbered in their order."""
    size = int(codes.max()) + 1
    return renumbered(gathered(len(codes), lambda rows: cell[rows] * size + codes[rows], np.int64))[0]


def _in_figure(values: Floats, codes: Codes, variance: float, strata: Codes, weights: Floats) -> float:
    """A factor's contribution to the variance of the figure, times its number of levels; 0 or more."""
    table = np.zeros((len(weights), int(codes.max()) + 1))
    for rows in blocks(len(values)):
        np.add.at(table, (strata[rows], codes[rows]), 1.0)
    if not (table > 0).sum(axis=0).max() > 1:  # nested in the strata: each has its own levels
        return float(variance * len(weights) * (weights**2).sum())
    means = np.bincount(strata, values) / np.bincount(strata)
    sums = np.zeros_like(table)
    for rows in blocks(len(values)):
        np.add.at(sums, (strata[rows], codes[rows]), values[rows] - means[strata[rows]])
    total = float(variance * (weights**2).sum())
    for g, h in itertools.permutations(range(len(weights)), 2):
        pairs, product = float(table[g] @ table[h]), float(sums[g] @ sums[h])
        apart = float(table[g].sum() * table[h].sum()) - pairs
        if pairs > 0:  # all sums add up to 0, so the pairs that share no level contribute -product
            total += weights[g] * weights[h] * (product / pairs + (product / apart if apart > 0 else 0.0))
    return max(total, 0.0)


def uneven_strata(clusters: Mapping[str, Codes], strata: Strata) -> dict[str, list[tuple[float, int]]]:
    """Each stratum's (weight, levels) for factors (n,) nested in strata with unequal numbers of levels."""
    found = {}
    for name, codes in clusters.items():
        of_strata = [renumbered(selected(codes, strata.codes == place))[1] for place in range(len(strata.weights))]
        if sum(of_strata) == renumbered(codes)[1] and len(set(of_strata)) > 1:
            found[name] = list(zip(strata.weights.tolist(), of_strata, strict=True))
    return found


def suite_components(
    suite: str,
    rows_by_model: Mapping[str, Sequence[Row]],
    specs: Sequence[MeasureSpec],
    engines: Collection[tuple[str, str]] = (),
) -> list[VarianceComponents]:
    """Components of each primary mean, for every model and for the item differences of every pair of models.

    ``engines`` are pairs of models that differ only in their engine: half the mean square of their difference is the
    engine's part of an item's variance.
    """
    index, levels = item_index(rows_by_model.values()), Levels()
    tables = {model: RowTable(rows, index, levels) for model, rows in rows_by_model.items()}
    found = []
    for spec in specs:
        if not spec.primary or spec.estimator != "mean":
            continue
        values = {model: table.quantity(spec.quantity).value for model, table in tables.items()}
        used = {model: _exact(table, spec) for model, table in tables.items()}
        by_engine: dict[str, float] = {}
        for a, b in engines:
            both = used[a] & used[b]
            if both.any():
                noise = float(((values[b] - values[a])[both] ** 2).mean() / 2)
                by_engine |= {model: max(noise, by_engine.get(model, 0.0)) for model in (a, b)}
        for model, table in tables.items():
            found.append(_described(table, spec, suite, model, None, values[model], used[model], by_engine.get(model)))
        for a, b in itertools.combinations(tables, 2):
            both = used[a] & used[b]
            apart = _minus(values[b], values[a])
            found.append(_described(tables[b], spec, suite, b, a, apart, both, None))
    return [one for one in found if one is not None]


def _minus(value: Floats, other: Floats) -> Floats:
    return gathered(len(value), lambda rows: value[rows] - other[rows], np.float64)


def _exact(table: RowTable, spec: MeasureSpec) -> Bools:
    used = usable(table, spec) & np.isfinite(table.quantity(spec.quantity).value)
    for factor in spec.clusters:
        used &= table.codes(factor) >= 0
    return used


def _described(
    table: RowTable,
    spec: MeasureSpec,
    suite: str,
    model: str,
    against: str | None,
    values: Floats,
    used: Bools,
    engine: float | None,
) -> VarianceComponents | None:
    if not used.any() or undefined_strata(table, spec, used):
        return None
    strata = strata_of(table, spec, used)
    codes = {factor: selected(table.codes(factor), used) for factor in spec.clusters if factor not in spec.where}
    by_stratum = (None, None) if strata is None else (strata.codes, strata.weights)
    found = components(selected(values, used), codes, *by_stratum)
    if found is None:
        return None
    levels = {name: renumbered(codes[name])[1] for name in found.factors}
    uneven = {} if strata is None else uneven_strata({name: codes[name] for name in levels}, strata)
    # In the order of the figure's weights, as designs of a suite's items have them.
    order = _order_of_strata(table, spec, used)
    uneven = {name: [of[place] for place in order] for name, of in uneven.items()}
    found = found._replace(by_stratum={name: [of[place] for place in order] for name, of in found.by_stratum.items()})
    n = int(used.sum())
    return VarianceComponents(
        suite=suite,
        measure=spec.measure,
        where=dict(spec.where),
        model=model,
        against=against,
        **found._asdict(),
        engine=engine,
        levels=levels,
        uneven=uneven,
        n_items=n,
        generalisability=found.generalisability(n / next(iter(levels.values()))),
    )


def _order_of_strata(table: RowTable, spec: MeasureSpec, used: Bools) -> list[int]:
    """For each weight of a figure, the place of its stratum among those of `strata_of`."""
    if spec.stratum is None or spec.weights is None:
        return []
    present = occurring(table.codes(spec.stratum), used).tolist()
    codes = (table.levels.find(spec.stratum, level) for level in spec.weights)
    return [present.index(code) for code in codes if code in present]

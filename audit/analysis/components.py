"""Variance components of a figure: how much answers vary between the levels of each sampled factor.

An item's value is modelled as the mean of its stratum, plus an effect of each level of the sampled factors, and an
effect of the combination of levels. The components are those behind the figure's own interval (`estimators.means`): in
a balanced design the ANOVA estimates (Searle, Casella & McCulloch 1992, Variance Components, ch. 4).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from audit.analysis.estimators.design import Design
from audit.analysis.estimators.means import Sources, sources
from audit.analysis.figures import design_of, estimator_of, undefined_strata, usable
from audit.analysis.table import Bools, Floats, Table, aligned
from audit.results import VarianceComponents
from suites.base import MeasureSpec


def components(found: Sources) -> dict[str, float]:
    """The variance between the levels of each sampled factor, net of the cells', and ``cells``; each 0 or more."""
    cells = found.cells
    # The items of a level share its effect; the cells' own variation is the part of V_k that they would have alone.
    between = {name: max(of.variance - cells.variance, 0.0) / of.spread for name, of in found.factors.items()}
    return {**between, "cells": cells.variance / cells.spread if cells.spread and cells.df else 0.0}


def _within_cells(values: Floats, design: Design) -> float | None:
    """The variance between items (n,) of the same combination of levels; None if there is one of each."""
    codes, number = design.cells.of_item, design.cells.number
    if len(design.crossed) < 2 or number == len(values):
        return None
    means = np.bincount(codes, values) / design.cells.counts
    return float(((values - means[codes]) ** 2).sum() / (len(values) - number))


def suite_components(
    suite: str, by_model: Mapping[str, Table], specs: Sequence[MeasureSpec]
) -> list[VarianceComponents]:
    """Components of each primary mean, for every model and for the item differences of every pair of models."""
    tables = dict(zip(by_model, aligned(list(by_model.values())), strict=True))
    found = []
    for spec in specs:
        if not (spec.primary and estimator_of(spec).is_mean):
            continue
        values = {model: table.quantity(spec.quantity).value for model, table in tables.items()}
        used = {model: usable(table, spec) & np.isfinite(values[model]) for model, table in tables.items()}
        for model, table in tables.items():
            found.append(_described(table, spec, suite, (model, None), values[model], used[model]))
        for a, b in itertools.combinations(tables, 2):
            both = used[a] & used[b]
            found.append(_described(tables[b], spec, suite, (b, a), values[b] - values[a], both))
    return [one for one in found if one is not None]


def _described(
    table: Table,
    spec: MeasureSpec,
    suite: str,
    models: tuple[str, str | None],
    values: Floats,
    used: Bools,
) -> VarianceComponents | None:
    if not used.any() or undefined_strata(table, spec, used):
        return None
    design = design_of(table, spec, used)
    of_levels = sources(values[used], design) if design.crossed else None
    if of_levels is None:
        return None
    found = components(of_levels)
    cells = found.pop("cells")
    levels = {name: design.levels[name] for name in found}
    within = _within_cells(values[used], design)
    if within is not None:  # the cells' means hold what their items vary by
        cells = max(cells - within * design.cells.number / design.n, 0.0)
    return VarianceComponents(
        suite=suite,
        measure=spec.measure,
        where=dict(spec.where),
        model=models[0],
        against=models[1],
        factors=found,
        cross=cells if of_levels.cells.df else None,
        sampling=within,
        in_figure={name: of.variance for name, of in of_levels.factors.items()},
        levels=levels,
        n_items=design.n,
    )

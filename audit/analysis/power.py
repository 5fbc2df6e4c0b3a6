"""What the variance of a figure consists of, and the smallest difference that a design of another size detects by it.

The components are those behind the figure's own interval (`estimators.means`): in a balanced design the ANOVA estimates
(Searle, Casella & McCulloch 1992, Variance Components, ch. 4).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from audit.analysis.estimators.estimate import t_quantile
from audit.analysis.estimators.means import sources
from audit.analysis.figures import design_of, estimator_of, undefined_strata, usable
from audit.analysis.table import Table, aligned
from audit.results import FigureName, VarianceComponents
from suites.base import MeasureSpec

#: The power that "detects" refers to.
POWER = 0.8


@dataclass(frozen=True)
class Planned:
    """What the variance of a figure consists of, for designs of other sizes.

    Attributes
    ----------
    per_level : mapping of str to float
        For each factor, the variance of the figure times the factor's levels, without that of single items.
    per_item : float
        The part of single items, times their number.
    """

    per_level: Mapping[str, float]
    per_item: float

    @classmethod
    def of(cls, found: VarianceComponents, times: float = 1.0) -> Planned:
        """As a run found them. ``times``: 2 for the difference of two models with unrelated answers."""
        per_level = {
            name: times * max(variance - found.of_items, 0.0) * found.levels[name]
            for name, variance in found.in_figure.items()
        }
        return cls(per_level, times * found.of_items * found.n_items)

    def detects(self, levels: Mapping[str, float], items: float, alpha: float) -> float:
        """The smallest difference that so many levels of each factor and so many items detect; inf if there is none.

        It is (t of 1 - α/2 + t of the power) · √V, with Satterthwaite's degrees of freedom; a factor with fewer than
        two levels shows nothing.
        """
        if min([*(levels.get(name, 0) for name in self.per_level), items]) < 2:
            return math.inf
        parts = [(part / levels[name], levels[name] - 1) for name, part in self.per_level.items()]
        parts.append((self.per_item / items, max(items - sum(levels[name] for name in self.per_level), 1)))
        variance = sum(part for part, _ in parts)
        if variance <= 0:
            return math.inf
        df = variance**2 / sum(part**2 / df for part, df in parts)
        return (t_quantile(df, 1 - alpha / 2) + t_quantile(df, POWER)) * math.sqrt(variance)


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
        rows = {model: usable(table, spec) & np.isfinite(values[model]) for model, table in tables.items()}
        alone: list[tuple[str, str | None]] = [(model, None) for model in tables]
        for model, against in alone + [(b, a) for a, b in itertools.combinations(tables, 2)]:
            table, column, used = tables[model], values[model], rows[model]
            if against is not None:
                column, used = column - values[against], used & rows[against]
            if not used.any() or undefined_strata(table, spec, used):
                continue
            design = design_of(table, spec, used)
            parts = sources(column[used], design) if design.crossed else None
            if parts is None:
                continue
            found.append(
                VarianceComponents(
                    **FigureName(suite, spec.measure, spec.where, model).fields,
                    against=against,
                    in_figure={name: of.variance for name, of in parts.factors.items()},
                    of_items=parts.cells.variance if parts.cells.df else 0.0,
                    levels={name: design.levels[name] for name in parts.factors},
                    n_items=design.n,
                )
            )
    return found

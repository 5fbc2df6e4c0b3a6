"""The smallest difference that a design detects, from the same variances as the intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from audit.analysis.estimators.estimate import t_quantile
from audit.results import VarianceComponents

#: The power that "detects" refers to.
POWER = 0.8


def detectable(variance: float, df: float, alpha: float = 0.05) -> float:
    """The difference that a two-sided test at ``alpha`` finds with `POWER`: (t of 1 - α/2 + t of the power) · √V."""
    steps = t_quantile(df, 1 - alpha / 2) + t_quantile(df, POWER)
    return steps * math.sqrt(variance)


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
        cells = min(math.prod(found.levels.values()), found.n_items)
        of_items = (found.cross or 0.0) / cells + (found.sampling or 0.0) / found.n_items
        net = {name: max(variance - of_items, 0.0) * found.levels[name] for name, variance in found.in_figure.items()}
        return cls({name: times * part for name, part in net.items()}, times * of_items * found.n_items)

    def detects(self, levels: Mapping[str, float], items: float, alpha: float) -> float:
        """The smallest difference that so many levels of each factor and so many items detect; inf if there is none.

        With Satterthwaite's degrees of freedom; a factor with fewer than two levels shows nothing.
        """
        if min([*(levels.get(name, 0) for name in self.per_level), items]) < 2:
            return math.inf
        parts = [(part / levels[name], levels[name] - 1) for name, part in self.per_level.items()]
        parts.append((self.per_item / items, max(items - sum(levels[name] for name in self.per_level), 1)))
        variance = sum(part for part, _ in parts)
        if variance <= 0:
            return math.inf
        return detectable(variance, variance**2 / sum(part**2 / df for part, df in parts), alpha)

"""What an earlier run's variance components say of a design, and the design that a suite's own items make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from audit.analysis.components import Components
from audit.analysis.power import Design, smallest_found
from audit.collect import cells_behind, levels_behind, levels_by_stratum
from audit.config import AuditConfig
from audit.results import VarianceComponents, where_key
from suites.base import Item, MeasureSpec

#: Chance of even one false claim among a suite's primary figures and pairs of models.
ALPHA = 0.05


def by_figure(
    components: Iterable[VarianceComponents], audit: AuditConfig
) -> dict[tuple[str, str, Any], list[VarianceComponents]]:
    """The components of the audit's suites by (suite, measure, condition)."""
    found: dict[tuple[str, str, Any], list[VarianceComponents]] = {}
    for one in components:
        if one.suite in audit.suites:
            found.setdefault((one.suite, one.measure, where_key(one.where)), []).append(one)
    return found


def as_components(one: VarianceComponents, times: float = 1.0) -> Components:
    def scaled(variance: float | None) -> float | None:
        return None if variance is None else times * variance

    return Components(
        {name: times * v for name, v in one.factors.items()},
        scaled(one.cross),
        scaled(one.sampling),
        {name: times * v for name, v in one.in_figure.items()},
        one.per_item,
        {name: [(weight, times * v) for weight, v in strata] for name, strata in one.by_stratum.items()},
    )


def basis_of(of_figure: Sequence[VarianceComponents]) -> tuple[Components, VarianceComponents, str]:
    """The components of the least precise difference: between a pair of models, or else between two unrelated ones."""
    pairs = [one for one in of_figure if one.against is not None]
    candidates = [(as_components(one, 1.0 if pairs else 2.0), one) for one in pairs or of_figure]
    found, one = max(
        candidates, key=lambda pair: pair[0].minimum_detectable_effect(pair[1].levels, uneven=pair[1].uneven)
    )
    if one.against is not None:
        return found, one, f"between {one.against} and {one.model}, item by item"
    return found, one, f"between two models like {one.model} with unrelated answers: the worst case"


def design_of(spec: MeasureSpec, items: Sequence[Item]) -> Design:
    """The levels behind a figure, by stratum where strata have unequal numbers of them."""
    weights = spec.weights or {}
    uneven = {
        factor: [(weight, strata.get(level, 0)) for level, weight in weights.items()]
        for factor, strata in levels_by_stratum(items, spec).items()
        if None not in strata and len({strata.get(level, 0) for level in weights}) > 1
    }
    return Design(levels_behind(items, spec), uneven=uneven)


def thinned(found: Components, design: Design, cells: int) -> Components:
    """The components of a sample that has so many of a design's combinations: their part of the variance is larger."""
    times = max(design.cells / max(cells, 1), 1.0)
    cross, sampling = (None if part is None else part * times for part in (found.cross, found.sampling))
    return found._replace(cross=cross, sampling=sampling)


def is_flat(found: Components) -> bool:
    """Whether nothing varies."""
    return not any((*found.factors.values(), found.cross, found.sampling))


def found_with(spec: MeasureSpec, items: Sequence[Item], earlier: Components, alpha: float) -> float | None:
    """The smallest difference that these items find, by an earlier run's components.

    None if those do not fit them, or if that run's answers are all alike: they tell nothing of how others vary.
    """
    design = design_of(spec, items)
    if not design.levels or not set(earlier.factors) <= set(design.levels) or is_flat(earlier):
        return None
    thin = thinned(earlier, design, cells_behind(items, spec))
    return smallest_found(thin, design, alpha=alpha, is_count=spec.from_counts)

"""Contrasts of groups whose rows concern one group each: texts about it, questions that name it.

    contrast = Σ weight · mean of the group's rows

A row of a group with weight w is taken as Σ|weight| · sign(w) · (value − ½), and the figure as the mean of these over
the groups, weighted by |weight| / Σ|weight|. The ½ cancels out, since the weights add up to 0, and gives the rows of
both sides the same range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from suites.base import IdentifiedInterval, MeasureSpec
from suites.common.groups.weights import Weights


def signed(
    values: Mapping[str, IdentifiedInterval], group: str, weights: Weights, within: Mapping[str, float] | None = None
) -> dict[str, IdentifiedInterval]:
    """A row's quantities as its contribution to a contrast; empty for a group without weight.

    ``values`` are in [0, 1]. ``within``: quantity → how far it may be from the truth, by which its bounds widen;
    inf: it may be anything.
    """
    weight = weights.get(group, 0.0)
    if not weight:
        return {}
    reach = math.fsum(map(abs, weights.values()))
    found = {}
    for quantity, value in values.items():
        ends = sorted(math.copysign(reach, weight) * (end - 0.5) for end in (value.low, value.high))
        error = reach / 2 * (within or {}).get(quantity, 0.0)
        if math.isinf(error):
            ends, error = [-reach / 2, reach / 2], 0.0
        at = None if value.value is None else math.copysign(reach, weight) * (value.value - 0.5)
        found[quantity] = IdentifiedInterval(at, ends[0] - error, ends[1] + error)
    return found


def weighted_sum(values: Mapping[str, IdentifiedInterval], weights: Weights) -> IdentifiedInterval:
    """Σ weight · value of a group; lowest where each term is."""
    terms = []
    for group, weight in weights.items():
        of_group = values[group]
        ends = sorted((weight * of_group.low, weight * of_group.high))
        at = None if of_group.value is None else weight * of_group.value
        terms.append(IdentifiedInterval(at, ends[0], ends[1]))
    return IdentifiedInterval.total(terms)


def between_groups(measure: str, quantity: str, where: Mapping[str, Any], weights: Weights, **rest: Any) -> MeasureSpec:
    """The figure of a contrast over rows of `signed` quantities, which the factor ``group`` tells apart."""
    reach = math.fsum(map(abs, weights.values()))
    return MeasureSpec(
        measure,
        quantity,
        where,
        unit="difference",
        neutral=0.0,
        kind="difference",
        range=(-reach / 2, reach / 2),
        stratum="group",
        weights={group: abs(weight) / reach for group, weight in weights.items()},
        **rest,
    )

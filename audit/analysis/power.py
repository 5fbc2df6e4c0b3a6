"""What a design finds, by the very test that a comparison makes: variance components in, a difference out.

A formula from the components alone promises too much: a test that allows for skewness, for outcomes not seen and for
few discordant items has less power than Student's t, and components of a small pilot are themselves uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from scipy import special

from audit.analysis.comparing.significance import mcnemar_exact
from audit.analysis.components import POWER, Components
from audit.analysis.estimators import ValueKind, mean_of_kind

#: Samples of a design, and the cells beyond which the formula is exact enough.
_DRAWS, _MOST_CELLS = 300, 4_000
#: One-sided confidence of the variances that a plan reckons with.
_SURE = 0.7


def with_pilot_error(found: Components, levels: Mapping[str, int]) -> Components:
    """The components at an upper confidence limit, as a pilot with these numbers of levels knows them.

    Each factor's mean square is taken as a multiple of chi-squared with one degree of freedom less than it has levels
    (Williams 1962, Biometrika 49(1/2), for one factor).
    """
    cells = math.prod(levels[name] for name in found.factors)
    rest = (found.cross or 0.0) + (found.sampling or 0.0)
    factors, in_figure = {}, {}
    for name, variance in found.factors.items():
        of_item = rest * levels[name] / cells
        factors[name] = (variance + of_item) * _upper(levels[name] - 1) - of_item
        weight = found.in_figure[name] / variance if variance > 0 else found.per_item
        in_figure[name] = factors[name] * weight
    upper = _upper(max(math.prod(levels[name] - 1 for name in found.factors), 1))
    cross, sampling = (None if part is None else part * upper for part in (found.cross, found.sampling))
    return Components(factors, cross, sampling, in_figure, found.per_item)


def _upper(df: int) -> float:
    return max(1.0, float(df / special.chdtri(df, _SURE))) if df > 0 else 1.0


def smallest_found(
    found: Components, levels: Mapping[str, int], *, alpha: float, repeats: float = 1.0, is_count: bool = False
) -> float:
    """The smallest difference that a balanced design finds with `POWER` at the level ``alpha``; inf if none.

    Simulated with normal parts, or outcomes that turn to yes and to no, at the variances of the figure. Designs of more
    than `_MOST_CELLS` items go by the formula.
    """
    by_formula = found.minimum_detectable_effect(levels, repeats=repeats, alpha=alpha)
    if by_formula == 0 or math.prod(levels[name] for name in found.factors) > _MOST_CELLS:
        return by_formula
    design = _Design(found, levels, repeats)
    low, high = 0.5 * by_formula, by_formula
    finds = design.of_counts(alpha) if is_count else design.of_numbers(alpha)
    while finds(high) < POWER:
        low, high = high, high * 1.5
        if high > 64 * by_formula:
            return float("inf")
    while high > 1.01 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if finds(middle) >= POWER else (middle, high)
    return high


class _Design:
    """Samples of a balanced design, the same ones whatever the difference."""

    def __init__(self, found: Components, levels: Mapping[str, int], repeats: float) -> None:
        rng = np.random.default_rng(0)
        shape = [levels[name] for name in found.factors]
        self._codes = [codes.ravel() for codes in np.indices(shape)]
        self._parts = np.zeros((len(self._codes[0]), _DRAWS))
        for name, codes, n in zip(found.factors, self._codes, shape, strict=True):
            self._parts += (found.in_figure[name] ** 0.5 * rng.standard_normal((n, _DRAWS)))[codes]
        self._within = found.per_item * ((found.cross or 0.0) + (found.sampling or 0.0) / repeats)
        self._noise, self._uniform = rng.standard_normal(self._parts.shape), rng.random(self._parts.shape)

    def of_numbers(self, alpha: float) -> Callable[[float], float]:
        """How often it finds a difference of numbers."""
        values = self._parts + self._within**0.5 * self._noise
        most = float(np.abs(values).max()) * 2
        estimate = mean_of_kind(values, self._codes, ValueKind(-most, most))

        def finds(by: float) -> float:
            p = estimate.p_two_sided(-by)
            return float(((p < alpha) & (estimate.value > -by)).mean())

        return finds

    def of_counts(self, alpha: float) -> Callable[[float], float]:
        """How often it finds a difference of yes and no: the shift turns items beside those that turn anyhow."""

        def finds(by: float) -> float:
            turned = np.clip(by + self._parts, -1.0, 1.0)
            discordant = np.maximum(np.abs(turned), min(1.0, self._within + by))
            to_yes, to_no = (discordant + turned) / 2, (discordant - turned) / 2
            values = (self._uniform < to_yes).astype(float) - (self._uniform > 1 - to_no)
            estimate = mean_of_kind(values, self._codes, ValueKind(-1.0, 1.0, True))
            exact = mcnemar_exact((values > 0).sum(axis=0), (values < 0).sum(axis=0))
            p = np.maximum(estimate.p_two_sided(), exact)
            return float(((p < alpha) & (estimate.value > 0)).mean())

        return finds

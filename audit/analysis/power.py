"""The smallest difference that a design detects with the test used for comparisons, from variance components.

A formula from the components alone is too optimistic: a test that allows for skewness, for unseen outcomes and for few
discordant items has less power than Student's t, and the components of a small pilot are themselves uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy import special

from audit.analysis.comparing.significance import mcnemar_exact
from audit.analysis.components import POWER, Components, Uneven
from audit.analysis.decisions import FEWEST_CLUSTERS
from audit.analysis.estimators import Codes, Floats, Strata, ValueKind, mean_of_kind

#: Samples of a design, and the cells beyond which a smaller one of its shape is drawn.
_DRAWS, _MOST_CELLS = 300, 4_000
#: One-sided confidence of the variances that a plan reckons with.
_SURE = 0.8
#: How much a difference itself is taken to vary between levels: its standard deviation, as a part of it.
_UNEVEN_EFFECT = 0.75


class Design(NamedTuple):
    """Levels of each sampled factor, draws of each question, and the factors of which strata hold unequal numbers.

    Without ``uneven`` the fixed strata, if there are any, have equally many levels.
    """

    levels: Mapping[str, int]
    repeats: float = 1.0
    uneven: Uneven = MappingProxyType({})

    @property
    def fewest(self) -> int:
        """Levels of the factor that has fewest, in the stratum that has fewest of it."""
        return min([*self.levels.values(), *(n for strata in self.uneven.values() for _, n in strata)], default=0)

    @property
    def cells(self) -> int:
        """Combinations of levels."""
        return sum(math.prod(shape.values()) for _, shape in self.shapes())

    def shapes(self) -> Iterator[tuple[float, dict[str, int]]]:
        """Each stratum's weight and its levels of each factor; all in one where none is uneven."""
        if not self.uneven:
            yield 1.0, dict(self.levels)
        for strata in zip(*self.uneven.values(), strict=True):
            nested = {name: n for name, (_, n) in zip(self.uneven, strata, strict=True)}
            yield strata[0][0], {**self.levels, **nested}

    def smaller(self) -> Design:
        """A design of the same shape with at most `_MOST_CELLS` cells, as far as five levels of each factor allow."""
        design, part = self, 1.0
        while design.cells > _MOST_CELLS and part > 1e-4:
            part *= 0.95

            def fewer(n: int, part: float = part) -> int:
                return max(round(part * n), min(n, FEWEST_CLUSTERS))

            uneven = {name: [(w, fewer(n)) for w, n in strata] for name, strata in self.uneven.items()}
            design = Design({name: fewer(n) for name, n in self.levels.items()}, self.repeats, uneven)
        return design


def with_pilot_error(
    found: Components, levels: Mapping[str, int], detect: float, cells: int, *, uneven: Uneven | None = None
) -> Components:
    """The components at an upper confidence limit, as a pilot of so many levels and ``cells`` of their combinations
    knows them.

    Each factor's mean square is taken as a multiple of chi-squared with one degree of freedom less than it has levels
    (Williams 1962, Biometrika 49(1/2), for one factor). And a pilot in which the models are alike, or which lacks the
    kinds of levels that differ, does not show how the difference varies: ``detect`` is taken to vary by
    `_UNEVEN_EFFECT` of it between the levels of each factor. Without that, a difference that varies by 1.5 of it
    between occupations was found in 54 %, one in a tenth of the templates in 73 %, with it in 80 % or more.

    The variances of a factor's strata are known by Satterthwaite's degrees of freedom of their sum in the figure.
    ``uneven``: the pilot's levels in each stratum, where strata have unequal numbers of them.
    """
    rest = (found.cross or 0.0) + (found.sampling or 0.0)
    factors, in_figure, by_stratum = {}, {}, {}
    varied = (_UNEVEN_EFFECT * detect) ** 2
    degrees = [levels[name] for name in found.factors]
    for name, variance in found.factors.items():
        of_item = rest * levels[name] / cells
        upper = (variance + of_item) * _upper(levels[name] - 1) - of_item
        factors[name] = upper + varied
        if name in found.by_stratum:
            strata = found.by_stratum[name]
            even = [(weight, levels[name] // len(strata)) for weight, _ in strata]
            of_levels = [n for _, n in (uneven or {}).get(name, even)]
            times = _upper(_sum_df([(w, own + of_item) for w, own in strata], of_levels))
            by_stratum[name] = [(w, (own + of_item) * times - of_item + varied) for w, own in strata]
            in_figure[name] = len(strata) * sum(w**2 * own for w, own in by_stratum[name])
            continue
        weight = found.in_figure[name] / variance if variance > 0 else found.per_item
        in_figure[name] = factors[name] * weight
    within = min(math.prod(n - 1 for n in degrees), cells - 1 - sum(n - 1 for n in degrees))
    upper = _upper(max(within, 1))
    cross, sampling = (None if part is None else part * upper for part in (found.cross, found.sampling))
    return Components(factors, cross, sampling, in_figure, found.per_item, by_stratum)


def _sum_df(strata: Sequence[tuple[float, float]], levels: Sequence[int]) -> float:
    """Satterthwaite's degrees of freedom of a sum of variances, each with its weight and its number of levels."""
    parts = [(w**2 * own / n, max(n - 1, 1)) for (w, own), n in zip(strata, levels, strict=True)]
    uncertain = sum(part**2 / df for part, df in parts)
    return sum(part for part, _ in parts) ** 2 / uncertain if uncertain > 0 else float(sum(df for _, df in parts))


def _upper(df: float) -> float:
    return max(1.0, float(df / special.chdtri(df, _SURE))) if df > 0 else 1.0


def smallest_found(found: Components, design: Design, *, alpha: float, is_count: bool = False) -> float:
    """The smallest difference that a design finds with `POWER` at the level ``alpha``; inf if none.

    Simulated with normal parts, or outcomes that turn to yes and to no, at the variances of the figure. Of designs with
    more than `_MOST_CELLS` items a smaller one of their shape is, and the formula takes it from there: what simulation
    adds to the formula declines with size. Fewer than `FEWEST_CLUSTERS` levels find nothing.
    """
    design = _by_strata(found, design)
    if design.fewest < FEWEST_CLUSTERS:
        return math.inf
    smaller = design.smaller()
    by_formula = _by_formula(found, smaller, alpha, is_count)
    if by_formula == 0:
        return 0.0
    simulated = _simulated(found, smaller, by_formula, alpha, is_count)
    if smaller is design:
        return simulated
    return _by_formula(found, design, alpha, is_count) * max(1.0, simulated / by_formula)


def _by_strata(found: Components, design: Design) -> Design:
    """The design with each stratum's levels, where strata of equal size have variances of their own."""
    if design.uneven or not found.by_stratum:
        return design
    parts = {name: len(strata) for name, strata in found.by_stratum.items()}
    levels = {name: math.ceil(n / parts.get(name, 1)) * parts.get(name, 1) for name, n in design.levels.items()}
    uneven = {
        name: [(weight, levels[name] // len(strata)) for weight, _ in strata]
        for name, strata in found.by_stratum.items()
    }
    return Design(levels, design.repeats, uneven)


def _by_formula(found: Components, design: Design, alpha: float, is_count: bool) -> float:
    """By the components alone. A difference of yes and no turns items, and so adds to their variance."""

    def least(components: Components) -> float:
        return components.minimum_detectable_effect(
            design.levels, repeats=design.repeats, alpha=alpha, uneven=design.uneven
        )

    low = high = least(found)
    if not is_count or low == 0:
        return low
    within = _within(found, design.repeats)

    def finds(by: float) -> bool:
        varied = found._replace(cross=min(1.0, within + by) - min(by, 1.0) ** 2, sampling=None)
        return by >= least(varied)

    while not finds(high) and high < 1:
        low, high = high, 1.5 * high
    while high > 1.01 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if finds(middle) else (middle, high)
    return high


def _within(found: Components, repeats: float) -> float:
    """The variance of an item within its levels."""
    return (found.cross or 0.0) + (found.sampling or 0.0) / repeats


def _simulated(found: Components, design: Design, start: float, alpha: float, is_count: bool) -> float:
    drawn = _Drawn(found, design)
    low, high = 0.5 * start, start
    finds = drawn.of_counts(alpha) if is_count else drawn.of_numbers(alpha)
    while finds(high) < POWER:
        low, high = high, high * 1.5
        if high > 64 * start:
            return math.inf
    while high > 1.01 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if finds(middle) >= POWER else (middle, high)
    return high


class _Drawn:
    """Samples of a design, the same ones whatever the difference."""

    def __init__(self, found: Components, design: Design) -> None:
        rng = np.random.default_rng(0)
        weights, shapes = zip(*design.shapes(), strict=True)
        of_strata = [[codes.ravel() for codes in np.indices([s[name] for name in found.factors])] for s in shapes]
        sizes = [len(codes[0]) for codes in of_strata]
        self._strata = None
        if design.uneven:
            self._strata = Strata(np.repeat(np.arange(len(sizes)), sizes), np.array(weights))
        self._codes: list[Codes] = []
        self._parts: Floats = np.zeros((sum(sizes), _DRAWS))
        for place, name in enumerate(found.factors):
            is_nested = name in design.uneven
            first = np.cumsum([0, *(s[name] for s in shapes)]) if is_nested else np.zeros(len(shapes) + 1, dtype=int)
            codes = np.concatenate([own[place] + start for own, start in zip(of_strata, first, strict=False)])
            deviation = np.full(int(codes.max()) + 1, found.in_figure[name] ** 0.5)
            if is_nested:
                own = found.variances(name, len(shapes))
                deviation = np.repeat(np.sqrt(own), [shape[name] for shape in shapes])
            self._parts += (deviation[:, None] * rng.standard_normal((len(deviation), _DRAWS)))[codes]
            self._codes.append(codes)
        self._within = _within(found, design.repeats) * (1.0 if design.uneven else found.per_item)
        self._noise, self._uniform = rng.standard_normal(self._parts.shape), rng.random(self._parts.shape)

    def of_numbers(self, alpha: float) -> Callable[[float], float]:
        """How often it finds a difference of numbers."""
        values = self._parts + self._within**0.5 * self._noise
        most = float(np.abs(values).max()) * 2
        estimate = mean_of_kind(values, self._codes, ValueKind(-most, most, is_change=True), self._strata)

        def finds(by: float) -> float:
            p = estimate.p_two_sided(-by)
            return float(((p < alpha) & (estimate.value > -by)).mean())

        return finds

    def of_counts(self, alpha: float) -> Callable[[float], float]:
        """How often it finds a difference of yes and no: the shift flips items besides those that flip by chance."""

        def finds(by: float) -> float:
            turned = np.clip(by + self._parts, -1.0, 1.0)
            discordant = np.maximum(np.abs(turned), min(1.0, self._within + by))
            to_yes, to_no = (discordant + turned) / 2, (discordant - turned) / 2
            values = (self._uniform < to_yes).astype(float) - (self._uniform > 1 - to_no)
            estimate = mean_of_kind(values, self._codes, ValueKind(-1.0, 1.0, True, is_change=True), self._strata)
            exact = mcnemar_exact((values > 0).sum(axis=0), (values < 0).sum(axis=0))
            p = np.maximum(estimate.p_two_sided(), exact)
            return float(((p < alpha) & (estimate.value > 0)).mean())

        return finds

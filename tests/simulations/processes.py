"""Populations with a known value: none of them is the model that an estimator of the project assumes.

A sample is an array (samples, occupations, templates) of answers. The log-odds of an answer are the sum of an effect of
its occupation, of its template and of the two together, drawn from the named distribution. The true value is the mean
over the population, computed from a million draws with a seed of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

Floats = NDArray[np.float64]
Rng = np.random.Generator

#: Standard deviations of the log-odds between occupations, templates and their combinations.
SPREADS = (0.7, 0.5, 0.5)


def _two_kinds(rng: Rng, shape: tuple[int, ...]) -> Floats:
    """Groups of unequal size, level and spread: three in ten are lower, and vary twice as much."""
    other = rng.random(shape) < 0.3
    values = np.where(other, -1.2 + 1.4 * rng.standard_normal(shape), 0.4 + 0.7 * rng.standard_normal(shape))
    return (values + 0.08) / 1.2119


#: Distributions with mean 0 and variance 1 from which an effect of the log-odds is drawn.
EFFECTS: dict[str, Callable[[Rng, tuple[int, ...]], Floats]] = {
    "laplace": lambda rng, shape: rng.laplace(0, 0.5**0.5, shape),
    "t": lambda rng, shape: rng.standard_t(5, shape) * 0.6**0.5,
    "logistic": lambda rng, shape: rng.logistic(0, 3**0.5 / np.pi, shape),
    "unequal groups": _two_kinds,
    "exponential": lambda rng, shape: rng.exponential(1.0, shape) - 1.0,
}

_MANY = 1_000_000


@dataclass(frozen=True)
class Process:
    """How answers come about: the effects' distribution, the population's mean, and whether answers are yes or no.

    ``effects`` "probit" takes normal effects on the probit scale, and "always yes" has a rare occupation that says yes
    19 times in 20, which is half of the mean (at most one occupation in 20).
    """

    effects: str
    mean: float
    is_binary: bool = False

    def draw(self, rng: Rng, samples: int, occupations: int, templates: int) -> tuple[Floats, float]:
        """Samples (samples, occupations, templates) and the true value. One template stands for itself."""
        of_template = self._effect(rng, (samples, 1, templates)) if templates > 1 else 0.0
        between, spread, rest = SPREADS
        odds = between * self._effect(rng, (samples, occupations, 1)) + spread * of_template
        odds = odds + rest * self._effect(rng, (samples, occupations, templates))
        chance = self._chance(odds + middle_of(self, templates > 1))
        if self.effects == "always yes":
            share, rate = _rare(self.mean)
            chance = np.where(rng.random((samples, occupations, 1)) < share, rate, chance)
        if self.is_binary:
            chance = (rng.random(chance.shape) < chance).astype(float)
        return chance, self.mean

    def _effect(self, rng: Rng, shape: tuple[int, ...]) -> Floats:
        if self.effects in ("probit", "always yes"):
            return rng.standard_normal(shape)
        return EFFECTS[self.effects](rng, shape)

    def _chance(self, odds: Floats) -> Floats:
        if self.effects == "probit":
            return special.ndtr(odds / 1.7)
        return special.expit(odds)


def _rare(mean: float) -> tuple[float, float]:
    """The share of the occupations that nearly always say yes, and how often they do."""
    return min(mean / 2 / 0.95, 0.05), 0.95


@lru_cache(maxsize=256)
def middle_of(process: Process, with_templates: bool) -> float:
    """The middle of the log-odds at which the population has its mean."""
    rng = np.random.default_rng(20)
    between, spread, rest = SPREADS
    odds = between * process._effect(rng, (_MANY,)) + rest * process._effect(rng, (_MANY,))
    if with_templates:
        odds += spread * process._effect(rng, (_MANY,))
    wanted = process.mean
    if process.effects == "always yes":
        share, rate = _rare(process.mean)
        wanted = (process.mean - share * rate) / (1 - share)
    return float(optimize.brentq(lambda at: process._chance(odds + at).mean() - wanted, -12, 12, xtol=1e-4))


@dataclass(frozen=True)
class GapProcess:
    """The difference between the mean probabilities of two groups of occupations of one suite, asked in the same
    templates. The second group has ``lean`` higher log-odds."""

    effects: str
    lean: float = 0.8

    def draw(self, rng: Rng, samples: int, groups: tuple[int, int], templates: int) -> tuple[list[Floats], float]:
        """Samples (samples, occupations, templates) of the two groups, and the true gap, first minus second."""
        effect = EFFECTS[self.effects]
        between, spread, rest = SPREADS
        shared = spread * effect(rng, (samples, 1, templates))
        found = []
        for group, occupations in enumerate(groups):
            odds = between * effect(rng, (samples, occupations, 1)) + rest * effect(
                rng, (samples, occupations, templates)
            )
            own = 0.2 * effect(rng, (samples, 1, templates))
            found.append(special.expit(odds + shared + own + (0.5 - group) * self.lean))
        return found, _gap(self)


@lru_cache(maxsize=64)
def _gap(process: GapProcess) -> float:
    rng = np.random.default_rng(21)
    effect, (between, spread, rest) = EFFECTS[process.effects], SPREADS
    odds = sum(s * effect(rng, (_MANY,)) for s in (between, spread, rest, 0.2))
    return float((special.expit(odds + process.lean / 2) - special.expit(odds - process.lean / 2)).mean())

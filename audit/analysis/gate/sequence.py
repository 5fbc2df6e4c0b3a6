"""Whether a figure got worse, judged every night: one e-process over all nights since the baseline.

A test at 95 % that is repeated every night eventually raises a false alarm. Let z_k be night k's excess of the harm
over the margin, in standard errors of its noise: at the margin's edge it is standard normal, whatever came before, as
the questions and the baseline stay and only the noise is new. Then exp(λ z_k - λ²/2) has the expectation 1 or less, and
so does the product over nights from s to k. A change may come on any night, so the products are averaged,

    M_k = Σ_{s ≤ k} w_s · mean over λ of Π_{j = s..k} exp(λ z_j - λ²/2),    w_s = s^-1.5 / ζ(1.5),

and by Ville's inequality the chance that M ever reaches 1 / α is at most α while the harm keeps the margin (Ramdas,
Grünwald, Vovk, Shafer 2023, Statistical Science 38(4); started on any night: Shin, Ramdas, Rinaldo 2024, NEJSDS 2(2)).

The baseline's own noise is the same on every night. Half of α is for it: the margin is raised by its one-sided bound.

Where nights and baseline share no question, the errors of two nights are not independent (both may lack a kind of
occupation): then each night stands for itself, as w_k · exp(λ z_k - λ²/2), which is alpha spending (Lan and DeMets
1983, Biometrika 70(3)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy import special

from audit.analysis.estimators.estimate import smallest_error, t_quantile, t_share_below

_DECLINE = 1.5
#: Bets, in standard errors: one of them is near the excess that there is.
_BETS = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
#: What the first set of questions has of the baseline's part of the error; further sets share the rest.
_FIRST_SET = 0.8

N = TypeVar("N", bound="Noise")


def share_of_look(number: int) -> float:
    """The share of the error over all looks that look ``number`` (from 1) may spend."""
    return float(number**-_DECLINE / special.zeta(_DECLINE))


@dataclass(frozen=True, slots=True)
class Noise:
    """What the change of a figure since its baseline is uncertain by.

    Attributes
    ----------
    se, base_se, df : float
        Standard errors of the night's part and of the baseline's, and their degrees of freedom. 0: known exactly.
    run_variance, base_run_variance : float
        Variance of the figure between the night's ``runs``, and between the baseline's. With two or more of each, the
        errors over nights follow from these variances, of all nights so far.
    """

    se: float = 0.0
    base_se: float = 0.0
    df: float = math.inf
    run_variance: float = 0.0
    base_run_variance: float = 0.0
    runs: int = 1
    base_runs: int = 1

    @property
    def total(self) -> float:
        """Standard error of the change."""
        return math.hypot(self.se, self.base_se)

    def reach(self, alpha: float) -> float:
        """How far a two-sided interval reaches to either side."""
        return self.total * t_quantile(self.df, 1 - alpha / 2)

    def p_above(self, excess: float) -> float:
        """One-sided p-value of "there is no excess"."""
        if math.isnan(excess):
            return 1.0
        if self.total == 0:
            return 0.0 if excess > 0 else 1.0
        return t_share_below(self.df, -excess / self.total)

    @classmethod
    def of_runs(cls, before: Sequence[float], now: Sequence[float]) -> Noise:
        """From a figure's values in the runs of the baseline and in those of the night, which hold the items' noise."""
        base, own = float(np.var(before, ddof=1)), float(np.var(now, ddof=1))
        if math.isnan(base + own):  # a run without a value
            return cls(math.inf, math.inf)
        (found,) = _with_all_runs([cls(0.0, 0.0, 0.0, own, base, len(now), len(before))])
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Noise):
    """A figure on one night, against its baseline, with its noise.

    Attributes
    ----------
    up, down : float
        The least harm if the figure moved up or down; -inf if that side is no harm.
    questions, answers : str
        Hashes of the questions that both share, and of the answers.
    accumulates : bool
        Whether the errors of nights are independent, given the questions.
    """

    up: float
    down: float
    questions: str = ""
    answers: str = ""
    accumulates: bool = True


def shows(looks: Sequence[Look], margin: float, alpha: float) -> bool:
    """Whether the looks show a harm above the margin at the error ``alpha``."""
    is_noisy = any(look.base_se > 0 for look in looks)
    of_nights = alpha / 2 if is_noisy else alpha
    return evidence(looks, margin, alpha - of_nights) >= -math.log(of_nights)


def p_of_harm(looks: Sequence[Look], margin: float) -> float:
    """The smallest error α at which the looks so far, the last of them tonight's, show a harm above the margin.

    It may be read on any night: while the harm keeps the margin, the chance that it is ever α or less is at most α.
    """
    if not looks or not math.isfinite(max(looks[-1].up, looks[-1].down)):
        return 1.0
    return smallest_error(lambda alpha: shows(looks, margin, alpha), 1.01)


def evidence(looks: Sequence[Look], margin: float, of_baseline: float) -> float:
    """log M of the last look, with the error ``of_baseline`` for the bound of the baseline's noise."""
    sides = [side for side in ("up", "down") if any(getattr(look, side) > -math.inf for look in looks)]
    if not sides:
        return -math.inf
    sets: dict[str, int] = {}
    running = {side: np.full(len(_BETS), -math.inf) for side in sides}
    last = running
    for number, look in enumerate(_with_all_runs(looks), 1):
        place = sets.setdefault(look.questions, len(sets))
        share = _FIRST_SET if place == 0 else (1 - _FIRST_SET) * share_of_look(place)
        room = -look.base_se * t_quantile(look.df, of_baseline * share) if look.base_se else 0.0
        weight = math.log(share_of_look(number))
        last = {}
        for side in sides:
            z = _score(getattr(look, side) - margin - room, look.se, look.df)
            if not math.isfinite(z):  # known exactly: the nights before say nothing more
                running[side] = last[side] = np.full(len(_BETS), z)
                continue
            bet = _BETS * z - _BETS**2 / 2
            last[side] = weight + bet
            if look.accumulates:
                running[side] = last[side] = np.logaddexp(running[side], weight) + bet
    return float(special.logsumexp(np.concatenate(list(last.values())))) - math.log(len(_BETS) * len(sides))


def _with_all_runs(nights: Sequence[N]) -> list[N]:
    """The nights with errors from the variance between runs, of all nights until each."""
    found, squares, df = [], 0.0, 0
    for night in nights:
        if night.runs > 1 and night.base_runs > 1:
            if df == 0:
                squares, df = night.base_run_variance * (night.base_runs - 1), night.base_runs - 1
            squares, df = squares + night.run_variance * (night.runs - 1), df + night.runs - 1
            se, base_se = math.sqrt(squares / df / night.runs), math.sqrt(squares / df / night.base_runs)
            night = replace(night, se=se, base_se=base_se, df=df)
        found.append(night)
    return found


def _score(excess: float, se: float, df: float) -> float:
    """The excess in standard errors, as a normal score of Student's t: at the margin's edge it is standard normal."""
    if se == 0:
        return math.copysign(math.inf, excess) if excess != 0 else -math.inf
    t = excess / se
    if not math.isfinite(df) or not math.isfinite(t):
        return t
    return math.copysign(float(-special.ndtri(special.stdtr(df, -abs(t)))), t)

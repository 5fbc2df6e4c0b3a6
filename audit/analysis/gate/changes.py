"""What may be claimed of a figure's change since the baseline.

Worse means farther from the figure's neutral value. The harm of a change is |current - neutral| - |baseline - neutral|;
of a figure without a neutral value any change is harm. A figure has

* regressed    if the harm is shown to be above the margin, over all nights (`audit.analysis.gate.sequence`);
* improved     if this run shows it to be below minus the margin;
* unchanged    if this run shows the change to lie within ± the margin (two one-sided tests, Schuirmann 1987);
* otherwise it is inconclusive: lack of data never means "unchanged".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from audit.analysis.gate.results import GatedFigure, GateVerdict
from audit.analysis.gate.same_items import Bounds, Change, change_of, harm_of, hash_of, look_at, total_of
from audit.analysis.gate.sequence import Look, p_of_harm
from audit.analysis.gate.shared import Shared
from audit.results import Measure, OpenBecause
from suites.base import MeasureSpec

_UNKNOWN = (math.nan, math.nan)


def change_of_intervals(before: Measure, now: Measure, z: float) -> Change:
    """The change of which only the two runs' intervals are known, as if these were independent; ``z``: their reach in
    standard errors."""
    ends = []
    for of in (before, now):
        if of.bound_low is None or of.bound_high is None or of.low is None or of.high is None:
            return Change(_UNKNOWN, _UNKNOWN, _UNKNOWN, math.inf, math.inf, math.inf)
        ends.append(((of.bound_low, of.bound_high), max(of.bound_low - of.low, of.high - of.bound_high) / z))
    (was, base_se), (is_now, se) = ends
    return Change(was, is_now, (is_now[0] - was[1], is_now[1] - was[0]), se, math.inf, base_se)


@dataclass(frozen=True)
class Candidate:
    """A figure that is compared with the baseline: its change whatever is missing, and what else is known of it.

    Attributes
    ----------
    answered : Change
        Over the questions answered in both runs.
    with_unpaired : Change
        With those that have a value in one run alone, which may be any in the other.
    neutral, margin
        As in a `GatedFigure`.
    earlier : sequence of Look
        The nights before, oldest first.
    """

    model: str
    suite: str
    spec: MeasureSpec
    change: Change
    answered: Change
    with_unpaired: Change
    neutral: float | None
    margin: float
    look: Look
    n_items: int
    n_missing: int = 0
    n_unpaired: int = 0
    on_shared: bool = True
    is_exact: bool = False
    is_defined: bool = True
    new: tuple[float | None, float | None] = (None, None)
    earlier: Sequence[Look] = field(default_factory=list)

    @property
    def looks(self) -> list[Look]:
        """The different looks so far, tonight's last: if its answers came before, up to that night."""
        seen: dict[str, Look] = {}
        for number, look in enumerate([*self.earlier, self.look]):
            name = look.answers or str(number)
            seen.setdefault(name, look)
            if name == self.look.answers:
                break
        return list(seen.values())

    def p_regressed(self) -> float:
        """p-value of "the harm is within the margin", over all nights."""
        return p_of_harm(self.looks, self.margin)

    def p_improved(self) -> float:
        """p-value of "the harm is no less than minus the margin", of this run."""
        if self.neutral is None:
            return 1.0
        harm, change = self._harm(self.with_unpaired), self.with_unpaired
        return _p(-harm[1] - self.margin, change)

    def p_changed(self) -> float:
        """p-value of "the change is the margin or more", of this run."""
        low, high = self.with_unpaired.change
        return max(_p(low + self.margin, self.with_unpaired), _p(self.margin - high, self.with_unpaired))

    def _harm(self, change: Change) -> Bounds:
        if math.isnan(sum(change.change)):
            return _UNKNOWN
        total = total_of(change, self.neutral, self.spec.value_range)
        if total is None:
            low, high = change.change
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        return harm_of(change.change, total)

    def figure(self, p: tuple[float, float, float], alpha: float) -> GatedFigure:
        """The decided figure. ``p``: corrected p-values of regressed, improved and changed."""
        worse, better, changed = (value <= alpha for value in p)
        rest: GateVerdict = "improved" if better else "unchanged" if changed else "inconclusive"
        verdict: GateVerdict = "regressed" if worse else rest
        harm, change = self._harm(self.change), self.change
        reach = change.total_se * _t(change.df, alpha)
        alone = _p(max(self.look.up, self.look.down) - self.margin, change) <= alpha
        is_known = math.isclose(*self.answered.before, abs_tol=1e-12) and math.isclose(
            *self.answered.now, abs_tol=1e-12
        )
        return GatedFigure(
            model=self.model,
            suite=self.suite,
            measure=self.spec.measure,
            where=dict(self.spec.where),
            verdict=verdict,
            tonight="regressed" if alone else rest,
            look=len(self.looks),
            on_shared=self.on_shared,
            is_exact=self.is_exact,
            baseline=_finite(self.answered.before[0]) if is_known else None,
            current=_finite(self.answered.now[0]) if is_known else None,
            change=_finite(self.answered.change[0]) if is_known else None,
            low=_finite(change.change[0] - reach),
            high=_finite(change.change[1] + reach),
            harm_low=_finite(harm[0] - reach),
            harm_high=_finite(harm[1] + reach),
            new_low=self.new[0],
            new_high=self.new[1],
            p_regressed=_finite(p[0]),
            margin=self.margin,
            neutral=self.neutral,
            n_items=self.n_items,
            n_missing=self.n_missing,
            n_unpaired=self.n_unpaired,
            primary=self.spec.primary,
            population=self.spec.population,
            open_because=self._why_open(alpha) if verdict == "inconclusive" else None,
            is_defined=self.is_defined,
        )

    def _why_open(self, alpha: float) -> OpenBecause | None:
        """Why nothing is claimed, if it is not for want of questions."""
        if self.n_missing and self._may_hide(self.change, alpha):
            return "missing answers"
        if self.n_unpaired and self._may_hide(self.with_unpaired, alpha):
            return "unpaired items"
        of_baseline, of_run = (end[1] - end[0] for end in (self.answered.before, self.answered.now))
        if of_run - of_baseline > self.margin:
            return "wider bounds"
        reach = self.change.total_se * _t(self.change.df, alpha)
        moved = self.change.change[0] - reach > self.margin or self.change.change[1] + reach < -self.margin
        return "side of neutral unknown" if moved and self.neutral is not None else None

    def _may_hide(self, change: Change, alpha: float) -> bool:
        """Whether a change with wider bounds than that of the answered questions leaves open what these decide, or
        may hide a harm above the margin."""
        if math.isnan(sum(change.change)):
            return True
        (seen_low, seen_high), (low, high) = self._harm(self.answered), self._harm(change)
        if math.isnan(seen_low) or low >= seen_low >= seen_high >= high:
            return math.isnan(seen_low)
        reach = self.answered.total_se * _t(self.answered.df, alpha)
        within = max(abs(self.answered.change[0]), abs(self.answered.change[1])) + reach < self.margin
        decided = within or seen_low - reach > self.margin or seen_high + reach < -self.margin
        return decided or (high > self.margin >= seen_high) or high - reach > self.margin


def of_shared(
    found: Shared, unpaired: Shared | None, limits: Bounds, *, is_exact: bool
) -> tuple[Change, Change, Change]:
    """The change whatever is missing; of the answered questions; and with those that are unpaired."""
    change = change_of(found.figure, found.before, found.now, limits, is_exact=is_exact)
    wide = (
        change
        if unpaired is None
        else change_of(unpaired.figure, unpaired.before, unpaired.now, limits, is_exact=is_exact)
    )
    wide = wide._replace(se=change.se, base_se=change.base_se, df=change.df)
    if found.answered.all():
        return change, change, wide
    kept = found.answered_only()
    if kept is None:
        return change, Change(_UNKNOWN, _UNKNOWN, _UNKNOWN, 0.0, math.inf, 0.0), wide
    return change, change_of(kept.figure, kept.before, kept.now, limits, is_exact=is_exact), wide


def look_of_change(
    change: Change, neutral: float | None, spec: MeasureSpec, questions: str, answers: str, *, accumulates: bool
) -> Look:
    """Tonight's look of the sequence."""
    names = {"questions": questions, "answers": answers, "accumulates": accumulates}
    return look_at(change, neutral, spec.value_range, **names)


def hash_of_answers(found: Shared) -> str:
    """A hash of the run's answers to the shared questions."""
    return hash_of(found.names, found.now.low, found.now.high)


def _p(excess: float, change: Change) -> float:
    """One-sided p-value of "there is no excess"."""
    if math.isnan(excess):
        return 1.0
    if change.total_se == 0:
        return 0.0 if excess > 0 else 1.0
    t = excess / change.total_se
    return float(special.stdtr(change.df, -t) if math.isfinite(change.df) else special.ndtr(-t))


def _t(df: float, alpha: float) -> float:
    return float(special.stdtrit(df, 1 - alpha / 2) if math.isfinite(df) else special.ndtri(1 - alpha / 2))


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None

"""A figure's change between two runs, the harm in it, and what may be claimed of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from scipy import special

from audit.analysis.comparing.paired import End, PairedDifference
from audit.analysis.decisions import Claim, Decision, highest_confidence, why_open
from audit.analysis.estimators import finite
from audit.analysis.gate.results import GatedFigure, GateVerdict
from audit.results import FigureName, Measure

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Change:
    """A figure's change against the baseline.

    Attributes
    ----------
    neutral : float or None
        The value that the harm is measured from; None: any change is harm.
    paired : bool
        Whether it was taken item by item.
    is_defined : bool
        Whether the run has a value of the figure, or bounds.
    """

    name: FigureName
    neutral: float | None
    difference: PairedDifference
    paired: bool = True
    is_defined: bool = True

    def harm(self, change: Interval, room: float = 0.0) -> Interval:
        """Interval of the harm: its extremes over an interval of the change and the baseline's bounds.

        ``room``: how far beyond these the baseline may lie.
        """
        low, high = change
        if self.neutral is None:
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        a, b = self.difference.a_low - self.neutral - room, self.difference.a_high - self.neutral + room
        # |base + change| - |base| is piecewise linear: extremes lie at ends and kinks.
        bases = {a, b, *(x for x in (0.0, -low, -high) if a < x < b)}
        harms = [
            abs(base + change) - abs(base)
            for base in bases
            for change in (low, high, *([-base] if low < -base < high else []))
        ]
        return min(harms), max(harms)

    def harm_at(self, confidence: float) -> Interval:
        """Confidence interval of the harm."""
        return self._of(self.difference.interval, confidence)

    def harm_with_unpaired(self, confidence: float) -> Interval:
        """The same of all items, see `PairedDifference.interval_with_unpaired`."""
        return self._of(self.difference.interval_with_unpaired, confidence, self.difference.unpaired_room)

    def harm_with_unseen(self, confidence: float) -> Interval:
        """The same with room for clusters of a kind not seen, see `PairedDifference.interval_with_unseen`."""
        return self._of(self.difference.interval_with_unseen, confidence, self.difference.unpaired_room)

    def _of(self, interval: Callable[[float], Interval], confidence: float, room: float = 0.0) -> Interval:
        low, high = interval(confidence)
        return self.harm((low, high), room) if math.isfinite(low) and math.isfinite(high) else (math.nan, math.nan)

    def claims(self, alpha: float) -> list[Claim]:
        """That it regressed, improved, or is unchanged. Above ``alpha`` the p of "unchanged" does not matter."""
        is_known = all(map(math.isfinite, self.difference.interval(0.5)))
        worse, better, outside = self._p_of_harm(alpha) if is_known else (math.nan, math.nan, math.nan)
        return [
            Claim("regressed", worse),
            Claim("improved", better, needs_pairs=True),
            Claim("unchanged", outside, needs_pairs=True),
        ]

    def _p_of_harm(self, alpha: float) -> tuple[float, float, float]:
        """p against harm above the margin, below minus the margin, and within ± the margin."""
        margin = self.difference.margin
        worse = 1 - highest_confidence(lambda level: self.harm_at(level)[0] > margin)
        better = 1.0
        if self.neutral is not None:
            better = 1 - highest_confidence(lambda level: self.harm_with_unpaired(level)[1] < -margin)
        # Two one-sided tests: their p is half of that of the two-sided interval.
        shown = highest_confidence(lambda level: _within(self.harm_with_unseen(level), margin), 1 - 2 * alpha)
        outside = (1 - shown) / 2 if shown else 1.0
        if self.difference.discordant is not None:  # yes or no: as in a comparison, the more conservative test counts
            outside = max(outside, self.difference.p_of_counts_outside)
            worse, better = (max(p, self.difference.p) for p in (worse, better))
        return worse, better, outside

    def figure(self, decision: Decision, alpha: float) -> GatedFigure:
        """The change and its harm, with what was decided about them."""
        difference, answered = self.difference, self.difference.answered
        low, high = difference.interval(1 - alpha)
        complete = (math.nan, math.nan) if difference.complete is None else difference.complete.interval(1 - alpha)
        harm, (decided, confidence) = self.harm_at(1 - alpha), self._decided(decision)
        exact = answered.exact and answered.a_low == answered.a_high
        verdict: GateVerdict = decision.outcome or "inconclusive"  # type: ignore[assignment]
        if_answered = replace(self, difference=answered).claims(alpha)
        if_paired = replace(self, difference=difference.of_pairs).claims(alpha) if difference.n_unpaired else ()
        return GatedFigure(
            model=self.name.model or "",
            suite=self.name.suite,
            measure=self.name.measure,
            where=dict(self.name.where),
            verdict=verdict,
            baseline=finite(answered.a_low) if exact else None,
            current=finite(answered.a_low + answered.low.value) if exact else None,
            change=finite(answered.low.value) if exact else None,
            low=finite(low),
            high=finite(high),
            bound_low=finite(difference.low.value),
            bound_high=finite(difference.high.value),
            complete_case_low=finite(complete[0]),
            complete_case_high=finite(complete[1]),
            harm_low=finite(harm[0]),
            harm_high=finite(harm[1]),
            p_regressed=finite(decision.p_adjusted[0]),
            decided_low=finite(decided[0]),
            decided_high=finite(decided[1]),
            decided_confidence=finite(confidence),
            unchanged_within=finite(max(map(abs, self.harm_with_unseen(1 - 2 * decision.levels[2])))),
            largest_change=difference.assumed_change,
            open_because=why_open(
                decision,
                if_answered,
                if_paired,
                may_hide=self._may_hide_harm(decision, alpha),
                is_seen_alike=_within(self.harm_at(1 - 2 * decision.levels[2]), difference.margin),
            ),
            margin=difference.margin,
            neutral=self.neutral,
            primary=difference.spec.primary,
            population=difference.spec.population,
            levels=difference.levels,
            n_items=difference.n_items,
            n_missing=difference.n_missing,
            n_unpaired=difference.n_unpaired,
            n_clusters=difference.n_clusters,
            paired=self.paired,
            is_defined=self.is_defined,
        )

    def _decided(self, decision: Decision) -> tuple[Interval, float]:
        """The interval of the harm that decided, and its confidence."""
        if decision.outcome == "unchanged":
            confidence = 1 - 2 * decision.levels[2]
            return self.harm_with_unseen(confidence), confidence
        if decision.outcome == "improved":
            return self.harm_with_unpaired(1 - decision.levels[1]), 1 - decision.levels[1]
        return self.harm_at(1 - decision.levels[0]), 1 - decision.levels[0]

    def _may_hide_harm(self, decision: Decision, alpha: float) -> bool:
        """Whether the missing answers may hold a harm above the margin.

        They may where the others show none and they alone could amount to it, and where the others show one that is not
        sure and would be, moved by the most that the missing ones could have added.
        """
        difference = self.difference
        if decision.outcome is not None or not difference.n_missing:
            return False
        answered = replace(self, difference=difference.answered)
        seen, worst = (
            change.harm((change.difference.low.value, change.difference.high.value))[1] for change in (answered, self)
        )
        if math.isnan(worst):
            return math.isfinite(seen)
        if math.isnan(seen):  # what is missing leaves the others without a value: a stratum that nobody answered
            return worst > difference.margin
        if seen <= difference.margin:
            return worst > difference.margin
        moved = (_moved(difference.answered, to) for to in (difference.low.value, difference.high.value))
        return any(replace(self, difference=change).claims(alpha)[0].p < decision.levels[0] for change in moved)


def _moved(difference: PairedDifference, value: float) -> PairedDifference:
    """The same with its error around another value."""
    low, high = (end._replace(value=value) for end in (difference.low, difference.high))
    return replace(difference, low=low, high=high, discordant=None)


def _within(harm: Interval, margin: float) -> bool:
    return -margin < harm[0] and harm[1] < margin


def change_of_intervals(before: Measure, now: Measure, confidence_before: float, confidence: float) -> PairedDifference:
    """The change between two figures whose items are not at hand: their errors add up."""
    fewest = min((before, now), key=lambda measure: measure.least_levels)
    difference = PairedDifference(
        now.spec,
        0,
        1,
        "intervals",
        min(now.n_items, before.n_items),
        n_missing=now.missing + before.missing,
        levels=fewest.levels or {"item": fewest.n_clusters},
        weighted_levels=[(1.0, fewest.least_levels)],
        largest_change=now.spec.limits[1] - now.spec.limits[0],
    )
    _place(difference, _ends(before, confidence_before), _ends(now, confidence))
    if difference.n_missing:
        difference.complete = replace(difference, n_missing=0, complete=None)
        _place(difference.complete, _answered_ends(before, confidence_before), _answered_ends(now, confidence))
    return difference


def _place(difference: PairedDifference, old: tuple[End, End] | None, new: tuple[End, End] | None) -> None:
    if old is None or new is None:
        return
    (old_low, old_high), (new_low, new_high) = old, new
    difference.low = End(new_low.value - old_high.value, math.hypot(new_low.se, old_high.se), math.inf)
    difference.high = End(new_high.value - old_low.value, math.hypot(new_high.se, old_low.se), math.inf)
    difference.a_low, difference.a_high = old_low.value, old_high.value


def _ends(measure: Measure, confidence: float) -> tuple[End, End] | None:
    """A figure's two identification bounds with the errors that its interval implies; None without an interval."""
    return _implied(measure.low, measure.bound_low, measure.bound_high, measure.high, confidence)


def _answered_ends(measure: Measure, confidence: float) -> tuple[End, End] | None:
    """The same of the items with a readable answer alone."""
    if measure.complete_case_low is None:
        return _ends(measure, confidence)
    value = measure.value
    return _implied(measure.complete_case_low, value, value, measure.complete_case_high, confidence)


def _implied(
    low: float | None, bound_low: float | None, bound_high: float | None, high: float | None, confidence: float
) -> tuple[End, End] | None:
    if low is None or high is None or bound_low is None or bound_high is None:
        return None
    z = special.ndtri((1 + confidence) / 2)
    return End(bound_low, (bound_low - low) / z, math.inf), End(bound_high, (high - bound_high) / z, math.inf)

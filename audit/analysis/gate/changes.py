"""A figure's change between two runs, the harm it does, and what may be claimed about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scipy import special

from audit.analysis.comparing.differences import paired_sums
from audit.analysis.comparing.paired import End, PairedDifference
from audit.analysis.decisions import Claim, Decision, decided_facts, highest_confidence, is_within, why_open
from audit.analysis.estimators import finite
from audit.analysis.gate.results import GatedFigure, GateVerdict
from audit.analysis.rows.table import RowTable
from audit.results import FigureName, Measure, OpenBecause
from suites.base import MeasureSpec

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Change:
    """A figure's change against the baseline.

    Let b be the baseline's signed distance from the neutral value and c the run's. The harm is |c| - |b|: its size is
    the smaller of |c - b| and |c + b|, and it is positive if these two have the same sign. So a harm above the margin
    is shown if the change and the sum are both shown to be above it, or both below minus it; an improvement if one is
    above and the other below. Each is tested at the full level (intersection-union test, Berger 1982, Technometrics
    24(4)). A change within the margin rules out harm and improvement beyond it, on whichever side of neutral the two
    are. This allows for the baseline's own sampling error: a precisely known change from an imprecise baseline may be
    either.

    Attributes
    ----------
    neutral : float or None
        The value from which harm is measured; None if any change is harm.
    total : PairedDifference or None
        The sum b + c (`audit.analysis.comparing.differences.paired_sums`); None if unknown.
    paired : bool
        Whether the change was computed item by item.
    is_defined : bool
        Whether the run has a value of the figure, or bounds.
    """

    name: FigureName
    neutral: float | None
    difference: PairedDifference
    total: PairedDifference | None = None
    paired: bool = True
    is_defined: bool = True

    def harm(self, change: Interval, total: Interval) -> Interval:
        """Interval of the harm: its extremes over the intervals of the change and of the sum."""
        low, high = change
        if not (math.isfinite(low) and math.isfinite(high)):
            return math.nan, math.nan
        if self.neutral is None:
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        # It is monotonic in each of the two, depending on the other's sign: the extremes are at the corners.
        corners = [_smaller(c, s) for c in change for s in total]
        return min(corners), max(corners)

    def _total(self, of: Callable[[PairedDifference], Interval]) -> Interval:
        """The interval of the sum; if the neutral value is an end of the range, its sign is known."""
        least, most = self.difference.spec.value_range
        if self.neutral is None or self.neutral <= least:
            return math.inf, math.inf
        if self.neutral >= most:
            return -math.inf, -math.inf
        low, high = (math.nan, math.nan) if self.total is None else of(self.total)
        return (low, high) if math.isfinite(low) and math.isfinite(high) else (-math.inf, math.inf)

    def _with(self, of: Callable[[PairedDifference], PairedDifference]) -> Change:
        """The same change on other items."""
        return replace(self, difference=of(self.difference), total=None if self.total is None else of(self.total))

    def harm_at(self, confidence: float) -> Interval:
        """Confidence interval of the harm."""
        return self.harm(self.difference.interval(confidence), self._total(lambda total: total.interval(confidence)))

    def harm_with_unpaired(self, confidence: float) -> Interval:
        """Confidence interval of the harm over all items, see `PairedDifference.interval_with_unpaired`."""
        return self.harm(
            self.difference.interval_with_unpaired(confidence),
            self._total(lambda total: total.interval_with_unpaired(confidence)),
        )

    def change_with_unseen(self, confidence: float) -> Interval:
        """Interval of harm and improvement, with an allowance for clusters of a kind not in the sample."""
        low, high = self.difference.interval_with_unseen(confidence)
        most = max(abs(low), abs(high)) if math.isfinite(low) and math.isfinite(high) else math.nan
        return (-most if self.neutral is not None else 0.0), most

    def claims(self, alpha: float) -> list[Claim]:
        """The claims that it regressed, improved, or is unchanged. Above ``alpha`` the p of "unchanged" is unused."""
        is_known = all(map(math.isfinite, self.difference.interval(0.5)))
        worse, better, outside = self._p_of_harm(alpha) if is_known else (math.nan, math.nan, math.nan)
        return [
            Claim("regressed", worse, is_doubled=True),
            Claim("improved", better, needs_pairs=True, is_doubled=True),
            Claim("unchanged", outside, needs_pairs=True),
        ]

    def _p_of_harm(self, alpha: float) -> tuple[float, float, float]:
        """p-values of the claims: harm above the margin, below minus the margin, and within ± the margin."""
        margin = self.difference.margin
        worse = 1 - highest_confidence(lambda level: self.harm_at(level)[0] > margin)
        better = 1.0
        if self.neutral is not None:
            better = 1 - highest_confidence(lambda level: self.harm_with_unpaired(level)[1] < -margin)
        # The p of two one-sided tests is half of that of the two-sided interval.
        shown = highest_confidence(lambda level: is_within(self.change_with_unseen(level), margin), 1 - 2 * alpha)
        outside = (1 - shown) / 2 if shown else 1.0
        if self.difference.discordant is not None:  # yes/no answers: as in a comparison, use the more conservative test
            outside = max(outside, self.difference.p_of_counts_outside)
            worse, better = (max(p, self.difference.p) for p in (worse, better))
        return worse, better, outside

    def figure(self, decision: Decision, alpha: float) -> GatedFigure:
        """The change, its harm, and the decision about them."""
        difference, answered = self.difference, self.difference.answered
        harm, change = self.harm_at(1 - alpha), self._change_decided(decision)
        exact = answered.exact and answered.a_low == answered.a_high
        verdict: GateVerdict = decision.outcome or "inconclusive"  # type: ignore[assignment]
        if_answered = self._with(lambda of: of.answered).claims(alpha)
        if_paired = self._with(lambda of: of.of_pairs).claims(alpha) if difference.n_unpaired else ()
        return GatedFigure(
            model=self.name.model or "",
            suite=self.name.suite,
            measure=self.name.measure,
            where=dict(self.name.where),
            verdict=verdict,
            baseline=finite(answered.a_low) if exact else None,
            current=finite(answered.a_low + answered.low.value) if exact else None,
            change=finite(answered.low.value) if exact else None,
            harm_low=finite(harm[0]),
            harm_high=finite(harm[1]),
            p_regressed=finite(decision.p_adjusted[0]),
            unchanged_within=finite(self.change_with_unseen(1 - 2 * decision.levels[2])[1]),
            open_because=why_open(
                decision,
                if_answered,
                if_paired,
                may_hide=self._may_hide_harm(decision, alpha),
                is_seen_alike=is_within(difference.interval(1 - 2 * decision.levels[2]), difference.margin),
            )
            or self._wider_bounds(decision)
            or self._side_unknown(decision),
            margin=difference.margin,
            change_decided_low=finite(change[0]),
            change_decided_high=finite(change[1]),
            neutral=self.neutral,
            paired=self.paired,
            is_defined=self.is_defined,
            **decided_facts(difference, alpha, *self._decided(decision)),
        )

    def _decided(self, decision: Decision) -> tuple[Interval, float]:
        """The interval of the harm behind the verdict, and its confidence."""
        if decision.outcome == "unchanged":
            confidence = 1 - 2 * decision.levels[2]
            return self.change_with_unseen(confidence), confidence
        if decision.outcome == "improved":
            return self.harm_with_unpaired(1 - decision.levels[1]), 1 - decision.levels[1]
        return self.harm_at(1 - decision.levels[0]), 1 - decision.levels[0]

    def _change_decided(self, decision: Decision) -> Interval:
        """The interval of the change behind the verdict, at the level at which it was decided."""
        confidence = self._decided(decision)[1]
        if decision.outcome == "unchanged":
            return self.difference.interval_with_unseen(confidence)
        if decision.outcome == "improved":
            return self.difference.interval_with_unpaired(confidence)
        return self.difference.interval(confidence)

    def _side_unknown(self, decision: Decision) -> OpenBecause | None:
        """Whether the figure certainly changed by more than the margin, and only the side of neutral is open."""
        low, high = self.difference.interval(1 - decision.levels[0])
        moved = low > self.difference.margin or high < -self.difference.margin
        return "side of neutral unknown" if decision.outcome is None and self.neutral is not None and moved else None

    def _wider_bounds(self, decision: Decision) -> OpenBecause | None:
        """Whether the run's answers are known so much less closely than the baseline's that this may hide a harm."""
        answered = self.difference.answered
        of_baseline = answered.a_high - answered.a_low
        wider = answered.high.value - answered.low.value - 2 * of_baseline  # the difference has the bounds of both
        return "wider bounds" if decision.outcome is None and wider > self.difference.margin else None

    def _may_hide_harm(self, decision: Decision, alpha: float) -> bool:
        """Whether the missing answers may hide a harm above the margin.

        They may if the others show none but they alone could amount to it; and if the others show one that is not
        significant but would be, shifted by the most that the missing ones could have added.
        """
        difference = self.difference
        if decision.outcome is not None or not difference.n_missing:
            return False
        answered = self._with(lambda of: of.answered)
        seen, worst = (
            change.harm(_bounds(change.difference), change._total(_bounds))[1] for change in (answered, self)
        )
        if math.isnan(worst):
            return math.isfinite(seen)
        if math.isnan(seen):  # the others have no value, since a stratum has no answers
            return worst > difference.margin
        if seen <= difference.margin:
            return worst > difference.margin
        moved = (_moved(difference.answered, to) for to in (difference.low.value, difference.high.value))
        return any(replace(answered, difference=change).claims(alpha)[0].p < decision.levels[0] for change in moved)


def _moved(difference: PairedDifference, value: float) -> PairedDifference:
    """The difference moved to another value, with the same standard error."""
    low, high = (end._replace(value=value) for end in (difference.low, difference.high))
    return replace(difference, low=low, high=high, discordant=None)


def sums_of(
    tables: Sequence[RowTable], spec: MeasureSpec, pairs: Sequence[tuple[int, int]]
) -> list[PairedDifference | None]:
    """For pairs with the first table, the sum of the distances from neutral; None if the side is not in question."""
    least, most = spec.value_range
    is_known = spec.neutral is None or not least < spec.neutral < most
    if is_known or (spec.estimator == "correlation" and spec.neutral != 0):  # mirrored items have the opposite r
        return [None] * len(pairs)
    return [*paired_sums(tables, [spec], pairs)]


def _smaller(change: float, total: float) -> float:
    """(|s + c| - |s - c|) / 2 of a change and a sum: the smaller absolute value, negative if their signs differ."""
    return math.copysign(min(abs(change), abs(total)), math.copysign(1, change) * math.copysign(1, total))


def _bounds(difference: PairedDifference) -> Interval:
    return difference.low.value, difference.high.value


def change_of_intervals(
    before: Measure, now: Measure, confidence_before: float, confidence: float
) -> tuple[PairedDifference, PairedDifference | None]:
    """The change and the sum of two figures without their items, from the figures' intervals."""
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
        is_of_few=before.is_of_few or now.is_of_few,
    )
    total = None if now.neutral is None else replace(difference)
    ends, answered = ((of(before, confidence_before), of(now, confidence)) for of in (_ends, _answered_ends))
    _place(difference, *ends)
    _place_sum(total, now.neutral, *ends)
    if difference.n_missing:
        difference.complete = replace(difference, n_missing=0, complete=None)
        _place(difference.complete, *answered)
        if total is not None:
            total.complete = replace(total, n_missing=0, complete=None)
            _place_sum(total.complete, now.neutral, *answered)
    return difference, total


def _place(difference: PairedDifference, old: tuple[End, End] | None, new: tuple[End, End] | None) -> None:
    if old is None or new is None:
        return
    (old_low, old_high), (new_low, new_high) = old, new
    difference.low = End(new_low.value - old_high.value, math.hypot(new_low.se, old_high.se), math.inf)
    difference.high = End(new_high.value - old_low.value, math.hypot(new_high.se, old_low.se), math.inf)
    difference.a_low, difference.a_high = old_low.value, old_high.value


def _place_sum(
    total: PairedDifference | None, neutral: float | None, old: tuple[End, End] | None, new: tuple[End, End] | None
) -> None:
    if total is None or neutral is None or old is None or new is None:
        return
    # Both rest on the same items, so their errors may be perfectly correlated.
    total.low, total.high = (
        End(ours.value + theirs.value - 2 * neutral, ours.se + theirs.se, math.inf)
        for ours, theirs in zip(new, old, strict=True)
    )


def _ends(measure: Measure, confidence: float) -> tuple[End, End] | None:
    """A figure's identification bounds, with standard errors implied by its interval; None without an interval."""
    return _implied(measure.low, measure.bound_low, measure.bound_high, measure.high, confidence)


def _answered_ends(measure: Measure, confidence: float) -> tuple[End, End] | None:
    """The same for the items with a readable answer alone."""
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

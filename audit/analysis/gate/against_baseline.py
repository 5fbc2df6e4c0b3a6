"""Did it get worse? Each figure of a run against a stored baseline, and against absolute limits.

Worse means farther from the figure's neutral value. The harm of a change is

    harm = |current - neutral| - |baseline - neutral|

with the baseline as it was measured, and the change estimated item by item on the questions that
both runs answered. A figure has

* regressed    where the interval of harm lies entirely above the margin,
* improved     where it lies entirely below minus the margin,
* unchanged    where it lies entirely within ± the margin,
* else the verdict is inconclusive; it is never "unchanged" for want of data.

The intervals are at the run's confidence, with Holm's correction over all figures of the gate (one
correction for each of the three questions): the chance that a gate whose figures are all within
their margins raises any alarm is at most 1 - confidence. A figure without neutral value has no
better side: it is gated only if a margin is given in its name, and then any change counts as harm.
The same holds for a contrast, such as the effect of a debiasing text: its neutral value means "no
effect", and more of an effect is not worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import special

from audit.analysis.decisions import DEFAULT_MARGIN, Claim, Decision, decide, margin_of
from audit.analysis.differences import End, PairedDifference, paired_differences
from audit.analysis.estimators import finite
from audit.analysis.gate.limits import COVERAGE, REFUSALS, Bounds, check_limits
from audit.analysis.gate.results import GatedFigure, GateReport, GateVerdict, Obstacle
from audit.analysis.table import Levels, RowTable, item_index
from audit.results import RENAMED_MEASURES, AuditResult, Measure
from audit.signatures import EXTENT, signature_changes
from backends.errors import ConfigError
from suites.base import Row

#: (model, suite) → the run's rows; empty where they are not kept any more.
RowsOf = Callable[[str, str], Sequence[Row]]
Margins = Mapping[str, float] | float


def gate(
    current: AuditResult,
    baseline: AuditResult | None,
    *,
    rows: RowsOf,
    baseline_rows: RowsOf,
    margins: Margins = DEFAULT_MARGIN,
    limits: Mapping[str, Bounds] | None = None,
    inconclusive_fails: bool = False,
    shares: Mapping[str, float] | None = None,
) -> GateReport:
    """Check a run against a baseline and against absolute limits.

    Parameters
    ----------
    current, baseline : AuditResult
        Models are matched by name, figures by (model, suite, measure, where). Figures of single
        levels (``is_subgroup``) are not gated. Without a baseline only the limits are checked.
    rows, baseline_rows : callable
        ``(model, suite) → rows`` of the two runs. Where either has none, the change is taken from
        the two figures' intervals as if independent, which is the more conservative choice.
    margins : float or mapping of measure name to float
        Harm up to the margin does not matter. In a mapping, ``default`` stands for the measures
        it does not name, else 0.02.
    limits : mapping
        ``{name: (at least, at most)}``, None where open. A name is a measure, ``coverage`` (raw
        mass behind a figure) or ``refusals`` (share of a figure's items that were refused).
    inconclusive_fails : bool
        Whether open questions fail the gate too.
    shares : mapping, optional
        By the id of a figure the share of the error that this look at it may spend, else 1: each figure's interval is
        at ``1 - share * (1 - confidence)``, and its p-values are divided by the share.

    Raises
    ------
    ConfigError
        When a margin or limit names no figure: a misspelt limit must not count as met.
    """
    old = [] if baseline is None else baseline.measures
    check_names([*current.measures, *old], margins, limits or {})
    tables = _Tables(rows, baseline_rows)
    compared: list[_Change | GatedFigure] = []
    if baseline is not None:
        compared += [
            _compared(measure, before, tables, margins, runs=(baseline, current))
            for measure, before in _matched(current, baseline, margins)
        ]
        gone = (measure for measure in _missing_from_run(current, baseline) if _is_gated(measure, margins))
        compared += [_not_comparable(measure, "not in the run") for measure in gone]
    changes = [change for change in compared if isinstance(change, _Change)]
    alpha, of_looks = 1 - current.confidence, [(shares or {}).get(change.measure.id, 1.0) for change in changes]
    family = [
        (change.difference, [claim.in_look(share) for claim in change.claims()])
        for change, share in zip(changes, of_looks, strict=True)
    ]
    decided = iter(
        [
            change.figure(decision, 1 - alpha * share)
            for change, decision, share in zip(changes, decide(family, alpha), of_looks, strict=True)
        ]
    )
    return GateReport(
        run_id=current.run_id,
        baseline_run_id=None if baseline is None else baseline.run_id,
        confidence=current.confidence,
        inconclusive_fails=inconclusive_fails,
        figures=[figure if isinstance(figure, GatedFigure) else next(decided) for figure in compared],
        limits=list(check_limits(current, tables.current, limits or {})),
    )


def check_names(measures: Sequence[Measure], margins: Margins, limits: Mapping[str, Bounds]) -> None:
    """Raise `ConfigError` for a margin or limit that names none of the measures: it would have no effect."""
    names = {measure.measure for measure in measures}
    named = {
        "margins": (margins if isinstance(margins, Mapping) else {}, names | {"default"}),
        "limits": (limits, names | {COVERAGE, REFUSALS}),
    }
    newer = {old: new for names in RENAMED_MEASURES.values() for old, new in names.items()}
    for field, (given, allowed) in named.items():
        for name, value in given.items():
            if name not in allowed:
                hint = f"Use one of: {', '.join(sorted(allowed))}"
                if newer.get(name) in allowed:
                    hint = f"It is now called {newer[name]}"
                raise ConfigError(f"{field}.{name}", value, "no figure has this name", hint)


class _Tables:
    """Rows as tables, read once per (model, suite)."""

    def __init__(self, rows: RowsOf, baseline_rows: RowsOf) -> None:
        self._rows, self._baseline_rows = rows, baseline_rows
        self._key: tuple[str, str] | None = None
        self._now: Sequence[Row] = ()
        self._pair: tuple[RowTable, RowTable] | None = None

    def pair(self, model: str, suite: str) -> tuple[RowTable, RowTable] | None:
        """(baseline, current) over the same item index; None where either run kept no rows."""
        if self._key != (model, suite):
            self._key = (model, suite)
            before, self._now = self._baseline_rows(model, suite), self._rows(model, suite)
            index, levels = item_index([before, self._now]), Levels()
            self._pair = (
                (RowTable(before, index, levels), RowTable(self._now, index, levels)) if before and self._now else None
            )
        return self._pair

    def current(self, model: str, suite: str) -> RowTable | None:
        """The current run's rows; None where it kept none."""
        if pair := self.pair(model, suite):
            return pair[1]
        return RowTable(self._now) if self._now else None


def _is_gated(measure: Measure, margins: Margins) -> bool:
    named = isinstance(margins, Mapping) and measure.measure in margins
    return not measure.is_subgroup and (_reference_value(measure) is not None or named)


def _reference_value(measure: Measure) -> float | None:
    """Where a model should be; None where no side is better."""
    return None if measure.contrast else measure.neutral


def _matched(current: AuditResult, baseline: AuditResult, margins: Margins) -> Iterator[tuple[Measure, Measure | None]]:
    """The run's gated figures, each with that of the baseline."""
    before = {measure.id: measure for measure in baseline.measures}
    for measure in current.measures:
        if _is_gated(measure, margins):
            yield measure, before.get(measure.id)


def _missing_from_run(current: AuditResult, baseline: AuditResult) -> Iterator[Measure]:
    """Figures of the baseline that the run lacks."""
    now = {measure.id for measure in current.measures}
    # A baseline stored before contrasts were marked does not mark its own: the run says which they are.
    contrasts = {(measure.suite, measure.measure) for measure in current.measures if measure.contrast}
    for measure in baseline.measures:
        if measure.id not in now:
            contrast = measure.contrast or (measure.suite, measure.measure) in contrasts
            yield measure.model_copy(update={"contrast": contrast})


def _compared(
    measure: Measure,
    before: Measure | None,
    tables: _Tables,
    margins: Margins,
    runs: tuple[AuditResult, AuditResult],
) -> _Change | GatedFigure:
    """A figure's change between two runs (baseline, current), or why it has none."""
    if before is None:
        return _not_comparable(measure, "not in the baseline")
    changes = signature_changes(before.signature, measure.signature)
    if differing := {key: values for key, values in changes.items() if key not in EXTENT}:
        return _not_comparable(measure, "measured differently", differing=differing)
    pair = tables.pair(measure.model, measure.suite)
    if pair is None:
        difference = _from_intervals(before, measure, *(run.confidence for run in runs))
    else:
        (difference,) = paired_differences(pair, measure.spec, [(0, 1)])
        if difference.n_items == 0:
            undefined_for = [("baseline", "run")[i] for i in difference.undefined]
            return _not_comparable(measure, "nothing in common", undefined_for=undefined_for)
    difference.margin = margin_of(margins, measure.measure)
    return _Change(measure, difference, paired=pair is not None)


def _not_comparable(measure: Measure, obstacle: Obstacle, **facts: Any) -> GatedFigure:
    return GatedFigure(
        model=measure.model,
        suite=measure.suite,
        measure=measure.measure,
        where=measure.where,
        verdict="not comparable",
        obstacle=obstacle,
        **facts,
    )


def _from_intervals(before: Measure, now: Measure, confidence_before: float, confidence: float) -> PairedDifference:
    """The change between two figures whose items are not at hand: their errors add up."""
    difference = PairedDifference(now.spec, 0, 1, "intervals", min(now.n_items, before.n_items))
    old, new = _ends(before, confidence_before), _ends(now, confidence)
    if old is not None and new is not None:
        (old_low, old_high), (new_low, new_high) = old, new
        difference.low = End(new_low.value - old_high.value, math.hypot(new_low.se, old_high.se), math.inf)
        difference.high = End(new_high.value - old_low.value, math.hypot(new_high.se, old_low.se), math.inf)
        difference.a_low, difference.a_high = old_low.value, old_high.value
    return difference


def _ends(measure: Measure, confidence: float) -> tuple[End, End] | None:
    """A figure's two identification bounds with the errors that its interval implies; None without an interval."""
    low, high, bound_low, bound_high = measure.low, measure.high, measure.bound_low, measure.bound_high
    if low is None or high is None or bound_low is None or bound_high is None:
        return None
    z = special.ndtri((1 + confidence) / 2)
    return End(bound_low, (bound_low - low) / z, math.inf), End(bound_high, (high - bound_high) / z, math.inf)


@dataclass(frozen=True, slots=True)
class _Change:
    """A figure's change against the baseline and the harm in it."""

    measure: Measure
    difference: PairedDifference
    paired: bool

    @property
    def is_known(self) -> bool:
        """Whether the change has an interval."""
        return all(map(math.isfinite, self.difference.interval(0.5)))

    def harm(self, confidence: float) -> tuple[float, float]:
        """Interval of the harm: its extremes over the change's interval and the baseline's bounds."""
        low, high = self.difference.interval(confidence)
        neutral = _reference_value(self.measure)
        if neutral is None:
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        a, b = self.difference.a_low - neutral, self.difference.a_high - neutral
        # |base + change| - |base| is piecewise linear: extremes lie at ends and kinks.
        bases = {a, b, *(x for x in (0.0, -low, -high) if a < x < b)}
        harms = [
            abs(base + change) - abs(base)
            for base in bases
            for change in (low, high, *([-base] if low < -base < high else []))
        ]
        return min(harms), max(harms)

    def claims(self) -> list[Claim]:
        """That it regressed, improved, or is unchanged."""
        worse, better, outside = self._p_of_harm() if self.is_known else (math.nan, math.nan, math.nan)
        return [
            Claim("regressed", worse),
            Claim("improved", better, needs_pairs=True),
            Claim("unchanged", outside, needs_pairs=True),
        ]

    def _p_of_harm(self) -> tuple[float, float, float]:
        """p against harm above the margin, below minus the margin, and within ± the margin."""
        margin = self.difference.margin
        worse = 1 - _highest_confidence(lambda level: self.harm(level)[0] > margin)
        better = 1.0
        if _reference_value(self.measure) is not None:
            better = 1 - _highest_confidence(lambda level: self.harm(level)[1] < -margin)
        # Two one-sided tests: their p is half of that of the two-sided interval.
        outside = (1 - _highest_confidence(lambda level: _within(self.harm(level), margin))) / 2
        if self.difference.discordant is not None:  # yes or no: as in a comparison, the more conservative test counts
            outside = max(outside, self.difference.p_of_counts_outside)
            worse, better = (max(p, self.difference.p) for p in (worse, better))
        return worse, better, outside

    def figure(self, decision: Decision, confidence: float) -> GatedFigure:
        """The change and its harm, with what was decided about them."""
        difference, measure = self.difference, self.measure
        low, high = difference.interval(confidence)
        known = math.isfinite(low) and math.isfinite(high)
        harm = self.harm(confidence) if known else (math.nan, math.nan)
        exact = difference.exact and difference.a_low == difference.a_high
        verdict: GateVerdict = decision.outcome or "inconclusive"  # type: ignore[assignment]
        return GatedFigure(
            model=measure.model,
            suite=measure.suite,
            measure=measure.measure,
            where=measure.where,
            verdict=verdict,
            baseline=finite(difference.a_low) if exact else None,
            current=finite(difference.a_low + difference.low.value) if exact else None,
            change=finite(difference.low.value) if exact else None,
            low=finite(low),
            high=finite(high),
            bound_low=finite(difference.low.value),
            bound_high=finite(difference.high.value),
            harm_low=finite(harm[0]),
            harm_high=finite(harm[1]),
            p_regressed=finite(decision.p_holm[0]),
            margin=difference.margin,
            neutral=_reference_value(measure),
            n_items=difference.n_items,
            n_unpaired=difference.n_unpaired,
            n_clusters=difference.n_clusters,
            paired=self.paired,
            is_defined=measure.value is not None or measure.bound_low is not None,
        )


def _within(harm: tuple[float, float], margin: float) -> bool:
    return -margin < harm[0] and harm[1] < margin


def _highest_confidence(holds: Callable[[float], bool]) -> float:
    """The highest confidence whose interval still shows it; 0 if none does."""
    if not holds(0.0):
        return 0.0
    shown, open_ = 1.0, 1e-15  # 1 - confidence: shown there, and not shown here
    if holds(1 - open_):
        return 1 - open_
    while shown / open_ > 1.001:
        middle = math.sqrt(shown * open_)
        shown, open_ = (middle, open_) if holds(1 - middle) else (shown, middle)
    return 1 - shown

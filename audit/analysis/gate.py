"""Did it get worse? Each figure of a run against a stored baseline, and against absolute limits.

Worse means farther from the figure's neutral value. The harm of a change is

    harm = |current - neutral| - |baseline - neutral|

with the baseline as it was measured, and the change estimated item by item on the questions that
both runs answered. A figure has

* regressed    where harm is surely above the margin,
* improved     where it is surely below minus the margin,
* unchanged    where it is surely within ± the margin,
* else the verdict is inconclusive; it is never "unchanged" for want of data.

"Surely" is at the run's confidence, with Holm's correction over all figures of the gate (one
correction for each of the three questions): the chance that a gate whose figures are all within
their margins raises any alarm is at most 1 - confidence. A figure without neutral value has no
better side: it is gated only if a margin is given in its name, and then any move counts as harm.
The same holds for a contrast, such as the effect of a debiasing text: its neutral value means "no
effect", and more of an effect is not worse.

An absolute limit is decided on the interval, never on the point. So fewer items can turn a verdict
only towards "insufficient evidence".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from audit.analysis.comparisons import (
    DEFAULT_MARGIN,
    MOST_UNPAIRED,
    PairedDifference,
    nothing_in_common,
    paired_differences,
)
from audit.analysis.estimators import allow_for_few_outcomes, clustered_mean, holm
from audit.analysis.gate_results import (
    GatedFigure,
    GateReport,
    GateVerdict,
    LimitCheck,
    LimitVerdict,
    limit_words,
    span_words,
    title,
)
from audit.analysis.measures import EXTENT, cluster_codes, finite, read_signature
from audit.analysis.table import Bools, Levels, RowTable, item_index
from audit.results import AuditResult, Measure
from backends.errors import ConfigError
from suites.base import MeasureSpec, Row

#: (model, suite) → the run's rows; empty where they are not kept any more.
RowsOf = Callable[[str, str], Sequence[Row]]

#: Limits that are no measure: the raw mass behind a figure, and the share of its items refused.
_COVERAGE, _REFUSALS = "coverage", "refusals"


def gate(
    current: AuditResult,
    baseline: AuditResult | None,
    *,
    rows: RowsOf,
    baseline_rows: RowsOf,
    margins: Mapping[str, float] | float = DEFAULT_MARGIN,
    limits: Mapping[str, tuple[float | None, float | None]] | None = None,
    inconclusive_fails: bool = False,
) -> GateReport:
    """Judge a run against a baseline and against absolute limits.

    Parameters
    ----------
    current, baseline : AuditResult
        Models are matched by name, figures by (model, suite, measure, where). Figures of single
        levels (``is_subgroup``) are not gated. Without a baseline only the limits are judged.
    rows, baseline_rows : callable
        ``(model, suite) → rows`` of the two runs. Where either has none, the change is taken from
        the two figures' intervals as if independent, which is the more careful.
    margins : float or mapping of measure name to float
        Harm up to the margin does not matter. In a mapping, ``default`` stands for the measures
        it does not name, else 0.02.
    limits : mapping
        ``{name: (at least, at most)}``, None where open. A name is a measure, ``coverage`` (raw
        mass behind a figure) or ``refusals`` (share of a figure's items that were refused).
    inconclusive_fails : bool
        Whether open questions fail the gate too.

    Raises
    ------
    ConfigError
        When a margin or limit names no figure: a misspelt limit must not pass for a kept one.
    """
    before = [] if baseline is None else baseline.measures
    check_names([*current.measures, *before], margins, limits or {})
    tables = _Tables(rows, baseline_rows)
    old = {m.id: m for m in before}
    judged: list[_Judged | GatedFigure] = []
    for measure in current.measures if baseline is not None else ():
        if _is_gated(measure, margins):
            judged.append(_judge(measure, old.get(measure.id), tables, margins, current.confidence))
    now = {m.id for m in current.measures}
    # A baseline stored before contrasts were marked does not mark its own: the run says which they are.
    contrasts = {(m.suite, m.measure) for m in current.measures if m.contrast}
    gone = [
        m.model_copy(update={"contrast": m.contrast or (m.suite, m.measure) in contrasts})
        for m in before
        if m.id not in now
    ]
    judged += [_not_comparable(m, "the run has no such figure any more") for m in gone if _is_gated(m, margins)]
    _correct([one for one in judged if isinstance(one, _Judged)], 1 - current.confidence)
    return GateReport(
        run_id=current.run_id,
        baseline_run_id=None if baseline is None else baseline.run_id,
        confidence=current.confidence,
        inconclusive_fails=inconclusive_fails,
        figures=[one if isinstance(one, GatedFigure) else one.figure(current.confidence) for one in judged],
        limits=list(_limit_checks(current, tables, limits or {})),
    )


def check_names(
    measures: Sequence[Measure],
    margins: Mapping[str, float] | float,
    limits: Mapping[str, tuple[float | None, float | None]],
) -> None:
    """Raise `ConfigError` for a margin or limit that names none of the measures: a misspelt one would rule nothing."""
    known = {m.measure for m in measures}
    named = {
        "margins": (margins if isinstance(margins, Mapping) else {}, known | {"default"}),
        "limits": (limits, known | {_COVERAGE, _REFUSALS}),
    }
    for field, (given, allowed) in named.items():
        for name, value in given.items():
            if name not in allowed:
                raise ConfigError(
                    f"{field}.{name}", value, "no figure has this name", f"Use one of: {', '.join(sorted(allowed))}"
                )


# ------------------------------------------------------------------- against the baseline


class _Tables:
    """Rows as tables, read once a (model, suite)."""

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


def _is_gated(measure: Measure, margins: Mapping[str, float] | float) -> bool:
    named = isinstance(margins, Mapping) and measure.measure in margins
    return not measure.is_subgroup and (_reference_value(measure) is not None or named)


def _reference_value(measure: Measure) -> float | None:
    """Where a model should be; None where no side is better."""
    return None if measure.contrast else measure.neutral


@dataclass(slots=True)
class _Judged:
    """A figure's change with its error, and what it amounts to once all figures are corrected."""

    measure: Measure
    baseline: Measure
    change: PairedDifference
    margin: float
    paired: bool
    p_worse: float = 1.0
    p_better: float = 1.0
    p_apart: float = 1.0  # of harm beyond ± margin
    verdict: GateVerdict = "inconclusive"

    def interval(self, confidence: float) -> tuple[float, float]:
        """Interval of the change."""
        one, upper = self.change, (1 + confidence) / 2
        return one.low - _t(one.low_df, upper) * one.low_se, one.high + _t(one.high_df, upper) * one.high_se

    def harm(self, confidence: float) -> tuple[float, float]:
        """Interval of the harm: its extremes over the change's interval and the baseline's bounds."""
        low, high = self.interval(confidence)
        good = _reference_value(self.measure)
        if good is None:
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        a, b = self.change.a_low - good, self.change.a_high - good
        # |base + change| - |base| is piecewise linear: extremes lie at ends and kinks.
        bases = {a, b, *(x for x in (0.0, -low, -high) if a < x < b)}
        harms = [
            abs(base + change) - abs(base)
            for base in bases
            for change in (low, high, *([-base] if low < -base < high else []))
        ]
        return min(harms), max(harms)

    def figure(self, confidence: float) -> GatedFigure:
        low, high = self.interval(confidence)
        known = math.isfinite(low) and math.isfinite(high)
        harm = self.harm(confidence) if known else (math.nan, math.nan)
        one = self.change
        exact = one.low == one.high and one.a_low == one.a_high
        return GatedFigure(
            model=self.measure.model,
            suite=self.measure.suite,
            measure=self.measure.measure,
            where=self.measure.where,
            verdict=self.verdict,
            baseline=finite(one.a_low) if exact else None,
            current=finite(one.a_low + one.low) if exact else None,
            change=finite(one.low) if exact else None,
            low=finite(low),
            high=finite(high),
            harm_low=finite(harm[0]),
            harm_high=finite(harm[1]),
            p_regressed=finite(self.p_worse),
            margin=self.margin,
            n_items=one.n_items,
            n_unpaired=one.left_out,
            paired=self.paired,
            words=self._words(low, high, known),
        )

    def _words(self, low: float, high: float, known: bool) -> str:
        name = f"{title(self.measure)} of {self.measure.model} on {self.measure.suite}"
        if not known:
            if self.measure.value is None and self.measure.bound_low is None:
                return f"{name} is not defined for the run's answers.{self._left_out()}"
            if self.change.low == self.change.high == 0 and self.change.n_clusters > 1:
                alike = "answers that are all alike do not show how far others would move it"
                return f"{name} is that of the baseline: {alike}."
            return f"{name}: {self.change.n_items} items are too few for an interval, or nearly all in one cluster."
        neutral = _reference_value(self.measure)
        span = f"change {span_words(low, high)}, margin {self.margin:g}"
        goal = f"from its neutral value {neutral:.3g}" if neutral is not None else "from the baseline"
        told = {
            "regressed": f"moved away {goal} by more than the margin",
            "improved": f"moved towards its neutral value {neutral or 0:.3g} by more than the margin",
            "unchanged": "is within the margin of the baseline",
        }.get(self.verdict, "may have moved by more than the margin, or not")
        if self.verdict == "inconclusive" and self.change.unpaired_share <= MOST_UNPAIRED:
            told += ": more items are needed"
        return f"{name} {told} ({span}).{self._left_out()}"

    def _left_out(self) -> str:
        if not self.change.left_out:
            return ""
        items = f"{self.change.left_out} of {self.change.left_out + self.change.n_items} items"
        told = f" Left out, as only one of the two runs has a value: {items}."
        if self.change.unpaired_share > MOST_UNPAIRED:
            told += f" More than {MOST_UNPAIRED:.0%} of them may hide a change, so it is not called unchanged."
        return told


def _t(df: float, quantile: float) -> float:
    return float(special.ndtri(quantile) if math.isinf(df) else special.stdtrit(df, quantile))


def _judge(
    measure: Measure, before: Measure | None, tables: _Tables, margins: Mapping[str, float] | float, confidence: float
) -> _Judged | GatedFigure:
    if before is None:
        return _not_comparable(measure, "the baseline has no such figure")
    parts, earlier = (
        {k: v for k, v in read_signature(m.signature).items() if k not in EXTENT} for m in (measure, before)
    )
    differing = sorted(key for key in parts.keys() | earlier.keys() if parts.get(key) != earlier.get(key))
    if differing:
        told = ", ".join(f"{key} (was {earlier.get(key)!r}, is {parts.get(key)!r})" for key in differing)
        return _not_comparable(measure, f"measured otherwise than the baseline: {told}")
    margin = margins
    if isinstance(margins, Mapping):
        margin = margins.get(measure.measure, margins.get("default", DEFAULT_MARGIN))
    assert not isinstance(margin, Mapping)
    pair = tables.pair(measure.model, measure.suite)
    if pair is None:
        return _Judged(measure, before, _from_intervals(measure, before), margin, paired=False)
    (change,) = paired_differences(pair, spec_of(measure), [(0, 1)])
    if change.n_items == 0:
        undefined_for = [("the baseline", "this run")[i] for i in change.undefined]
        return _not_comparable(measure, nothing_in_common(undefined_for, "the two runs", "both runs"))
    change.margin = margin
    return _Judged(measure, before, change, margin, paired=True)


def _not_comparable(measure: Measure, why: str) -> GatedFigure:
    name = f"{title(measure)} of {measure.model} on {measure.suite}"
    return GatedFigure(
        model=measure.model,
        suite=measure.suite,
        measure=measure.measure,
        where=measure.where,
        verdict="not comparable",
        words=f"{name}: {why}.",
    )


def spec_of(measure: Measure) -> MeasureSpec:
    """The specification a measure was made from, read back from its signature."""
    parts = read_signature(measure.signature)
    return MeasureSpec(
        measure.measure,
        parts["quantity"],
        measure.where,
        parts["estimator"],
        tuple(parts["clusters"]),
        parts["covariate"],
        measure.unit,
        measure.neutral,
        measure.family,
        measure.is_subgroup,
        parts["coverage"],
        measure.contrast,
    )


def _from_intervals(now: Measure, before: Measure) -> PairedDifference:
    """The change between two figures whose items are not at hand: their errors add up."""
    change = PairedDifference(spec_of(now), 0, 1, "intervals", min(now.n_items, before.n_items))
    sides: list[tuple[float, float]] = []
    for one in (now, before):
        if one.low is None or one.high is None or one.bound_low is None or one.bound_high is None:
            return change
        z = special.ndtri((1 + float(read_signature(one.signature)["confidence"])) / 2)
        sides.append(((one.bound_low - one.low) / z, (one.high - one.bound_high) / z))
    assert now.bound_low is not None and now.bound_high is not None  # noqa: PT018
    assert before.bound_low is not None and before.bound_high is not None  # noqa: PT018
    (now_low, now_high), (before_low, before_high) = sides
    change.low, change.high = now.bound_low - before.bound_high, now.bound_high - before.bound_low
    change.low_se, change.high_se = math.hypot(now_low, before_high), math.hypot(now_high, before_low)
    change.low_df = change.high_df = math.inf
    change.a_low, change.a_high = before.bound_low, before.bound_high
    return change


def _correct(figures: Sequence[_Judged], alpha: float) -> None:
    for one in figures:
        if math.isfinite(one.interval(0.5)[0]) and math.isfinite(one.interval(0.5)[1]):
            one.p_worse = 1 - _surest(lambda level, one=one: one.harm(level)[0] > one.margin)  # type: ignore[misc]
            if _reference_value(one.measure) is not None:
                one.p_better = 1 - _surest(lambda level, one=one: one.harm(level)[1] < -one.margin)  # type: ignore[misc]
            # Two one-sided tests: their p is half of that of the two-sided interval.
            one.p_apart = (1 - _surest(lambda level, one=one: _within(one.harm(level), one.margin))) / 2  # type: ignore[misc]
            if one.change.only_a is not None:  # yes or no: as in a comparison, the more careful test counts
                one.p_apart = max(one.p_apart, one.change.p_of_counts_outside)
                one.p_worse, one.p_better = (max(p, one.change.p) for p in (one.p_worse, one.p_better))
        else:
            one.p_worse = math.nan
            one.p_better = one.p_apart = math.nan
    for name, verdict in (("p_apart", "unchanged"), ("p_better", "improved"), ("p_worse", "regressed")):
        corrected = holm(np.array([getattr(one, name) for one in figures]))
        for one, p in zip(figures, corrected, strict=True):
            setattr(one, name, float(p))
            if p < alpha and (verdict == "regressed" or one.change.unpaired_share <= MOST_UNPAIRED):
                one.verdict = verdict  # type: ignore[assignment]


def _within(harm: tuple[float, float], margin: float) -> bool:
    return -margin < harm[0] and harm[1] < margin


def _surest(holds: Callable[[float], bool]) -> float:
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


# ------------------------------------------------------------------------- absolute limits


def _limit_checks(
    current: AuditResult, tables: _Tables, limits: Mapping[str, tuple[float | None, float | None]]
) -> Iterator[LimitCheck]:
    for name, bounds in limits.items():
        seen: set[tuple[Any, ...]] = set()
        for measure in current.measures:
            if measure.is_subgroup:
                continue
            if name in (_COVERAGE, _REFUSALS):
                parts = read_signature(measure.signature)
                quantity = parts["coverage"]
                rows = quantity if name == _COVERAGE else parts["quantity"]  # what the figure's items must have
                where = sorted((k, repr(v)) for k, v in measure.where.items())
                key = (measure.model, measure.suite, rows, *parts["clusters"], *where)
                if key in seen or (name == _COVERAGE and quantity is None):
                    continue
                seen.add(key)
                table = tables.current(measure.model, measure.suite)
                value, low, high = _share(table, spec_of(measure), name, current.confidence) if table else _UNKNOWN
            elif measure.measure == name:
                value, low, high = measure.value, measure.low, measure.high
            else:
                continue
            yield _checked(measure, name, bounds, value, low, high)


_UNKNOWN: tuple[float | None, float | None, float | None] = (None, None, None)


def _share(
    table: RowTable, spec: MeasureSpec, name: str, confidence: float
) -> tuple[float | None, float | None, float | None]:
    """Mean coverage of a figure's rows, or the share of them refused, with its clustered interval."""
    matching: Bools = table.matching(spec.where)
    if name == _COVERAGE:
        values = table.quantity(spec.probability_mass or "").low
        used = matching & np.isfinite(values)
    else:
        values = np.array([reason == "refusal" for reason in table.reasons], dtype=float)
        used = matching & (table.has(spec.quantity) | table.missing)
    if not used.any():
        return _UNKNOWN
    clusters = cluster_codes(table, spec, used)
    estimate = clustered_mean(values[used], clusters)
    if name == _REFUSALS:
        estimate = allow_for_few_outcomes(estimate, values[used], clusters, 0.0, 1.0)
    lows, highs = estimate.interval(confidence)
    return float(estimate.value[0]), finite(max(lows[0], 0.0)), finite(min(highs[0], 1.0))


def _checked(
    measure: Measure,
    name: str,
    bounds: tuple[float | None, float | None],
    value: float | None,
    low: float | None,
    high: float | None,
) -> LimitCheck:
    least, most = bounds
    verdict: LimitVerdict = "insufficient evidence"
    if low is not None and high is not None:
        if (least is not None and high < least) or (most is not None and low > most):
            verdict = "broken"
        elif (least is None or low >= least) and (most is None or high <= most):
            verdict = "met"
    what = title(measure) if name == measure.measure else f"{name} of {title(measure)}"
    told = {"met": "keeps", "broken": "breaks"}.get(verdict, "cannot yet be told to keep or break")
    return LimitCheck(
        model=measure.model,
        suite=measure.suite,
        measure=measure.measure,
        where=measure.where,
        limit=name,
        at_least=least,
        at_most=most,
        value=value,
        low=low,
        high=high,
        verdict=verdict,
        words=f"{what} of {measure.model} on {measure.suite} {told} the limit {limit_words(least, most)} "
        f"(interval {span_words(low, high)}).",
    )

"""Did the model get worse? Checks each figure of a run against a stored baseline.

Worse means farther from the figure's neutral value. The harm of a change is

    harm = |current - neutral| - |baseline - neutral|

where the change is estimated item by item on the questions that both runs answered, allowing for the baseline's own
sampling error (`audit.analysis.gate.changes.Change`). A figure has

* regressed    if the interval of the harm lies entirely above the margin,
* improved     if it lies entirely below minus the margin,
* unchanged    if it lies entirely within ± the margin;
* otherwise it is inconclusive: lack of data never means "unchanged".

The intervals are at the run's confidence, corrected for each suite as in `audit.analysis.decisions` (separately for the
three questions): if all primary figures of a suite are within their margins, the chance that any of them raises an
alarm is at most 1 - confidence, and so is the expected share of false alarms among its other figures. A missing answer
may be any value of the quantity's range (`audit.analysis.rows.missing`), and the share of unreadable answers is itself
a primary figure (`audit.analysis.gate.unreadable`).

A figure without a neutral value has no better side: it is gated only if a margin names it, and then any change counts
as harm. The same holds for a contrast, such as the effect of a debiasing text: its neutral value means "no effect", and
a larger effect is not worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.decisions import decide, margin_of
from audit.analysis.gate.changes import Change, change_of_intervals, sums_of
from audit.analysis.gate.limits import check_limits
from audit.analysis.gate.results import GatedFigure, GateReport, Obstacle
from audit.analysis.gate.rules import GateRules, Margins, check_rules
from audit.analysis.gate.unreadable import UNREADABLE_SHARE, unreadable_change
from audit.analysis.rows.table import Levels, RowTable, item_index
from audit.results import AuditResult, FigureName, Measure
from audit.results.signatures import EXTENT, signature_changes
from suites.base import Row

#: (model, suite) → the run's rows; empty if they are no longer stored.
RowsOf = Callable[[str, str], Sequence[Row]]


def gate(
    current: AuditResult,
    baseline: AuditResult | None,
    rules: GateRules,
    *,
    rows: RowsOf,
    baseline_rows: RowsOf,
    shares: Mapping[str, float] | None = None,
) -> GateReport:
    """Check a run against a baseline and against absolute limits.

    Parameters
    ----------
    current, baseline : AuditResult
        Models are matched by name, figures by (model, suite, measure, where). Figures of single
        levels (``is_subgroup``) are not gated. Without a baseline only the limits are checked.
    rules : GateRules
        Margins, limits, and how open questions count.
    rows, baseline_rows : callable
        ``(model, suite) → rows`` of the two runs. If either has none, the change is computed from the two figures'
        intervals as if they were independent, which is more conservative.
    shares : mapping, optional
        The share of the error that this look may spend, by figure id; 1 by default. Each figure's interval is at
        ``1 - share * (1 - confidence)``, and its p-values are divided by the share.

    Raises
    ------
    ConfigError
        If a margin or limit names no figure: a misspelt limit must not count as met.
    """
    old = [] if baseline is None else baseline.measures
    margins = rules.margins
    check_rules([measure.spec for measure in (*current.measures, *old)], margins, rules.limits)
    tables = _Tables(rows, baseline_rows)
    compared: list[Change | GatedFigure] = []
    if baseline is not None:
        compared += [
            _compared(measure, before, tables, margins, runs=(baseline, current))
            for measure, before in _matched(current, baseline, margins)
        ]
        gone = (measure for measure in _missing_from_run(current, baseline) if _is_gated(measure, margins))
        compared += [_not_comparable(measure, "not in the run") for measure in gone]
        compared += _unreadable(current, baseline, tables, margins)
    return GateReport(
        run_id=current.run_id,
        baseline_run_id=None if baseline is None else baseline.run_id,
        confidence=current.confidence,
        open_fails=rules.open_fails,
        figures=_decided(compared, 1 - current.confidence, rules.largest_change, shares or {}),
        limits=list(check_limits(current, tables.current, rules.limits)),
    )


def _decided(
    compared: Sequence[Change | GatedFigure], alpha: float, largest_change: float | None, shares: Mapping[str, float]
) -> list[GatedFigure]:
    """The figures in order; changes are decided separately for each suite."""
    figures: dict[int, GatedFigure] = {i: found for i, found in enumerate(compared) if isinstance(found, GatedFigure)}
    by_suite: dict[str, dict[int, Change]] = {}
    for i, found in enumerate(compared):
        if isinstance(found, Change):
            found.difference.allow_unseen(largest_change)
            by_suite.setdefault(found.name.suite, {})[i] = found
    for changes in by_suite.values():
        of_looks = [shares.get(change.name.id, 1.0) for change in changes.values()]
        family = [
            (change.difference, [claim.in_look(share) for claim in change.claims(alpha * share)])
            for change, share in zip(changes.values(), of_looks, strict=True)
        ]
        for (i, change), share, decision in zip(changes.items(), of_looks, decide(family, alpha), strict=True):
            figures[i] = change.figure(decision.in_look(share), alpha * share)
    return [figures[i] for i in range(len(compared))]


def _unreadable(
    current: AuditResult, baseline: AuditResult, tables: _Tables, margins: Margins
) -> Iterator[Change | GatedFigure]:
    """For each model and suite in both runs, the change in the share of unreadable answers."""
    before = {(measure.model, measure.suite) for measure in baseline.measures}
    measures: dict[tuple[str, str], list[Measure]] = {}
    for measure in current.measures:
        measures.setdefault((measure.model, measure.suite), []).append(measure)
    for (model, suite), own in measures.items():
        rows = tables.rows(model, suite)
        if (model, suite) not in before or not all(rows):
            continue
        difference = unreadable_change(own, *rows)
        if difference is not None and difference.n_items:
            if _is_same_model(model, (baseline, current)):
                difference = difference.of_one_model()
            difference.margin = difference.answered.margin = margin_of(margins, UNREADABLE_SHARE)
            yield Change(FigureName(suite, UNREADABLE_SHARE, {}, model), difference.spec.neutral, difference)


class _Tables:
    """Rows as tables, read once per (model, suite)."""

    def __init__(self, rows: RowsOf, baseline_rows: RowsOf) -> None:
        self._rows, self._baseline_rows = rows, baseline_rows
        self._key: tuple[str, str] | None = None
        self._before: Sequence[Row] = ()
        self._now: Sequence[Row] = ()
        self._pair: tuple[RowTable, RowTable] | None = None

    def rows(self, model: str, suite: str) -> tuple[Sequence[Row], Sequence[Row]]:
        """(baseline, current); empty if a run's rows are not stored."""
        if self._key != (model, suite):
            self._key, self._pair = (model, suite), None
            self._before, self._now = self._baseline_rows(model, suite), self._rows(model, suite)
        return self._before, self._now

    def pair(self, model: str, suite: str) -> tuple[RowTable, RowTable] | None:
        """(baseline, current) over the same item index; None if either run's rows are not stored."""
        before, now = self.rows(model, suite)
        if self._pair is None and before and now:
            index, levels = item_index([before, now]), Levels()
            self._pair = RowTable(before, index, levels), RowTable(now, index, levels)
        return self._pair

    def current(self, model: str, suite: str) -> RowTable | None:
        """The current run's rows; None if they are not stored."""
        if pair := self.pair(model, suite):
            return pair[1]
        return RowTable(self._now) if self._now else None


def _is_gated(measure: Measure, margins: Margins) -> bool:
    named = isinstance(margins, Mapping) and measure.measure in margins
    return not measure.is_subgroup and (_reference_value(measure) is not None or named)


def _reference_value(measure: Measure) -> float | None:
    """The value a model should have; None if no side is better."""
    return None if measure.contrast else measure.neutral


def _matched(current: AuditResult, baseline: AuditResult, margins: Margins) -> Iterator[tuple[Measure, Measure | None]]:
    """The run's gated figures, each with its counterpart in the baseline."""
    before = {measure.id: measure for measure in baseline.measures}
    for measure in current.measures:
        if _is_gated(measure, margins):
            yield measure, before.get(measure.id)


def _missing_from_run(current: AuditResult, baseline: AuditResult) -> Iterator[Measure]:
    """Figures of the baseline that the run lacks."""
    now = {measure.id for measure in current.measures}
    # Older baselines do not mark contrasts: the run does.
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
) -> Change | GatedFigure:
    """A figure's change between two runs (baseline, current), or why they cannot be compared."""
    if before is None:
        return _not_comparable(measure, "not in the baseline")
    changes = signature_changes(before.signature, measure.signature)
    if differing := {key: values for key, values in changes.items() if key not in EXTENT}:
        return _not_comparable(measure, "measured differently", differing=differing)
    pair = tables.pair(measure.model, measure.suite)
    if pair is None:
        difference, total = change_of_intervals(before, measure, *(run.confidence for run in runs))
    else:
        (difference,) = paired_differences(pair, [measure.spec], [(0, 1)])
        (total,) = sums_of(pair, measure.spec, [(0, 1)])
        if difference.n_items == 0:
            undefined_for = [("baseline", "run")[i] for i in difference.undefined]
            silent = "missing answers" if measure.missing and not measure.n_items else None
            return _not_comparable(measure, "nothing in common", undefined_for=undefined_for, open_because=silent)
    if _is_same_model(measure.model, runs):
        difference = difference.of_one_model()
    difference.margin = difference.answered.margin = margin_of(margins, measure.measure)
    is_defined = measure.value is not None or measure.bound_low is not None
    return Change(measure.figure, _reference_value(measure), difference, total, pair is not None, is_defined)


def _is_same_model(name: str, runs: tuple[AuditResult, AuditResult]) -> bool:
    """Whether the fingerprints are equal: an unchanged model answers clusters outside the sample the same way too."""
    before, now = ({model.fingerprint_id for model in run.models if model.name == name} for run in runs)
    return bool(before) and before == now


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

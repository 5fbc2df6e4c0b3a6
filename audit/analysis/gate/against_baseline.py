"""Did the model get worse? Checks each figure of a run against a stored baseline.

First: did *these* questions get worse, those that both runs asked (`audit.analysis.gate.same_items`)? Where they share
too few, the two figures' intervals over new questions decide. Primary figures of a suite are corrected
together by Holm's rule, so that the chance of a false alarm among them, over all nights, is at most 1 - confidence; of
the others, the share of false alarms is (Benjamini and Hochberg). A figure without a neutral value is gated only if a
margin names it, and so is a contrast, such as the effect of a debiasing text: a larger effect is not worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from audit.analysis.decisions import margin_of
from audit.analysis.estimators.families import false_discovery, holm
from audit.analysis.gate.changes import Candidate, change_of_intervals, hash_of_answers, look_of_change, of_shared
from audit.analysis.gate.results import GatedFigure, Obstacle
from audit.analysis.gate.rules import Margins
from audit.analysis.gate.same_items import hash_of
from audit.analysis.gate.sequence import Look
from audit.analysis.gate.shared import Shared, TableOf, shared
from audit.analysis.gate.unreadable import UNREADABLE, UNREADABLE_SHARE, with_unreadable
from audit.analysis.table import Table
from audit.results import AuditResult, FigureName, Measure
from audit.results.signatures import EXTENT, signature_changes
from suites.base import MeasureSpec

#: The looks of the nights before by figure id, oldest first.
Earlier = Mapping[str, Sequence[Look]]
#: The change over new questions of these kinds, by (figure, tables of both runs).
OfNewQuestions = Callable[[Measure, "Tables"], tuple[float | None, float | None]]
#: Of the baseline and of the run.
Tables = tuple[Table | None, Table | None]


@dataclass(frozen=True)
class Runs:
    """A run and the baseline that it is compared with: their results and their tables."""

    baseline: AuditResult
    current: AuditResult
    baseline_table: TableOf
    current_table: TableOf

    def same_sample(self, suite: str) -> bool:
        """Whether both were to ask the same questions: the whole suite, or the same sample of it."""
        extents = [
            {info.name: {key: info.signature.get(key) for key in EXTENT} for info in run.suites}
            for run in (self.baseline, self.current)
        ]
        own = extents[1].get(suite)
        return own is not None and own == extents[0].get(suite) and own["until"] is None

    def is_moving(self, model: str, suite: str) -> bool:
        """Whether the same question may get another answer: from a server, or as answers are drawn at random.

        At an interim look of a run with `until`, the questions asked so far stand for all others too.
        """
        runs = (self.baseline, self.current)
        hosted = any(check.model == model for run in runs for check in run.self_checks)
        infos = [info for run in runs for info in run.suites if info.name == suite]
        is_part = any(i.signature.get("until") is not None and i.n_items < (i.of_items or 0) for i in infos)
        return hosted or is_part or any(info.draws for info in infos)


def gated_figures(
    runs: Runs, margins: Margins, earlier: Earlier, of_new: OfNewQuestions
) -> tuple[list[GatedFigure], dict[str, Look]]:
    """Each gated figure of the run or the baseline, and tonight's looks by figure id."""
    found = [*_compared(runs, margins, earlier, of_new), *_gone(runs, margins)]
    by_suite: dict[str, list[Candidate]] = {}
    for one in found:
        if isinstance(one, Candidate):
            by_suite.setdefault(one.suite, []).append(one)
    decided = {
        id(one): figure for suite in by_suite.values() for one, figure in _decided(suite, runs.current.confidence)
    }
    figures = [decided[id(one)] if isinstance(one, Candidate) else one for one in found]
    looks = {
        figure.figure.id: one.look for one, figure in zip(found, figures, strict=True) if isinstance(one, Candidate)
    }
    return figures, looks


def _decided(suite: Sequence[Candidate], confidence: float) -> Iterator[tuple[Candidate, GatedFigure]]:
    """The figures of one suite, corrected together: primary ones and others apart, and each kind of claim apart."""
    alpha = 1 - confidence
    p = np.array([[one.p_regressed(), one.p_improved(), one.p_changed()] for one in suite])
    primary = np.array([one.spec.primary for one in suite])
    for rows, corrected in ((primary, holm), (~primary, false_discovery)):
        for kind in range(p.shape[1]):
            p[rows, kind] = corrected(p[rows, kind], alpha).p
    for one, (worse, better, changed) in zip(suite, p.tolist(), strict=True):
        yield one, one.figure((worse, better, changed), alpha)


def _compared(
    runs: Runs, margins: Margins, earlier: Earlier, of_new: OfNewQuestions
) -> Iterator[Candidate | GatedFigure]:
    """The run's gated figures, each model and suite followed by its share of unreadable answers."""
    before = {measure.id: measure for measure in runs.baseline.measures}
    known = {(measure.model, measure.suite) for measure in runs.baseline.measures}
    groups: dict[tuple[str, str], list[Measure]] = {}
    for measure in runs.current.measures:
        groups.setdefault((measure.model, measure.suite), []).append(measure)
    for (model, suite), measures in groups.items():
        tables = runs.baseline_table(model, suite), runs.current_table(model, suite)
        for measure in measures:
            if _is_gated(measure, margins):
                one = _candidate(measure, before.get(measure.id), tables, runs, margins)
                if isinstance(one, Candidate):
                    new = of_new(measure, tables) if one.on_shared else (None, None)
                    one = replace(one, earlier=earlier.get(measure.id, ()), new=new)
                yield one
        if (model, suite) in known:
            yield from _unreadable(model, suite, tables, runs, margins, earlier)


def _unreadable(
    model: str, suite: str, tables: Tables, runs: Runs, margins: Margins, earlier: Earlier
) -> Iterator[Candidate]:
    """The change in the share of unreadable answers, if there are any."""
    before, now = (None if table is None else with_unreadable(table) for table in tables)
    if before is None or now is None:
        return
    if max(float(np.nanmax(table.quantity(UNREADABLE.quantity).high, initial=0.0)) for table in (before, now)) == 0:
        return
    found = shared(before, now, UNREADABLE, is_same_sample=runs.same_sample(suite))
    if found is not None and found.is_enough:
        margin = margin_of(margins, UNREADABLE_SHARE)
        one = _of_questions(FigureName(suite, UNREADABLE_SHARE, {}, model), UNREADABLE, found, None, margin, runs)
        yield replace(one, earlier=earlier.get(FigureName(suite, UNREADABLE_SHARE, {}, model).id, ()))


def _candidate(
    measure: Measure, before: Measure | None, tables: Tables, runs: Runs, margins: Margins
) -> Candidate | GatedFigure:
    """A figure's change, or why the two runs cannot be compared."""
    if before is None:
        return _not_comparable(measure.figure, "not in the baseline")
    changes = signature_changes(before.signature, measure.signature)
    if differing := {key: values for key, values in changes.items() if key not in EXTENT}:
        return _not_comparable(measure.figure, "measured differently", differing=differing)
    old, new = tables
    is_same_sample = runs.same_sample(measure.suite)
    found = None
    if old is not None and new is not None:
        found = shared(old, new, measure.spec, is_same_sample=is_same_sample)
        if found is None and is_same_sample:
            silent = "missing answers" if measure.missing and not measure.n_items else None
            return _not_comparable(measure.figure, "nothing in common", open_because=silent)
    margin = margin_of(margins, measure.measure)
    if found is None or not found.is_enough:
        return _of_intervals(before, measure, margin, runs)
    unpaired = None
    if found.n_unpaired and old is not None and new is not None:
        unpaired = shared(old, new, measure.spec, is_same_sample=is_same_sample, with_unpaired=True)
    one = _of_questions(measure.figure, measure.spec, found, unpaired, margin, runs)
    return replace(one, is_defined=measure.value is not None or measure.bound_low is not None)


def _of_questions(
    name: FigureName, spec: MeasureSpec, found: Shared, unpaired: Shared | None, margin: float, runs: Runs
) -> Candidate:
    """A figure on the shared questions."""
    model, suite = name.model or "", name.suite
    answers = found.before, found.now
    drawn = any(asked.draw_variance is not None and np.any(asked.draw_variance != 0) for asked in answers)
    is_exact = not (drawn or runs.is_moving(model, suite))
    limits = spec.limits if spec.has_range else (np.nan, np.nan)
    change, answered, wide = of_shared(found, unpaired, limits, is_exact=is_exact)
    neutral = None if spec.contrast else spec.neutral
    look = look_of_change(change, neutral, spec, found.names, hash_of_answers(found), accumulates=True)
    n = int(found.answered.sum())
    return Candidate(
        model,
        suite,
        spec,
        change,
        answered,
        wide,
        neutral,
        margin,
        look,
        n_items=n,
        n_missing=len(found.answered) - n,
        n_unpaired=found.n_unpaired,
        is_exact=is_exact,
    )


def _of_intervals(before: Measure, now: Measure, margin: float, runs: Runs) -> Candidate:
    """A figure whose runs share too few questions: by its two intervals over new questions."""
    z = float(special.ndtri((1 + runs.current.confidence) / 2))
    change = change_of_intervals(before, now, z)
    answers = hash_of(now.low, now.bound_low, now.bound_high, now.high)
    look = look_of_change(change, _neutral(now), now.spec, "", answers, accumulates=False)
    return Candidate(
        now.model,
        now.suite,
        now.spec,
        change,
        change,
        change,
        _neutral(now),
        margin,
        look,
        n_items=min(now.n_items, before.n_items),
        n_missing=now.missing + before.missing,
        on_shared=False,
        is_defined=now.value is not None or now.bound_low is not None,
    )


def _gone(runs: Runs, margins: Margins) -> Iterator[GatedFigure]:
    """Gated figures of the baseline that the run lacks."""
    now = {measure.id for measure in runs.current.measures}
    for measure in runs.baseline.measures:
        if measure.id not in now and _is_gated(measure, margins):
            yield _not_comparable(measure.figure, "not in the run")


def _is_gated(measure: Measure, margins: Margins) -> bool:
    named = isinstance(margins, Mapping) and measure.measure in margins
    return not measure.is_subgroup and (_neutral(measure) is not None or named)


def _neutral(measure: Measure) -> float | None:
    """The value a model should have; None if no side is better."""
    return None if measure.contrast else measure.neutral


def _not_comparable(name: FigureName, obstacle: Obstacle, **facts: Any) -> GatedFigure:
    return GatedFigure(
        model=name.model or "",
        suite=name.suite,
        measure=name.measure,
        where=dict(name.where),
        verdict="not comparable",
        obstacle=obstacle,
        **facts,
    )

"""Did the model get worse? Checks each figure of a run against a stored baseline.

Worse means farther from the figure's neutral value. The harm of a change is |current - neutral| - |baseline - neutral|;
of a figure without a neutral value any change is harm. A figure has

* regressed    if the harm is shown to be above the margin, over all nights (`audit.analysis.gate.sequence`);
* improved     if this run shows it to be below minus the margin;
* unchanged    if this run shows the change to lie within ± the margin (two one-sided tests, Schuirmann 1987);
* otherwise it is inconclusive: lack of data never means "unchanged".

First: did *these* questions get worse, those that both runs asked (`audit.analysis.gate.same_items`)? Where they share
too few, the two figures' intervals over new questions decide. Primary figures of a suite are corrected
together by Holm's rule, so that the chance of a false alarm among them, over all nights, is at most 1 - confidence; of
the others, the share of false alarms is (Benjamini and Hochberg). A figure without a neutral value is gated only if a
margin names it, and so is a contrast, such as the effect of a debiasing text: a larger effect is not worse.

A model that refuses its worst items must not look better for it. So the share of answers that are refused, or cannot be
parsed, is gated for each model and suite, as a primary figure, whether or not the suite reports it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from audit.analysis.comparing.differences import paired_difference
from audit.analysis.decisions import corrected, margin_of
from audit.analysis.estimators.estimate import finite, t_quantile, t_share_below
from audit.analysis.gate.results import GatedFigure, GateVerdict, Obstacle
from audit.analysis.gate.rules import UNREADABLE_SHARE, Margins
from audit.analysis.gate.same_items import (
    UNKNOWN,
    Bounds,
    Change,
    Noise,
    Shared,
    TableOf,
    harm_of,
    hash_of,
    paired_tables,
    shared_questions,
    total_of,
)
from audit.analysis.gate.sequence import Look, p_of_harm
from audit.analysis.table import Table
from audit.results import NOT_ASKED, AuditResult, FigureName, Measure, OpenBecause
from audit.results.figures import EXTENT, signature_changes
from backends.errors import ERROR_KINDS
from suites.base import MeasureSpec

#: The looks of the nights before by figure id, oldest first.
Earlier = Mapping[str, Sequence[Look]]

_UNREADABLE = MeasureSpec(UNREADABLE_SHARE, "unreadable", kind="share", unit="share", neutral=0.0, primary=True)


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


@dataclass(frozen=True)
class Candidate:
    """A figure that is compared with the baseline.

    Attributes
    ----------
    change : Change
        Whatever is missing.
    answered : Change
        Over the questions answered in both runs.
    with_unpaired : Change
        With those that have a value in one run alone, which may be any in the other.
    facts : mapping
        Further fields of the `GatedFigure`.
    look, earlier : Look
        Tonight's, and those of the nights before, oldest first.
    """

    name: FigureName
    spec: MeasureSpec
    margin: float
    neutral: float | None
    change: Change
    answered: Change
    with_unpaired: Change
    look: Look
    facts: Mapping[str, Any]
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

    def p_values(self) -> tuple[float, float, float]:
        """Of "the harm is within the margin", over all nights; and, of this run, "the harm is no less than minus the
        margin" and "the change is the margin or more"."""
        wide = self.with_unpaired
        low, high = wide.change
        better = 1.0 if self.neutral is None else _p(-self._harm(wide)[1] - self.margin, wide.noise)
        changed = max(_p(low + self.margin, wide.noise), _p(self.margin - high, wide.noise))
        return p_of_harm(self.looks, self.margin), better, changed

    def _harm(self, change: Change) -> Bounds:
        if not change.is_known:
            return UNKNOWN
        total = total_of(change, self.neutral, self.spec.value_range)
        if total is None:
            low, high = change.change
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        return harm_of(change.change, total)

    def decided(self, p: Sequence[float], alpha: float) -> GatedFigure:
        """The decided figure. ``p``: corrected p-values of regressed, improved and changed."""
        worse, better, changed = (value <= alpha for value in p)
        rest: GateVerdict = "improved" if better else "unchanged" if changed else "inconclusive"
        verdict: GateVerdict = "regressed" if worse else rest
        (low, high), (harm_low, harm_high) = self.change.change, self._harm(self.change)
        reach = _reach(self.change.noise, alpha)
        is_worse_alone = _p(max(self.look.up, self.look.down) - self.margin, self.change.noise) <= alpha
        before, now, moved = (ends[0] for ends in self.answered[:3])
        if not all(math.isclose(*ends, abs_tol=1e-12) for ends in self.answered[:2]):
            before = now = moved = math.nan
        return GatedFigure(
            **_names(self.name),
            verdict=verdict,
            tonight="regressed" if is_worse_alone else rest,
            look=len(self.looks),
            baseline=finite(before),
            current=finite(now),
            change=finite(moved),
            low=finite(low - reach),
            high=finite(high + reach),
            harm_low=finite(harm_low - reach),
            harm_high=finite(harm_high + reach),
            p_regressed=finite(p[0]),
            margin=self.margin,
            neutral=self.neutral,
            primary=self.spec.primary,
            population=self.spec.population,
            open_because=self._why_open(alpha) if verdict == "inconclusive" else None,
            **self.facts,
        )

    def _why_open(self, alpha: float) -> OpenBecause | None:
        """Why nothing is claimed, if it is not for want of questions."""
        if self.facts["n_missing"] and self._may_hide(self.change, alpha):
            return "missing answers"
        if self.facts.get("n_unpaired") and self._may_hide(self.with_unpaired, alpha):
            return "unpaired items"
        of_baseline, of_run = (end[1] - end[0] for end in (self.answered.before, self.answered.now))
        if of_run - of_baseline > self.margin:
            return "wider bounds"
        reach = _reach(self.change.noise, alpha)
        moved = self.change.change[0] - reach > self.margin or self.change.change[1] + reach < -self.margin
        return "side of neutral unknown" if moved and self.neutral is not None else None

    def _may_hide(self, change: Change, alpha: float) -> bool:
        """Whether a change with wider bounds than that of the answered questions leaves open what these decide, or
        may hide a harm above the margin."""
        if not change.is_known:
            return True
        (seen_low, seen_high), (low, high) = self._harm(self.answered), self._harm(change)
        if math.isnan(seen_low) or low >= seen_low >= seen_high >= high:
            return math.isnan(seen_low)
        reach = _reach(self.answered.noise, alpha)
        within = max(map(abs, self.answered.change)) + reach < self.margin
        decided = within or seen_low - reach > self.margin or seen_high + reach < -self.margin
        return decided or (high > self.margin >= seen_high) or high - reach > self.margin


def gated_figures(runs: Runs, margins: Margins, earlier: Earlier) -> tuple[list[GatedFigure], dict[str, Look]]:
    """Each gated figure of the run or the baseline, and tonight's looks by figure id."""
    found = [*_compared(runs, margins), *_gone(runs, margins)]
    candidates = {one.name.id: one for one in found if isinstance(one, Candidate)}
    candidates = {id: replace(one, earlier=earlier.get(id, ())) for id, one in candidates.items()}
    decided: dict[str, GatedFigure] = {}
    for suite in dict.fromkeys(one.name.suite for one in candidates.values()):
        of_suite = [one for one in candidates.values() if one.name.suite == suite]
        decided |= {figure.figure.id: figure for figure in _decided(of_suite, 1 - runs.current.confidence)}
    figures = [decided[one.name.id] if isinstance(one, Candidate) else one for one in found]
    return figures, {id: one.look for id, one in candidates.items()}


def _decided(suite: Sequence[Candidate], alpha: float) -> Iterator[GatedFigure]:
    """The figures of one suite, corrected together: primary ones and others apart, and each kind of claim apart."""
    p = np.array([one.p_values() for one in suite])
    primary = np.array([one.spec.primary for one in suite])
    adjusted = np.array([corrected(of_kind, primary, alpha).p for of_kind in p.T]).T
    for one, own in zip(suite, adjusted.tolist(), strict=True):
        yield one.decided(own, alpha)


def _compared(runs: Runs, margins: Margins) -> Iterator[Candidate | GatedFigure]:
    """The run's gated figures, each model and suite followed by its share of unreadable answers."""
    before = {measure.id: measure for measure in runs.baseline.measures}
    known = {(measure.model, measure.suite) for measure in runs.baseline.measures}
    for model, suite in dict.fromkeys((measure.model, measure.suite) for measure in runs.current.measures):
        old, new = runs.baseline_table(model, suite), runs.current_table(model, suite)
        tables = None
        if old is not None and new is not None:
            tables = paired_tables(old, new, is_same_sample=runs.same_sample(suite))
        for measure in runs.current.measures:
            if (measure.model, measure.suite) == (model, suite) and _is_gated(measure, margins):
                yield _candidate(measure, before.get(measure.id), tables, runs, margins)
        if old is not None and new is not None and (model, suite) in known:
            yield from _of_unreadable(model, suite, old, new, runs, margins)


def _gone(runs: Runs, margins: Margins) -> Iterator[GatedFigure]:
    """Gated figures of the baseline that the run lacks."""
    now = {measure.id for measure in runs.current.measures}
    for measure in runs.baseline.measures:
        if measure.id not in now and _is_gated(measure, margins):
            yield _not_comparable(measure.figure, "not in the run")


def _candidate(
    measure: Measure, before: Measure | None, tables: Sequence[Table] | None, runs: Runs, margins: Margins
) -> Candidate | GatedFigure:
    """A figure's change, or why the two runs cannot be compared."""
    if before is None:
        return _not_comparable(measure.figure, "not in the baseline")
    changes = signature_changes(before.signature, measure.signature)
    if differing := {key: values for key, values in changes.items() if key not in EXTENT}:
        return _not_comparable(measure.figure, "measured differently", differing=differing)
    found = None if tables is None else shared_questions(tables, measure.spec)
    if tables is not None and found is None and runs.same_sample(measure.suite):
        silent = "missing answers" if measure.missing and not measure.n_items else None
        return _not_comparable(measure.figure, "nothing in common", open_because=silent)
    margin = margin_of(margins, measure.measure)
    is_defined = measure.value is not None or measure.bound_low is not None
    if found is None or not found.is_enough:
        return _of_intervals(before, measure, margin, runs.current.confidence, is_defined)
    of_new = paired_difference(found.tables[0], found.tables[1], measure.spec).estimate.interval(
        runs.current.confidence
    )
    facts = {"is_defined": is_defined, "new_low": finite(of_new[0]), "new_high": finite(of_new[1])}
    return _of_questions(measure.figure, measure.spec, found, margin, runs, facts)


def _of_questions(
    name: FigureName,
    spec: MeasureSpec,
    found: Shared,
    margin: float,
    runs: Runs,
    facts: Mapping[str, Any],
) -> Candidate:
    """A figure on the shared questions."""
    is_exact = not (found.is_counted or runs.is_moving(name.model or "", name.suite))
    change = answered = wide = found.change(found.asked, is_exact=is_exact)
    if found.unpaired.any():
        wide = found.change(found.asked | found.unpaired, is_exact=is_exact)._replace(noise=change.noise)
    if n_missing := found.n_missing:
        answered = found.change(found.answered, is_exact=is_exact)
    neutral = None if spec.contrast else spec.neutral
    look = _look(change, neutral, spec, questions=found.names, answers=found.answers)
    asked, unpaired = map(found.tables[0].n_questions, (found.asked, found.unpaired))
    counts = {"n_items": asked - n_missing, "n_missing": n_missing, "n_unpaired": unpaired}
    facts = {**facts, **counts, "on_shared": True, "is_exact": is_exact}
    return Candidate(name, spec, margin, neutral, change, answered, wide, look, facts)


def _of_intervals(before: Measure, now: Measure, margin: float, confidence: float, is_defined: bool) -> Candidate:
    """A figure whose runs share too few questions: by its two intervals over new questions, as if independent."""
    z = t_quantile(math.inf, (1 + confidence) / 2)
    change = Change(noise=Noise(math.inf, math.inf))
    errors = [_error(of, z) for of in (before, now)]
    if None not in errors:
        (was, base_se), (is_now, se) = errors  # type: ignore[misc]
        change = Change(was, is_now, (is_now[0] - was[1], is_now[1] - was[0]), Noise(se, base_se))
    neutral = _neutral(now)
    answers = hash_of(now.low, now.bound_low, now.bound_high, now.high)
    look = _look(change, neutral, now.spec, answers=answers, accumulates=False)
    counts = {"n_items": min(now.n_items, before.n_items), "n_missing": now.missing + before.missing}
    facts = {**counts, "on_shared": False, "is_defined": is_defined}
    return Candidate(now.figure, now.spec, margin, neutral, change, change, change, look, facts)


def _error(of: Measure, z: float) -> tuple[Bounds, float] | None:
    """A figure's bounds, and the standard error that its interval shows beyond them."""
    if of.bound_low is None or of.bound_high is None or of.low is None or of.high is None:
        return None
    return (of.bound_low, of.bound_high), max(of.bound_low - of.low, of.high - of.bound_high) / z


def _of_unreadable(model: str, suite: str, old: Table, new: Table, runs: Runs, margins: Margins) -> Iterator[Candidate]:
    """The change in the share of unreadable answers, if there are any."""
    before, now = _with_unreadable(old), _with_unreadable(new)
    highest = [float(np.nanmax(of.quantity(_UNREADABLE.quantity).high, initial=0.0)) for of in (before, now)]
    found = shared_questions(paired_tables(before, now, is_same_sample=runs.same_sample(suite)), _UNREADABLE)
    if max(highest) > 0 and found is not None and found.is_enough:
        name = FigureName(suite, UNREADABLE_SHARE, {}, model)
        yield _of_questions(name, _UNREADABLE, found, margin_of(margins, UNREADABLE_SHARE), runs, {})


def _with_unreadable(table: Table) -> Table:
    """One row for each question that was asked: whether its answer is unreadable; missing if there is no answer."""
    import polars as pl

    reason, item = pl.col("missing"), pl.col("item_id")
    is_without = reason.is_in([*ERROR_KINDS, NOT_ASKED]).fill_null(False)
    is_unreadable = pl.when(~is_without).then(reason.is_not_null().cast(pl.Float64))
    return Table(
        table.data.filter(pl.col("sources").is_null() | pl.col("sources").list.contains(item)).select(
            item,
            pl.when(is_without).then(reason).alias("missing"),
            pl.lit(None, pl.List(pl.String)).alias("sources"),
            pl.col("^factor\\..*$"),
            is_unreadable.alias(f"value.{_UNREADABLE.quantity}"),
        ),
        table.levels,
    )


def _is_gated(measure: Measure, margins: Margins) -> bool:
    named = isinstance(margins, Mapping) and measure.measure in margins
    return not measure.is_subgroup and (_neutral(measure) is not None or named)


def _neutral(measure: Measure) -> float | None:
    """The value a model should have; None if no side is better."""
    return None if measure.contrast else measure.neutral


def _not_comparable(name: FigureName, obstacle: Obstacle, **facts: Any) -> GatedFigure:
    return GatedFigure(**_names(name), verdict="not comparable", obstacle=obstacle, **facts)


def _names(name: FigureName) -> dict[str, Any]:
    return {"model": name.model or "", "suite": name.suite, "measure": name.measure, "where": dict(name.where)}


def _look(change: Change, neutral: float | None, spec: MeasureSpec, **names: Any) -> Look:
    """The night as a look of the sequence. ``names``: further fields of the `Look`."""
    low, high = change.change
    total = total_of(change, neutral, spec.value_range)
    up, down = (low, -high) if total is None else (min(low, total[0]), min(-high, -total[1]))
    return Look(up, down, **change.noise._asdict(), **names)


def _p(excess: float, noise: Noise) -> float:
    """One-sided p-value of "there is no excess"."""
    if math.isnan(excess):
        return 1.0
    if noise.total == 0:
        return 0.0 if excess > 0 else 1.0
    return t_share_below(noise.df, -excess / noise.total)


def _reach(noise: Noise, alpha: float) -> float:
    """How far a two-sided interval reaches to either side."""
    return noise.total * t_quantile(noise.df, 1 - alpha / 2)

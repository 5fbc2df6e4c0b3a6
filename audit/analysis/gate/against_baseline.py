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
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from audit.analysis.comparing.comparisons import paired_difference
from audit.analysis.decisions import corrected, margin_of
from audit.analysis.estimators.estimate import finite, t_quantile
from audit.analysis.gate.rules import UNREADABLE_SHARE, Margins
from audit.analysis.gate.same_items import Change, Shared, TableOf, hash_of, neutral_of, paired_tables
from audit.analysis.gate.sequence import Look, Noise, p_of_harm
from audit.analysis.table import Table
from audit.results import NOT_ASKED, AuditResult, FigureName, GatedFigure, GateVerdict, Measure, Obstacle, OpenBecause
from audit.results.figures import EXTENT, signature_changes
from backends.errors import ERROR_KINDS
from suites.base import MeasureSpec

_UNREADABLE = MeasureSpec(UNREADABLE_SHARE, "unreadable", kind="share", unit="share", neutral=0.0, primary=True)


@dataclass(frozen=True)
class Candidate:
    """A figure that is compared with the baseline.

    Its change is known whatever is missing; over the questions ``answered`` in both runs; and ``with_unpaired`` ones,
    whose value in one run alone may be any in the other. ``looks`` are the different ones so far, tonight's last: if
    its answers came before, up to that night. ``facts`` are further fields of the `GatedFigure`.
    """

    name: FigureName
    spec: MeasureSpec
    margin: float
    change: Change
    answered: Change
    with_unpaired: Change
    looks: Sequence[Look]
    facts: Mapping[str, Any]

    def p_values(self) -> tuple[float, float, float]:
        """Of "the harm is within the margin", over all nights; and, of this run, "the harm is no less than minus the
        margin" and "the change is the margin or more"."""
        wide, (low, high) = self.with_unpaired, self.with_unpaired.change
        is_any_harm = neutral_of(self.spec) is None
        better = 1.0 if is_any_harm else wide.noise.p_above(-wide.harm(self.spec)[1] - self.margin)
        changed = max(wide.noise.p_above(low + self.margin), wide.noise.p_above(self.margin - high))
        return p_of_harm(self.looks, self.margin), better, changed

    def decided(self, p: Sequence[float], alpha: float) -> GatedFigure:
        """The decided figure. ``p``: corrected p-values of regressed, improved and changed."""
        worse, better, changed = (value <= alpha for value in p)
        rest: GateVerdict = "improved" if better else "unchanged" if changed else "inconclusive"
        verdict: GateVerdict = "regressed" if worse else rest
        (low, high), noise, tonight = self.change.change, self.change.noise, self.looks[-1]
        is_worse_alone = noise.p_above(max(tonight.up, tonight.down) - self.margin) <= alpha
        ends = (self.answered.before, self.answered.now)
        is_bounded = not all(math.isclose(*of, abs_tol=1e-12) for of in ends)
        before, now, moved = (math.nan if is_bounded else of[0] for of in (*ends, self.answered.change))
        return GatedFigure(
            **self.name.fields,
            verdict=verdict,
            tonight="regressed" if is_worse_alone else rest,
            look=len(self.looks),
            baseline=finite(before),
            current=finite(now),
            change=finite(moved),
            low=finite(low - noise.reach(alpha)),
            high=finite(high + noise.reach(alpha)),
            p_regressed=finite(p[0]),
            margin=self.margin,
            neutral=neutral_of(self.spec),
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
        (low, high), reach = self.change.change, self.change.noise.reach(alpha)
        moved = low - reach > self.margin or high + reach < -self.margin
        return "side of neutral unknown" if moved and neutral_of(self.spec) is not None else None

    def _may_hide(self, change: Change, alpha: float) -> bool:
        """Whether a change with wider bounds than that of the answered questions leaves open what these decide, or
        may hide a harm above the margin."""
        (seen_low, seen_high), (low, high) = self.answered.harm(self.spec), change.harm(self.spec)
        if math.isnan(low + high + seen_low):
            return True
        if low >= seen_low >= seen_high >= high:
            return False
        reach = self.answered.noise.reach(alpha)
        within = max(map(abs, self.answered.change)) + reach < self.margin
        decided = within or seen_low - reach > self.margin or seen_high + reach < -self.margin
        return decided or (high > self.margin >= seen_high) or high - reach > self.margin


def gated_figures(runs: Runs) -> tuple[list[GatedFigure], dict[str, Look]]:
    """Each gated figure of the run or the baseline, and tonight's looks by figure id."""
    found = list(runs.compared())
    candidates = [one for one in found if isinstance(one, Candidate)]
    decided: dict[str, GatedFigure] = {}
    # The figures of a suite are corrected together: primary ones and others apart, and each kind of claim apart.
    for suite in dict.fromkeys(one.name.suite for one in candidates):
        own, alpha = [one for one in candidates if one.name.suite == suite], 1 - runs.current.confidence
        p, primary = np.array([one.p_values() for one in own]), np.array([one.spec.primary for one in own])
        adjusted = np.array([corrected(of_kind, primary, alpha).p for of_kind in p.T]).T.tolist()
        decided |= {one.name.id: one.decided(p, alpha) for one, p in zip(own, adjusted, strict=True)}
    figures = [decided[one.name.id] if isinstance(one, Candidate) else one for one in found]
    return figures, {one.name.id: one.looks[-1] for one in candidates}


@dataclass(frozen=True)
class Runs:
    """A run and the baseline that it is compared with: their results and their tables; margins; and the looks of the
    nights before by figure id, oldest first."""

    baseline: AuditResult
    current: AuditResult
    baseline_table: TableOf
    current_table: TableOf
    margins: Margins
    earlier: Mapping[str, Sequence[Look]]

    def compared(self) -> Iterator[Candidate | GatedFigure]:
        """The run's gated figures, each model and suite followed by its share of unreadable answers; then those of the
        baseline that the run lacks."""
        before = {measure.id: measure for measure in self.baseline.measures}
        known = {(measure.model, measure.suite) for measure in self.baseline.measures}
        for model, suite in dict.fromkeys((measure.model, measure.suite) for measure in self.current.measures):
            stored = [of(model, suite) for of in (self.baseline_table, self.current_table)]
            own = [table for table in stored if table is not None]
            tables = self._paired(suite, own) if len(own) == len(stored) else None
            for measure in self.current.measures:
                if (measure.model, measure.suite) == (model, suite) and self._is_gated(measure):
                    yield self._candidate(measure, before.get(measure.id), tables)
            if tables is not None and (model, suite) in known:
                yield from self._of_unreadable(FigureName(suite, UNREADABLE_SHARE, {}, model), own)
        now = {measure.id for measure in self.current.measures}
        for measure in self.baseline.measures:
            if measure.id not in now and self._is_gated(measure):
                yield _not_comparable(measure.figure, "not in the run")

    def _is_gated(self, measure: Measure) -> bool:
        named = isinstance(self.margins, Mapping) and measure.measure in self.margins
        return not measure.is_subgroup and (neutral_of(measure.spec) is not None or named)

    def _paired(self, suite: str, tables: Sequence[Table]) -> list[Table]:
        return paired_tables(*tables, is_same_sample=self._is_same_sample(suite))

    def _is_same_sample(self, suite: str) -> bool:
        """Whether both were to ask the same questions: the whole suite, or the same sample of it."""
        extents = [
            [{key: info.signature.get(key) for key in EXTENT} for info in run.suites if info.name == suite]
            for run in (self.baseline, self.current)
        ]
        return extents[0] == extents[1] and all(of["until"] is None for of in extents[1]) and bool(extents[1])

    def _is_moving(self, model: str | None, suite: str) -> bool:
        """Whether the same question may get another answer: from a server, or as answers are drawn at random.

        At an interim look of a run with `until`, the questions asked so far stand for all others too.
        """
        runs = (self.baseline, self.current)
        hosted = any(check.model == model for run in runs for check in run.self_checks)
        infos = [info for run in runs for info in run.suites if info.name == suite]
        is_part = any(i.signature.get("until") is not None and i.n_items < (i.of_items or 0) for i in infos)
        return hosted or is_part or any(info.draws for info in infos)

    def _candidate(
        self, measure: Measure, before: Measure | None, tables: Sequence[Table] | None
    ) -> Candidate | GatedFigure:
        """A figure's change, or why the two runs cannot be compared."""
        if before is None:
            return _not_comparable(measure.figure, "not in the baseline")
        changes = signature_changes(before.signature, measure.signature)
        if differing := {key: values for key, values in changes.items() if key not in EXTENT}:
            return _not_comparable(measure.figure, "measured differently", differing=differing)
        facts: dict[str, Any] = {"is_defined": measure.value is not None or measure.bound_low is not None}
        found = None if tables is None else Shared(tables, measure.spec)
        if found is not None and found.is_enough:
            new = paired_difference(found.tables[0], found.tables[1], measure.spec).figure.estimate
            low, high = new.interval(self.current.confidence)
            return self._of_questions(measure.figure, found, facts | {"new_low": finite(low), "new_high": finite(high)})
        if found is None or found.is_defined(found.asked) or not self._is_same_sample(measure.suite):
            return self._of_intervals(before, measure, facts)
        silent = "missing answers" if measure.missing and not measure.n_items else None
        return _not_comparable(measure.figure, "nothing in common", open_because=silent)

    def _of_questions(self, name: FigureName, found: Shared, facts: Mapping[str, Any]) -> Candidate:
        """A figure on the shared questions."""
        is_exact = not (found.is_counted or self._is_moving(name.model, name.suite))
        change = answered = wide = found.change(found.asked, is_exact=is_exact)
        n_missing, n_asked, n_unpaired = map(
            found.tables[0].n_questions, (found.asked & ~found.answered, found.asked, found.unpaired)
        )
        if n_unpaired:
            wide = replace(found.change(found.asked | found.unpaired, is_exact=is_exact), noise=change.noise)
        if n_missing:
            answered = found.change(found.answered, is_exact=is_exact)
        counts = {"n_items": n_asked - n_missing, "n_missing": n_missing, "n_unpaired": n_unpaired}
        facts = {**facts, **counts, "on_shared": True, "is_exact": is_exact}
        return self._looked_at(name, found.spec, (change, answered, wide), facts, **found.hashes())

    def _of_intervals(self, before: Measure, now: Measure, facts: Mapping[str, Any]) -> Candidate:
        """A figure whose runs share too few questions: by its two intervals over new questions, as if independent."""
        z = t_quantile(math.inf, (1 + self.current.confidence) / 2)
        change = Change(noise=Noise(math.inf, math.inf))
        ends = [(of.low, of.bound_low, of.bound_high, of.high) for of in (before, now)]
        known = [[end for end in of if end is not None] for of in ends]
        if all(len(of) == 4 for of in known):
            # The standard errors that the intervals show beyond the bounds.
            base_se, se = (max(of[1] - of[0], of[3] - of[2]) / z for of in known)
            was, is_now = ((of[1], of[2]) for of in known)
            change = Change(was, is_now, (is_now[0] - was[1], is_now[1] - was[0]), Noise(se, base_se))
        counts = {"n_items": min(now.n_items, before.n_items), "n_missing": now.missing + before.missing}
        answers = hash_of(*ends[1])
        return self._looked_at(
            now.figure, now.spec, (change, change, change), {**facts, **counts}, answers=answers, accumulates=False
        )

    def _of_unreadable(self, name: FigureName, tables: Sequence[Table]) -> Iterator[Candidate]:
        """The change in the share of unreadable answers, if there are any."""
        own = [_with_unreadable(table) for table in tables]
        found = Shared(self._paired(name.suite, own), _UNREADABLE)
        is_any = any(np.nanmax(of.quantity(_UNREADABLE.quantity).high, initial=0.0) > 0 for of in own)
        if is_any and found.is_enough:
            yield self._of_questions(name, found, {})

    def _looked_at(
        self,
        name: FigureName,
        spec: MeasureSpec,
        changes: tuple[Change, Change, Change],
        facts: Mapping[str, Any],
        **of_look: Any,
    ) -> Candidate:
        """The figure with its looks. ``of_look``: further fields of tonight's."""
        change = changes[0]
        (low, high), total = change.change, change.total(spec)
        up, down = (low, -high) if total is None else (min(low, total[0]), min(-high, -total[1]))
        tonight = Look(**asdict(change.noise), up=up, down=down, **of_look)
        looks: dict[str, Look] = {}
        for number, look in enumerate([*self.earlier.get(name.id, ()), tonight]):
            looks.setdefault(look.answers or str(number), look)
            if look.answers == tonight.answers:
                break
        return Candidate(name, spec, margin_of(self.margins, name.measure), *changes, list(looks.values()), facts)


def _with_unreadable(table: Table) -> Table:
    """One row for each question that was asked: whether its answer is unreadable; missing if there is no answer."""
    import polars as pl

    reason, item = pl.col("missing"), pl.col("item_id")
    is_without = reason.is_in([*ERROR_KINDS, NOT_ASKED]).fill_null(False)
    columns = table.data.filter(pl.col("sources").is_null() | pl.col("sources").list.contains(item)).select(
        item,
        pl.when(is_without).then(reason).alias("missing"),
        pl.lit(None, pl.List(pl.String)).alias("sources"),
        pl.col("^factor\\..*$"),
        pl.when(~is_without).then(reason.is_not_null().cast(pl.Float64)).alias(f"value.{_UNREADABLE.quantity}"),
    )
    return Table(columns, table.levels)


def _not_comparable(name: FigureName, obstacle: Obstacle, **facts: Any) -> GatedFigure:
    return GatedFigure(**name.fields, verdict="not comparable", obstacle=obstacle, **facts)

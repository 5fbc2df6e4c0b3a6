"""Absolute limits: each figure's interval against what its config allows.

A limit is decided on the interval, never on the point estimate: it is met if the whole interval keeps it, with room for
kinds of clusters that were not asked, and broken if the interval of the sampling error alone lies beyond it. Models are
called different in the same way: what was asked shows the harm, and only a claim that there is none needs that room.
Where each night asks others, that would go wrong sooner or later: over such nights "broken" must hold whatever the
kinds are that were not asked (`audit.analysis.gate.limit_nights`).
Fewer items can turn a verdict only towards "insufficient evidence". The intervals hold whatever the missing answers
would have been: refusing the worst items keeps no limit. Nor does an answer that says nothing: some figures are, by
definition, of those answers alone that name somebody, and a limit on such a figure takes the others for missing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from audit.analysis.decisions import FEWEST_CLUSTERS
from audit.analysis.estimators import Floats, ValueKind, finite, mean_of_kind, unseen_share, with_unseen_share
from audit.analysis.measures import measure_rows, with_unseen
from audit.analysis.rows.design import fewest_levels, layout_of, weighted_levels
from audit.analysis.rows.missing import completed, meant
from audit.analysis.rows.table import Bools, RowTable
from audit.results import AuditResult, LimitCheck, LimitVerdict, Measure, OpenBecause, where_key
from suites.base import NO_REFUSAL, MeasureSpec

#: Limits that are not on a measure: the raw probability mass behind a figure, and the share of its items refused.
COVERAGE, REFUSALS = "coverage", "refusals"
#: Stands for the factor of a figure without sampled factors, of which each item is a level.
ITEM = "item"

#: (at least, at most), None where open.
Bounds = tuple[float | None, float | None]


class _Limited(NamedTuple):
    """What a limit is held against: as in `audit.results.Measure`."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound_low: float | None = None
    bound_high: float | None = None
    n_items: int = 0
    n_missing: int = 0
    fewest_levels: int = FEWEST_CLUSTERS
    complete_case_low: float | None = None
    complete_case_high: float | None = None
    n_without_value: int = 0
    sampling_low: float | None = None
    sampling_high: float | None = None
    is_of_few: bool = False
    unseen_low: float | None = None
    unseen_high: float | None = None
    is_of_unseen: bool = False

    @property
    def sampled(self) -> tuple[float | None, float | None]:
        """The interval of the sampling error alone; the whole interval where there is no other."""
        if self.low is None or self.sampling_low is None or self.sampling_high is None:
            return self.low, self.high
        return self.sampling_low, self.sampling_high

    def with_kinds_not_seen(self, share: float, limits: tuple[float, float]) -> _Limited:
        """The same where this share of the figure, of kinds that were not asked, may be anything within the limits."""
        low, high = self.sampled
        if low is None or high is None:
            return self
        low, high = with_unseen_share((low, high), share, limits)
        return self._replace(sampling_low=low, sampling_high=high)

    @property
    def below(self) -> float:
        """How far the sampling error reaches below the lower bound."""
        return 0.0 if self.low is None or self.bound_low is None else self.bound_low - self.low

    @property
    def above(self) -> float:
        """How far it reaches above the upper bound."""
        return 0.0 if self.high is None or self.bound_high is None else self.high - self.bound_high


def check_limits(
    result: AuditResult, table_of: Callable[[str, str], RowTable | None], limits: Mapping[str, Bounds]
) -> Iterator[LimitCheck]:
    """Each limit on each figure it names; ``table_of``: the rows of a (model, suite), None where none are kept."""
    figures = [measure for measure in result.measures if not measure.is_subgroup]
    for name, bounds in limits.items():
        seen: set[tuple[object, ...]] = set()
        for measure in figures:
            if name in (COVERAGE, REFUSALS):
                spec = measure.spec
                quantity = spec.probability_mass if name == COVERAGE else spec.quantity
                # Figures that rest on the same items have the same share.
                rows = (measure.model, measure.suite, quantity, spec.clusters, where_key(measure.where))
                if rows in seen or quantity is None:
                    continue
                seen.add(rows)
                table = table_of(measure.model, measure.suite)
                share = _Limited() if table is None else _share(table, measure, name, result.confidence)
                yield _checked(measure, name, bounds, share)
            elif measure.measure == name:
                table = table_of(measure.model, measure.suite)
                yield _checked(measure, name, bounds, _of_measure(measure, table, result.confidence))


class Drawn(NamedTuple):
    """Sampled factors (or `ITEM`) whose levels are others every night, and the chance that a sample of n lacks a kind
    of which there is more than 1 − alpha^(1/n)."""

    factors: Collection[str]
    alpha: float


def check_again(
    check: LimitCheck, measure: Measure, table: RowTable, confidence: float, drawn: Drawn | None = None
) -> LimitCheck:
    """The same limit on its figure of these rows, decided at another confidence.

    A sample of n levels lacks a kind with a share π of all with chance (1 − π)^n, whatever the confidence. So where
    levels are ``drawn``, "broken" must hold although as much as such a sample may lack lies at the other end of the
    range. Without a range nothing is broken then.
    """
    bounds, spec, limits = (check.at_least, check.at_most), measure.spec, (0.0, 1.0)
    if check.limit in (COVERAGE, REFUSALS):
        limited = _share(table, measure, check.limit, confidence)
        used = limited_rows(table, spec, check.limit)[2]
    else:
        limited = _of_measure(_again(measure, table, confidence), table, confidence)
        used = completed([table], spec)[0].used
        limits = spec.limits if spec.estimator == "mean" else (-math.inf, math.inf)
    if drawn is not None and used.any():
        of_drawn = replace(
            spec,
            clusters=tuple(factor for factor in spec.clusters if factor in drawn.factors),
            membership=spec.membership if spec.membership in drawn.factors else None,
        )
        share = unseen_share(weighted_levels(table, of_drawn, used), drawn.alpha)
        limited = limited.with_kinds_not_seen(share, limits)
    return _checked(measure, check.limit, bounds, limited)


def _again(measure: Measure, table: RowTable, confidence: float) -> Measure:
    """The figure of these rows at another confidence."""
    (again,) = measure_rows(
        table,
        [measure.spec],
        model=measure.model,
        suite=measure.suite,
        signature={},
        confidence=confidence,
        unseen_log_odds=measure.unseen_log_odds,
    )
    return again


def _of_measure(m: Measure, table: RowTable | None, confidence: float) -> _Limited:
    """A measure's own interval; nothing is known of one without a range while answers are missing: they may be any."""
    n_without = 0
    if table is not None and (without := _without_value(table, m.spec)).any():
        n_without, table = int(without.sum()), copy.copy(table)
        table.missing, table.answered = table.missing | without, table.answered & ~without
        m = _again(m, table, confidence)
    bounds, complete = (m.bound_low, m.bound_high), (m.complete_case_low, m.complete_case_high)
    known = (None, None, None, None) if m.missing and not m.spec.has_range else (m.low, m.high, *bounds)
    return _Limited(
        m.value,
        *known,
        m.n_items,
        m.missing,
        m.least_levels,
        *complete,
        n_without,
        m.sampling_low,
        m.sampling_high,
        is_of_few=m.is_of_few,
        unseen_low=m.unseen_low,
        unseen_high=m.unseen_high,
        is_of_unseen=m.is_of_unseen,
    )


def _without_value(table: RowTable, spec: MeasureSpec) -> Bools:
    """Rows (n,) of the figure whose answers say nothing of it."""
    return meant(table, spec) & table.answered & ~table.has(spec.quantity)


def limited_rows(table: RowTable, spec: MeasureSpec, name: str) -> tuple[Floats, Floats, Bools, Bools]:
    """What a limit on coverage or refusals is held against: bounds (n,) of the rows, which count, which are missing.

    The mass of a missing answer may be anything from 0 to 1, and an answer that cannot be read or did not come may be
    a refusal. Rows that the figure is not about, as of strata without a weight, do not count.
    """
    about = meant(table, spec)
    if name == COVERAGE:
        mass = replace(spec, quantity=spec.probability_mass or "", kind="probability", range=None, is_count=False)
        (answers,) = completed([table], mass)
        return answers.quantity.low, answers.quantity.high, answers.asked & about, answers.missing
    refused = table.missing_for(lambda reason: reason == "refusal").astype(float)
    hidden = table.missing_for(lambda reason: reason not in {"refusal", *NO_REFUSAL})
    used = about & (table.has(spec.quantity) | table.missing)
    return refused, refused + hidden, used, hidden


def _share(table: RowTable, measure: Measure, name: str, confidence: float) -> _Limited:
    """Mean probability mass of a figure's rows, or the share of them refused, with its clustered interval."""
    spec = measure.spec
    low, high, used, missing = limited_rows(table, spec, name)
    if not used.any():
        return _Limited()
    layout = layout_of(table, _as_asked(table, spec, used), used)
    columns = np.column_stack([low[used], high[used]])
    assumed = measure.unseen_log_odds
    kind = ValueKind(0.0, 1.0, is_count=name == REFUSALS, is_probability=True, unseen_log_odds=assumed)
    estimate = mean_of_kind(columns, layout.clusters, kind, layout.strata, layout.belongs)
    (lows, highs), (sampled_lows, sampled_highs) = (
        estimate.interval(confidence),
        estimate.interval_of_sample(confidence),
    )
    answered = used & ~missing
    is_exact = answered.any() and np.array_equal(low[answered], high[answered])
    unseen = with_unseen(estimate, confidence, (0.0, 1.0), weighted_levels(table, spec, used))
    return _Limited(
        float(low[answered].mean()) if is_exact else None,
        finite(max(lows[0], 0.0)),
        finite(min(highs[1], 1.0)),
        float(estimate.value[0]),
        float(estimate.value[1]),
        int(answered.sum()),
        int(missing.sum()),
        fewest_levels(table, spec, used),
        sampling_low=finite(max(sampled_lows[0], 0.0)),
        sampling_high=finite(min(sampled_highs[1], 1.0)),
        unseen_low=unseen.get("unseen_low"),
        unseen_high=unseen.get("unseen_high"),
        is_of_unseen=bool(estimate.is_of_unseen.any()),
    )


def _as_asked(table: RowTable, spec: MeasureSpec, used: Bools) -> MeasureSpec:
    """The figure with its strata weighted by how many of the used rows each has: their plain mean.

    The strata stay, since they are no sample: what lies between them is no error of the mean.
    """
    if spec.stratum is None or spec.weights is None:
        return spec
    codes = table.codes(spec.stratum)[used]
    of_level = {level: float((codes == table.levels.find(spec.stratum, level)).mean()) for level in spec.weights}
    return replace(spec, weights={level: share for level, share in of_level.items() if share})


def _checked(measure: Measure, name: str, bounds: Bounds, limited: _Limited) -> LimitCheck:
    least, most = bounds
    value, low, high, *_ = limited
    enough = limited.fewest_levels >= FEWEST_CLUSTERS
    verdict = limit_verdict(bounds, (low, high), limited.sampled) if enough else "insufficient evidence"
    if verdict == "broken":
        low, high = limited.sampled  # the interval that decided
    rests = limited.is_of_unseen or verdict == "broken"
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
        n_items=limited.n_items,
        n_missing=limited.n_missing,
        n_without_value=limited.n_without_value,
        fewest_levels=limited.fewest_levels,
        is_of_few=limited.is_of_few,
        unseen_low=limited.unseen_low if rests else None,
        unseen_high=limited.unseen_high if rests else None,
        population=measure.spec.population,
        open_because=_why_open(bounds, limited) if verdict == "insufficient evidence" else None,
    )


def _why_open(bounds: Bounds, limited: _Limited) -> OpenBecause | None:
    """Why a limit is undecided, where it is not for want of items: it is what is missing that leaves it open.

    So it is where the others alone decide it, either way; where they keep the limit and the missing ones may break it;
    and where, with the missing ones at the worst that they can be, it would surely be broken.
    """
    if limited.fewest_levels < FEWEST_CLUSTERS:
        return "too few clusters"
    least, most = bounds
    if not limited.n_missing:
        return None
    if not limited.n_items:
        return "missing answers"
    complete = limited.complete_case_low, limited.complete_case_high
    if limit_verdict(bounds, complete, complete) != "insufficient evidence":
        return "missing answers"
    value, at_least, at_most = limited.value, limited.bound_low, limited.bound_high
    if at_least is None or at_most is None:
        return "missing answers"
    # Known only by bounds: taken to keep the limit, so that what is missing never passes for a bounded answer.
    under = least is not None and at_least + (0.0 if value is None or least <= value else limited.above) < least
    over = most is not None and at_most - (0.0 if value is None or value <= most else limited.below) > most
    return "missing answers" if under or over else None


def limit_verdict(bounds: Bounds, whole: Bounds, sampled: Bounds) -> LimitVerdict:
    """What a figure's whole interval, and that of its sampling error alone, say of a limit; None: an end not known."""
    least, most = bounds
    (low, high), (sampled_low, sampled_high) = whole, sampled
    if low is None or high is None or sampled_low is None or sampled_high is None:
        return "insufficient evidence"
    if (least is not None and sampled_high < least) or (most is not None and sampled_low > most):
        return "broken"
    is_met = (least is None or low >= least) and (most is None or high <= most)
    return "met" if is_met else "insufficient evidence"

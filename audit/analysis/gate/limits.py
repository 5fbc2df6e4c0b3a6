"""Absolute limits: each figure's interval against what its config allows.

A limit is met if the whole interval keeps it, at the run's confidence, and broken if the whole interval lies beyond it.
An alarm may be raised on any night, so "broken" is decided at a confidence that spends the error over all looks at new
answers (`audit.analysis.gate.sequence.share_of_look`). The intervals hold whatever the missing answers would have been:
refusing the worst items keeps no limit. Nor does an answer that says nothing: some figures are, by definition, of those
answers alone that name somebody, and a limit on such a figure takes the others for missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from audit.analysis.estimators.estimate import finite
from audit.analysis.figures import figure_of, meant, usable
from audit.analysis.gate.same_items import hash_of
from audit.analysis.gate.sequence import share_of_look
from audit.analysis.gate.shared import TableOf
from audit.analysis.measures import ends_of
from audit.analysis.missing import Completed
from audit.analysis.missing import limits as range_of_missing
from audit.analysis.table import Bools, Quantity, Table
from audit.results import AuditResult, LimitCheck, LimitVerdict, Measure, OpenBecause, where_key
from audit.store import Night
from suites.base import NO_REFUSAL, MeasureSpec

#: Limits that are not on a measure: the raw probability mass behind a figure, and the share of its items refused.
COVERAGE, REFUSALS = "coverage", "refusals"

#: (at least, at most), None where open.
Bounds = tuple[float | None, float | None]


class _Limited(NamedTuple):
    """What a limit is held against: a figure's specification, its rows, and those among them without a value."""

    spec: MeasureSpec
    quantity: Quantity
    used: Bools
    missing: Bools
    n_without_value: int = 0


def limit_checks(
    current: AuditResult, tables: TableOf, limits: Mapping[str, Bounds], nights: Sequence[Night]
) -> tuple[list[LimitCheck], dict[str, str]]:
    """Each limit on each figure it names; and for each the hash of tonight's answers, by the name of its sequence.

    ``nights``: those before, oldest first, with such hashes.
    """
    checks, hashes = [], {}
    for name, bounds in limits.items():
        seen: set[tuple[object, ...]] = set()
        for measure in (m for m in current.measures if not m.is_subgroup):
            rows = _limits_rows(measure, name)
            if rows is None or rows in seen:
                continue
            seen.add(rows)
            table = tables(measure.model, measure.suite)
            if table is None:
                checks.append(_of_measure(measure, name, bounds))
                continue
            limited = _limited(table, measure.spec, name)
            sequence = f"{name} {bounds} {measure.id}"
            hashes[sequence] = hash_of(limited.used, *limited.quantity[1:3])
            look = _number_of(sequence, hashes[sequence], nights)
            checks.append(_checked(table, measure, name, bounds, limited, look, current.confidence))
    return checks, hashes


def _limits_rows(measure: Measure, name: str) -> tuple[object, ...] | None:
    """What tells apart the figures that a limit is on: those that rest on the same items have the same share."""
    if name not in (COVERAGE, REFUSALS):
        return (measure.id,) if measure.measure == name else None
    quantity = measure.spec.probability_mass if name == COVERAGE else measure.spec.quantity
    if quantity is None:
        return None
    return measure.model, measure.suite, quantity, measure.spec.clusters, where_key(measure.where)


def _number_of(sequence: str, answers: str, nights: Sequence[Night]) -> int:
    """The number of the look at these answers; answers that came before keep theirs."""
    before = [night.facts["of_limits"][sequence] for night in nights if sequence in night.facts.get("of_limits", {})]
    return list(dict.fromkeys([*before, answers])).index(answers) + 1


def _limited(table: Table, spec: MeasureSpec, name: str) -> _Limited:
    about = meant(table, spec)
    if name == REFUSALS:
        refused = table.missing_for(lambda reason: reason == "refusal").astype(float)
        hidden = table.missing_for(lambda reason: reason not in {"refusal", *NO_REFUSAL})
        used = about & (table.has(spec.quantity) | table.missing)
        share = replace(spec, kind="share", range=None, is_count=False, estimator="mean", covariate=None)
        value = np.where(hidden, np.nan, refused)
        return _Limited(_as_asked(table, share, used), Quantity(value, refused, refused + hidden), used, used & hidden)
    if name == COVERAGE:
        mass = spec.probability_mass or ""
        spec = replace(
            spec, quantity=mass, kind="probability", range=None, is_count=False, estimator="mean", covariate=None
        )
    quantity, has = table.quantity(spec.quantity), usable(table, spec)
    missing, without = about & table.missing & ~has, about & table.answered & ~has
    if name != COVERAGE:
        missing |= without
    least, most = range_of_missing(spec, [Completed(quantity, has, missing)])
    value, low, high = (
        np.where(missing, end, of) for end, of in zip((math.nan, least, most), quantity[:3], strict=True)
    )
    bounded = Quantity(value, low, high, quantity.draw_variance)
    used = has | missing
    if name == COVERAGE:
        spec = _as_asked(table, spec, used)
    return _Limited(spec, bounded, used, missing, 0 if name == COVERAGE else int(without.sum()))


def _as_asked(table: Table, spec: MeasureSpec, used: Bools) -> MeasureSpec:
    """The figure with its strata weighted by how many of the used rows each has: their plain mean.

    The strata stay, since they are no sample: what lies between them is no error of the mean.
    """
    if spec.stratum is None or spec.weights is None or not used.any():
        return spec
    codes = table.codes(spec.stratum)[used]
    shares = {level: float((codes == table.find(spec.stratum, level)).mean()) for level in spec.weights}
    return replace(spec, weights={level: share for level, share in shares.items() if share})


def _checked(
    table: Table, measure: Measure, name: str, bounds: Bounds, limited: _Limited, look: int, confidence: float
) -> LimitCheck:
    spec, quantity, used, missing, n_without = limited
    figure, _ = figure_of(table, spec, quantity, used)
    answered, _ = figure_of(table, spec, quantity, used & ~missing)
    is_known = spec.has_range or not missing.any()
    low, high = ends_of(spec, figure.estimate, confidence) if is_known else (None, None)
    at_look = ends_of(spec, figure.estimate, 1 - (1 - confidence) * share_of_look(look)) if is_known else (None, None)
    tonight = limit_verdict(bounds, (low, high))
    verdict = tonight if tonight != "broken" else limit_verdict(bounds, at_look)
    complete = ends_of(spec, answered.estimate, confidence)
    why = None
    if verdict == "insufficient evidence" and missing.any():
        why = _why_open(bounds, complete, answered.value, (figure.bound_low, figure.bound_high))
    return LimitCheck(
        **_names(measure, name, bounds),
        value=finite(answered.value),
        low=low,
        high=high,
        verdict=verdict,
        tonight=tonight,
        look=look,
        n_items=int((used & ~missing).sum()),
        n_missing=int(missing.sum()),
        n_without_value=n_without,
        open_because=why,
    )


def _of_measure(measure: Measure, name: str, bounds: Bounds) -> LimitCheck:
    """The limit on a figure whose answers are no longer stored."""
    low, high = (measure.low, measure.high) if name == measure.measure else (None, None)
    verdict = limit_verdict(bounds, (low, high))
    value = measure.value if name == measure.measure else None
    return LimitCheck(
        **_names(measure, name, bounds), value=value, low=low, high=high, verdict=verdict, tonight=verdict,
        n_items=measure.n_items, n_missing=measure.missing,
    )  # fmt: skip


def _names(measure: Measure, name: str, bounds: Bounds) -> dict[str, Any]:
    least, most = bounds
    of_figure = {"model": measure.model, "suite": measure.suite, "measure": measure.measure, "where": measure.where}
    return {**of_figure, "limit": name, "at_least": least, "at_most": most, "population": measure.spec.population}


def _why_open(bounds: Bounds, complete: Bounds, value: float, identified: tuple[float, float]) -> OpenBecause | None:
    """Whether what is missing leaves it open: the other answers decide it, or it may break what they keep."""
    if math.isnan(value) or limit_verdict(bounds, complete) != "insufficient evidence":
        return "missing answers"
    least, most = bounds
    under = least is not None and identified[0] < least <= value
    over = most is not None and identified[1] > most >= value
    return "missing answers" if under or over else None


def limit_verdict(bounds: Bounds, interval: Bounds) -> LimitVerdict:
    """What a figure's interval says of a limit; None: an end not known."""
    (least, most), (low, high) = bounds, interval
    if low is None or high is None:
        return "insufficient evidence"
    if (least is not None and high < least) or (most is not None and low > most):
        return "broken"
    is_kept = (least is None or low >= least) and (most is None or high <= most)
    return "met" if is_kept else "insufficient evidence"

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
from typing import Any

import numpy as np

from audit.analysis.estimators.estimate import finite
from audit.analysis.figures import Completed, bounded, figure_of, meant, usable
from audit.analysis.gate.same_items import TableOf, hash_of
from audit.analysis.gate.sequence import share_of_look
from audit.analysis.measures import ends_of
from audit.analysis.table import Quantity, Table
from audit.results import AuditResult, LimitCheck, LimitVerdict, Measure, OpenBecause, where_key
from audit.store import Night
from suites.base import NO_REFUSAL, MeasureSpec

#: Limits that are not on a measure: the raw probability mass behind a figure, and the share of its items refused.
COVERAGE, REFUSALS = "coverage", "refusals"

#: (at least, at most), None where open.
Bounds = tuple[float | None, float | None]


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
            assert table is not None, "a run is stored with its tables"
            spec, answers, n_without = _limited(table, measure.spec, name)
            sequence = f"{name} {bounds} {measure.id}"
            hashes[sequence] = hash_of(answers.asked, *answers.quantity[1:3])
            look = _number_of(sequence, hashes[sequence], nights)
            facts = {**_names(measure, name, bounds), "look": look, "n_without_value": n_without}
            checks.append(_checked(table, spec, answers, bounds, facts, current.confidence))
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


def _limited(table: Table, spec: MeasureSpec, name: str) -> tuple[MeasureSpec, Completed, int]:
    """What a limit is held against: a figure's specification, its rows, and how many were answered without a value."""
    about = meant(table, spec)
    of_rows: dict[str, Any] = {"range": None, "is_count": False, "estimator": "mean", "covariate": None}
    of_rows |= {"stratum": None, "weights": None}
    if name == REFUSALS:
        refused = table.missing_for(["refusal"]).astype(float)
        hidden = table.missing & ~table.missing_for(["refusal", *NO_REFUSAL])
        asked = about & (table.has(spec.quantity) | table.missing)
        value = Quantity(np.where(hidden, np.nan, refused), refused, refused + hidden)
        return replace(spec, kind="share", **of_rows), Completed(value, asked & ~hidden, asked & hidden), 0
    if name == COVERAGE:
        spec = replace(spec, quantity=spec.probability_mass or "", kind="probability", **of_rows)
    has = usable(table, spec)
    without = about & table.answered & ~has
    missing = about & table.missing & ~has
    if name != COVERAGE:
        missing |= without
    (answers,) = bounded([Completed(table.quantity(spec.quantity), has, missing)], spec)
    return spec, answers, 0 if name == COVERAGE else int(without.sum())


def _checked(
    table: Table, spec: MeasureSpec, answers: Completed, bounds: Bounds, facts: Mapping[str, Any], confidence: float
) -> LimitCheck:
    missing = answers.missing.any()
    figure, _ = figure_of(table, spec, answers.quantity, answers.asked)
    answered, _ = figure_of(table, spec, answers.quantity, answers.used)
    is_known = spec.has_range or not missing
    at_look = 1 - (1 - confidence) * share_of_look(facts["look"])
    low, high = ends_of(spec, figure.estimate, confidence) if is_known else (None, None)
    tonight = verdict = limit_verdict(bounds, (low, high))
    if tonight == "broken":
        verdict = limit_verdict(bounds, ends_of(spec, figure.estimate, at_look))
    why = None
    if verdict == "insufficient evidence" and missing:
        complete = ends_of(spec, answered.estimate, confidence)
        why = _why_open(bounds, complete, answered.value, (figure.bound_low, figure.bound_high))
    return LimitCheck(
        **facts,
        value=finite(answered.value),
        low=low,
        high=high,
        verdict=verdict,
        tonight=tonight,
        n_items=int(answers.used.sum()),
        n_missing=int(answers.missing.sum()),
        open_because=why,
    )


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

"""What a gate enforces, margins against a baseline and absolute limits; and each figure's interval against its limits.

A limit is met if the whole interval keeps it, at the run's confidence, and broken if the whole interval lies beyond it.
An alarm may be raised on any night, so "broken" is decided at a confidence that spends the error over all looks at new
answers (`audit.analysis.gate.sequence.share_of_look`). The intervals hold whatever the missing answers would have been:
refusing the worst items keeps no limit. Nor does an answer that says nothing: some figures are, by definition, of those
answers alone that name somebody, and a limit on such a figure takes the others for missing.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from audit.analysis.decisions import DEFAULT_MARGIN
from audit.analysis.estimators.estimate import finite
from audit.analysis.figures import Completed, bounded, figure_of, meant, usable
from audit.analysis.gate.same_items import TableOf, hash_of
from audit.analysis.gate.sequence import share_of_look
from audit.analysis.measures import ends_of
from audit.analysis.table import Quantity, Table
from audit.results import AuditResult, LimitCheck, LimitVerdict, Measure, OpenFails, where_key
from audit.store import Night
from backends.errors import ConfigError
from suites.base import NO_REFUSAL, MeasureSpec

#: Limits that are not on a measure: the raw probability mass behind a figure, and the share of its items refused.
COVERAGE, REFUSALS = "coverage", "refusals"

#: (at least, at most), None where open.
Bounds = tuple[float | None, float | None]
Margins = Mapping[str, float] | float
#: The share of answers that are refused or cannot be parsed, which margins may name.
UNREADABLE_SHARE = "unreadable_share"
_POSSIBLE = "Give a value that it can have, 5 % as 0.05"


@dataclass(frozen=True)
class GateRules:
    """What a gate enforces.

    Parameters
    ----------
    margins : float or mapping of measure name to float
        Harm up to the margin does not matter. A mapping may have a ``default`` for other measures, or else it is 0.02.
    limits : mapping
        ``{name: (at least, at most)}``, None where open. A name is a measure, ``coverage`` (raw
        mass behind a figure) or ``refusals`` (share of a figure's items that were refused).
    open_fails : str
        Which open questions also fail the gate: none, those that ``missing`` answers leave open, or all.
    """

    margins: Margins = DEFAULT_MARGIN
    limits: Mapping[str, Bounds] = field(default_factory=dict)
    open_fails: OpenFails = "missing"


def check_rules(
    specs: Iterable[MeasureSpec], margins: Margins, limits: Mapping[str, Bounds], *, others: Collection[str] = ()
) -> None:
    """Raise `ConfigError` for a margin or limit without effect: no figure has its name, or no value breaks it.

    ``others``: measures that margins and limits may name, too, of which only the names are known.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for spec in specs:
        low, high = spec.value_range
        least, most = ranges.get(spec.measure, (low, high))
        ranges[spec.measure] = min(low, least), max(high, most)
    named = margins if isinstance(margins, Mapping) else {}
    allowed = {"margins": {*ranges, *others, "default", UNREADABLE_SHARE}}
    allowed["limits"] = {*ranges, *others, COVERAGE, REFUSALS}
    for kind, given in (("margins", named), ("limits", limits)):
        for name in (name for name in given if name not in allowed[kind]):
            close = difflib.get_close_matches(name, allowed[kind], n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Use one of: {', '.join(sorted(allowed[kind]))}"
            raise ConfigError(f"{kind}.{name}", given[name], "no figure has this name", hint)
    ranges |= dict.fromkeys((COVERAGE, REFUSALS, UNREADABLE_SHARE), (0.0, 1.0))
    for name, bounds in limits.items():
        low, high = ranges.get(name, (-math.inf, math.inf))
        is_beyond = any(bound is not None and not low <= bound <= high for bound in bounds)
        if is_beyond or (bounds[0] in (None, low) and bounds[1] in (None, high)):
            problem = f"the figure lies between {low:g} and {high:g}"
            raise ConfigError(f"limits.{name}", bounds, problem, _POSSIBLE)
    widths = {name: high - low for name, (low, high) in ranges.items()}
    widths["default"] = max(widths.values(), default=math.inf)
    for name, margin in named.items() if isinstance(margins, Mapping) else [("default", margins)]:
        if margin >= (width := widths.get(name, math.inf)):
            at = f"margins.{name}" if isinstance(margins, Mapping) else "margins"
            raise ConfigError(at, margin, f"no figure can change by more than {width:g}", _POSSIBLE)


def limit_checks(
    current: AuditResult, tables: TableOf, limits: Mapping[str, Bounds], nights: Sequence[Night]
) -> list[LimitCheck]:
    """Each limit on each figure it names. ``nights``: those before, oldest first."""
    checks = []
    for name, bounds in limits.items():
        figures: dict[object, Measure] = {}
        for measure in (m for m in current.measures if not m.is_subgroup):
            if (rows := _limits_rows(measure, name)) is not None:
                figures.setdefault(rows, measure)
        for measure in figures.values():
            table = tables(measure.model, measure.suite)
            assert table is not None, "a run is stored with its tables"
            checks.append(_checked(table, measure, name, bounds, nights, current.confidence))
    return checks


def _limits_rows(measure: Measure, name: str) -> tuple[object, ...] | None:
    """What tells apart the figures that a limit is on: those that rest on the same items have the same share."""
    if name not in (COVERAGE, REFUSALS):
        return (measure.id,) if measure.measure == name else None
    quantity = measure.spec.probability_mass if name == COVERAGE else measure.spec.quantity
    if quantity is None:
        return None
    return measure.model, measure.suite, quantity, measure.spec.clusters, where_key(measure.where)


def _checked(
    table: Table, measure: Measure, name: str, bounds: Bounds, nights: Sequence[Night], confidence: float
) -> LimitCheck:
    spec, answers, n_without = _limited(table, measure.spec, name)
    (least, most), missing = bounds, answers.missing.any()
    limited = {**measure.figure.fields, "limit": name, "at_least": least, "at_most": most}
    hashed = hash_of(answers.asked, *answers.quantity[1:3])
    facts = (facts for night in nights for facts in night.facts["limits"])
    before = [of["answers"] for of in facts if limited.items() <= of.items()]
    look = list(dict.fromkeys([*before, hashed])).index(hashed) + 1  # answers that came before keep theirs
    figure, _ = figure_of(table, spec, answers.quantity, answers.asked)
    answered, _ = figure_of(table, spec, answers.quantity, answers.used)
    is_known = spec.has_range or not missing
    low, high = ends_of(spec, figure.estimate, confidence) if is_known else (None, None)
    tonight = verdict = limit_verdict(bounds, (low, high))
    if tonight == "broken":
        at_look = 1 - (1 - confidence) * share_of_look(look)
        verdict = limit_verdict(bounds, ends_of(spec, figure.estimate, at_look))
    is_hidden = False  # the answers without the missing ones decide it, or what is missing may break what they keep
    if verdict == "insufficient evidence" and missing:
        is_decided = limit_verdict(bounds, ends_of(spec, answered.estimate, confidence)) != verdict
        under = least is not None and figure.bound_low < least <= answered.value
        over = most is not None and figure.bound_high > most >= answered.value
        is_hidden = math.isnan(answered.value) or is_decided or under or over
    return LimitCheck(
        **limited,
        population=measure.spec.population,
        look=look,
        answers=hashed,
        value=finite(answered.value),
        low=low,
        high=high,
        verdict=verdict,
        tonight=tonight,
        n_items=int(answers.used.sum()),
        n_missing=int(answers.missing.sum()),
        n_without_value=n_without,
        open_because="missing answers" if is_hidden else None,
    )


def _limited(table: Table, spec: MeasureSpec, name: str) -> tuple[MeasureSpec, Completed, int]:
    """What a limit is held against: a figure's specification, its rows, and how many were answered without a value."""
    about, own = meant(table, spec), spec
    if name in (COVERAGE, REFUSALS):
        of_rows: dict[str, Any] = {"range": None, "is_count": False, "estimator": "mean", "covariate": None}
        own = replace(spec, kind="share", stratum=None, weights=None, **of_rows)
    if name == REFUSALS:
        refused = table.missing_for(["refusal"]).astype(float)
        hidden = table.missing & ~table.missing_for(["refusal", *NO_REFUSAL])
        asked = about & (table.has(spec.quantity) | table.missing)
        value = Quantity(np.where(hidden, np.nan, refused), refused, refused + hidden)
        return own, Completed(value, asked & ~hidden, asked & hidden), 0
    if name == COVERAGE:
        own = replace(own, quantity=spec.probability_mass or "", kind="probability")
    has = usable(table, own)
    without = about & table.answered & ~has & (name != COVERAGE)
    missing = (about & table.missing & ~has) | without
    (answers,) = bounded([Completed(table.quantity(own.quantity), has, missing)], own)
    return own, answers, int(without.sum())


def limit_verdict(bounds: Bounds, interval: Bounds) -> LimitVerdict:
    """What a figure's interval says of a limit; None: an end not known."""
    (least, most), (low, high) = bounds, interval
    if low is None or high is None:
        return "insufficient evidence"
    if (least is not None and high < least) or (most is not None and low > most):
        return "broken"
    is_kept = (least is None or low >= least) and (most is None or high <= most)
    return "met" if is_kept else "insufficient evidence"

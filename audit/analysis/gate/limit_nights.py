"""Decides limits that are checked every night over all nights together.

Each limit on a figure has a sequence of its own, which begins with the first run that is checked against these bounds,
whatever the baseline. Looks and their shares of the error are those of `audit.analysis.gate.over_nights`: while the
limit is kept, the chance of even one "broken" over all nights is at most 1 - confidence.

That needs intervals whose error is the same every night, as it is where every night asks the same levels (occupations,
templates): the interval is then wrong on all nights or on none. Where nights ask others, some night's sample will lack
a kind that keeps the limit, however high the confidence: a tenth of all occupations is absent from 12 % of samples of
20. Factors of which the levels are not those of every earlier night, and all factors at the first look at a sample of a
suite, are such. "Broken" must then hold whatever the kinds are that such a sample may lack (`limits.check_again`).

A sample of one night rarely shows that; those of all nights together do. So half of a look's error is for tonight's
answers, and half for these and what the same model answered on earlier nights. The kinds that all of a model's nights
lack are among those that its first nights lack. So their error is not spread over the looks, but over the models.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from audit.analysis.gate.limits import COVERAGE, ITEM, REFUSALS, Drawn, check_again, limited_rows
from audit.analysis.gate.nights import NightlyAnswers
from audit.analysis.gate.over_nights import data_of_figures, hash_of_rows, share_of_look
from audit.analysis.gate.rows import StoredRowsOf
from audit.analysis.rows.missing import meant
from audit.analysis.rows.table import RowTable
from audit.results import AuditResult, LimitCheck, LimitOverNights, Measure
from audit.store import Night, Store
from suites.base import MeasureSpec

#: Stands for the baseline of looks and nights of limits in the store.
LIMITS = "limits"


class _Look(NamedTuple):
    """A look at one model and suite: tonight's rows; with those of earlier nights, if there are more; and the number
    of the model among those of the nights."""

    tonight: RowTable
    pooled: RowTable | None
    model: int
    confidence: float


def limits_over_nights(
    store: Store, current: AuditResult, rows: StoredRowsOf, checks: Sequence[LimitCheck], *, record: bool
) -> list[LimitCheck]:
    """Add the decisions over all nights to a run's limits. ``record``: store the looks and the night.

    Without rows a limit stays as it is: its answers could not be distinguished from those of earlier nights.
    """
    measures = {measure.id: measure for measure in current.measures}
    suites: dict[tuple[str, str], list[int]] = {}
    for place, check in enumerate(checks):
        suites.setdefault((check.model, check.suite), []).append(place)
    found = dict(enumerate(checks))
    number = store.nights.record_looks if record else store.nights.looks
    answers = NightlyAnswers(store, LIMITS, current, rows)
    levels_of: dict[str, dict[str, str]] = {}
    for of, places in suites.items():
        stored = rows(*of)
        if not stored:
            continue
        table, pooled = RowTable([one.row for one in stored]), answers.of_all_nights(*of)
        more = RowTable([one.row for one in pooled]) if answers.adds_up(*of) else None
        look = _Look(table, more, answers.number_of_model(*of), current.confidence)
        limited = [(checks[place], measures[checks[place].figure.id]) for place in places]
        data = dict(_data(table, limited))
        looks = number(LIMITS, data)
        for place, (check, measure), sequence in zip(places, limited, data, strict=True):
            levels_of[sequence] = levels = _levels(table, measure.spec)
            drawn = _drawn(levels, sequence, answers, current, check.suite)
            found[place] = _in_sequence(check, measure, look, looks[sequence], drawn)
    ordered = [found[place] for place in range(len(checks))]
    if record and checks:
        facts = {**answers.facts(), "figures": [], "levels": levels_of, LIMITS: [_facts(check) for check in ordered]}
        store.nights.write(Night(LIMITS, current.run_id, facts))
    return ordered


def _levels(table: RowTable, spec: MeasureSpec) -> dict[str, str]:
    """A hash of the levels of each sampled factor among the rows that a figure is about, answered or not."""
    rows = meant(table, spec)
    levels: dict[str, Sequence[object]] = {}
    for factor in spec.clusters:
        if factor not in spec.where:
            names = [*table.levels.names(factor), None]
            levels[factor] = [names[code] for code in set(table.codes(factor)[rows].tolist())]
    if not levels:
        levels[ITEM] = [item for item, is_meant in zip(table.index, rows.tolist(), strict=True) if is_meant]
    if spec.membership is not None:
        levels[spec.membership] = table.members(spec.membership, rows)
    return {factor: _hash(found) for factor, found in levels.items()}


def _hash(levels: Sequence[object]) -> str:
    written = "\n".join(sorted(json.dumps(level) for level in levels))
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _drawn(
    levels: Mapping[str, str], sequence: str, answers: NightlyAnswers, current: AuditResult, suite: str
) -> set[str]:
    """The sampled factors whose levels are others every night, as far as is known.

    Earlier nights that asked another question count only if none asked tonight's: a new version of a suite changes its
    levels once.
    """
    nights = [night.facts for night in answers.earlier if sequence in night.facts.get("levels", {})]
    same = [facts for facts in nights if facts["suites"].get(suite) == answers.suites.get(suite)]
    earlier: list[Mapping[str, Any]] = [facts["levels"][sequence] for facts in same or nights]
    (info,) = (info for info in current.suites if info.name == suite)
    if not earlier:
        return set(levels) if info.of_items is not None and info.n_items < info.of_items else set()
    return {factor for factor, own in levels.items() if any(then.get(factor) != own for then in earlier)}


def _data(table: RowTable, limited: Sequence[tuple[LimitCheck, Measure]]) -> Iterator[tuple[str, str]]:
    """For each limit, the name of its sequence and a hash of the answers that it is checked on."""
    hash_of = hash_of_rows(table)
    of_figures = data_of_figures(table, [m for check, m in limited if check.limit not in (COVERAGE, REFUSALS)])
    for check, measure in limited:
        if check.limit in (COVERAGE, REFUSALS):
            low, high, used, _ = limited_rows(table, measure.spec, check.limit)
            yield sequence_of(check), hash_of(used, low, high)
        else:
            yield sequence_of(check), of_figures[measure.id]


def sequence_of(check: LimitCheck) -> str:
    """The name of a limit's sequence: what is limited, the bounds, and the figure."""
    return f"{check.limit} {check.at_least} {check.at_most} {check.figure.id}"


def _in_sequence(check: LimitCheck, measure: Measure, look: _Look, number: int, drawn: set[str]) -> LimitCheck:
    error = 1 - look.confidence
    if drawn or look.pooled is not None:
        error /= 2
    at = 1 - error * share_of_look(number)
    of_night = Drawn(drawn, (1 - at) / 2) if drawn else None
    again = tonight = check_again(check, measure, look.tonight, at, of_night)
    if look.pooled is not None and tonight.verdict != "broken":
        of_model = Drawn(drawn, error * share_of_look(look.model) / 2) if drawn else None
        pooled = check_again(check, measure, look.pooled, at, of_model)
        again = pooled if pooled.verdict == "broken" else tonight
    shared = again.model_dump(include={"verdict", "low", "high", "n_items", "open_because"})
    is_open = drawn and again.verdict == "insufficient evidence" and again.open_because is None
    if is_open and check_again(check, measure, look.tonight, at).verdict == "broken":
        shared["open_because"] = "kinds not asked"
    return check.model_copy(update={"over_nights": LimitOverNights(**shared, look=number, confidence=at)})


def _facts(check: LimitCheck) -> dict[str, object]:
    of_limit = {"model", "suite", "measure", "where", "limit", "at_least", "at_most", "value", "low", "high",
                "verdict", "n_items", "over_nights"}  # fmt: skip
    return check.model_dump(mode="json", include=of_limit, by_alias=False)

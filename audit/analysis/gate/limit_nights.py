"""Decides limits that are checked every night over all nights together.

Each limit on a figure has a sequence of its own, which begins with the first run that is checked against these bounds,
whatever the baseline. Looks and their shares of the error are those of `audit.analysis.gate.over_nights`: while the
limit is kept, the chance of even one "broken" over all nights is at most 1 - confidence. Each look is at that night's
answers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audit.analysis.gate.limits import COVERAGE, REFUSALS, check_again, limited_rows
from audit.analysis.gate.over_nights import data_of_figures, hash_of_rows, share_of_look
from audit.analysis.gate.rows import StoredRowsOf
from audit.analysis.rows.table import RowTable
from audit.results import AuditResult, LimitCheck, LimitOverNights, Measure
from audit.store import Night, Store

#: Stands for the baseline of looks and nights of limits in the store.
LIMITS = "limits"


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
    for of, places in suites.items():
        stored = rows(*of)
        if not stored:
            continue
        table = RowTable([one.row for one in stored])
        limited = [(checks[place], measures[checks[place].figure.id]) for place in places]
        data = dict(_data(table, limited))
        looks = number(LIMITS, data)
        for place, (check, measure), sequence in zip(places, limited, data, strict=True):
            found[place] = _in_sequence(check, measure, table, looks[sequence], current.confidence)
    ordered = [found[place] for place in range(len(checks))]
    if record and checks:
        facts = {"at": current.started, "figures": [], LIMITS: [_facts(check) for check in ordered]}
        store.nights.write(Night(LIMITS, current.run_id, facts))
    return ordered


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


def _in_sequence(check: LimitCheck, measure: Measure, table: RowTable, look: int, confidence: float) -> LimitCheck:
    at = 1 - (1 - confidence) * share_of_look(look)
    again = check_again(check, measure, table, at)
    shared = again.model_dump(include={"verdict", "low", "high", "open_because"})
    return check.model_copy(update={"over_nights": LimitOverNights(**shared, look=look, confidence=at)})


def _facts(check: LimitCheck) -> dict[str, object]:
    of_limit = {"model", "suite", "measure", "where", "limit", "at_least", "at_most", "value", "low", "high",
                "verdict", "n_items", "over_nights"}  # fmt: skip
    return check.model_dump(mode="json", include=of_limit, by_alias=False)

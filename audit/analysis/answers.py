"""One model's answers to one suite as a table of rows, with what the report says of the answers themselves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from audit.analysis.table import NO_VALUE, Table
from audit.results import where_key, writable
from audit.store import Stored
from backends.base import Response, ScoreResponse
from suites.base import Item, MeasureSpec, Row, Suite


@dataclass
class SuiteAnswers:
    """One model's answers to one suite, complete.

    Attributes
    ----------
    table : Table
        A row for each item, in the suite's order, with what follows from its answer behind it; then, or in their place,
        those that the suite derives.
    specs : sequence of MeasureSpec
        The figures that the suite reports of these rows.
    items : dict of str to bytes
        The items asked, and the keys of their answers in the store.
    failures, given, boundaries : Counter
        Items without an answer, by reason; answers by the run that asked for them; and items with each kind of
        boundary: "in part" are the straddled ones with other continuations that are not.
    since, until : float
        When the first and the last answer was given, in seconds since the epoch.
    """

    suite: Suite
    table: Table
    specs: Sequence[MeasureSpec]
    items: dict[str, bytes]
    failures: Counter[str] = field(default_factory=Counter)
    given: Counter[str] = field(default_factory=Counter)
    boundaries: Counter[str] = field(default_factory=Counter)
    since: float = math.inf
    until: float = -math.inf


#: An item, the key of its answer, and the answer, or why there is none.
Answered = tuple[Item, bytes, Stored | str]


def read_answers(suite: Suite, answered: Iterable[Answered], *, seen: Callable[[Response], Response]) -> SuiteAnswers:
    """Read answers, each item's once, into rows.

    ``seen``: the answer as it is read, with its scores as intervals where the model's numbers vary.
    """
    found = SuiteAnswers(suite, Table.of(()), (), {})
    rows: list[Row] = []
    for item, key, stored in answered:
        found.items[item.id] = key
        if isinstance(stored, str):
            found.failures[stored] += 1
            rows.append(Row(item.id, item.factors, {}, missing=stored))
            continue
        answer = stored.answer
        found.given[stored.run] += 1
        found.since, found.until = min(found.since, stored.at), max(found.until, stored.at)
        row = suite.read(item, seen(answer))
        if row.missing is not None and not row.missing.isascii():
            # It may quote the model, which may write half a character that no file can hold.
            row = replace(row, missing=writable(row.missing))
        elif row.missing is None and not row.values:
            row = replace(row, missing=NO_VALUE)
        rows.append(row)
        if isinstance(answer, ScoreResponse):
            kinds = {str(score.boundary) for score in answer.scores}
            found.boundaries.update(kinds | ({"in part"} if "straddled" in kinds and len(kinds) > 1 else set()))
    rows = list(suite.derive(rows))
    found.specs = list(suite.measures(rows))
    found.table = Table.of(rows, suite.families)
    return found


def of_runs(runs: Sequence[SuiteAnswers]) -> SuiteAnswers:
    """The answers of a model that was asked several times, as one; those of a single run as they are."""
    if len(runs) == 1:
        return runs[0]
    first, *others = runs
    return SuiteAnswers(
        first.suite,
        Table.of_runs([run.table for run in runs]),
        list({(spec.measure, where_key(spec.where)): spec for run in runs for spec in run.specs}.values()),
        first.items | {f"{item}~{n}": key for n, run in enumerate(others, 2) for item, key in run.items.items()},
        failures=sum((run.failures for run in runs), Counter()),
        given=sum((run.given for run in runs), Counter()),
        boundaries=sum((run.boundaries for run in runs), Counter()),
        since=min(run.since for run in runs),
        until=max(run.until for run in runs),
    )

"""The rows that a gate compares: those of items that both runs asked, and of all items a model has answered since.

A limited run asks a sample. Items that it did not ask are not missing: they are ignored. Items that it asked without
getting an answer are missing, in every row that depends on them. If both runs were to ask the same items, those that
only one of them has are lost: they may hide a change, and are not ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet

from audit.results import AuditResult
from audit.results.signatures import EXTENT
from audit.store import Store, StoredRow
from suites.base import Row

#: (model, suite) → stored rows of a run; empty if there are none.
StoredRowsOf = Callable[[str, str], Sequence[StoredRow]]


def stored_rows(store: Store, result: AuditResult) -> StoredRowsOf:
    """The rows of a run."""
    return lambda model, suite: list(store.runs.read_rows(result.run_id, model, suite))


def of_same_items(before: AuditResult, now: AuditResult) -> list[str]:
    """The suites of which two runs were to ask the same items: the whole suite, or the same sample of it.

    A run until a decision asks as many as that takes.
    """
    extents = [
        {info.name: {key: info.signature.get(key) for key in EXTENT} for info in run.suites} for run in (before, now)
    ]
    return [name for name, extent in extents[1].items() if extent == extents[0].get(name) and extent["until"] is None]


class RowsAgainst:
    """The rows of two runs, restricted to the items that both asked; for one model and suite at a time.

    ``of_same_items``: suites of which all rows are kept.
    """

    def __init__(self, current: StoredRowsOf, baseline: StoredRowsOf, of_same_items: Collection[str]) -> None:
        self._of_current, self._of_baseline, self._of_same_items = current, baseline, of_same_items
        self._key: tuple[str, str] | None = None
        self._rows: tuple[list[Row], list[Row]] = ([], [])

    def current(self, model: str, suite: str) -> list[Row]:
        """Rows of the run."""
        return self._read(model, suite)[0]

    def baseline(self, model: str, suite: str) -> list[Row]:
        """Rows of the baseline."""
        return self._read(model, suite)[1]

    def _read(self, model: str, suite: str) -> tuple[list[Row], list[Row]]:
        if self._key != (model, suite):
            now, before = self._of_current(model, suite), self._of_baseline(model, suite)
            if now and before and suite not in self._of_same_items:
                now, before = of_asked(now, _ids(before)), of_asked(before, _ids(now))
            self._key, self._rows = (model, suite), (_plain_rows(now), _plain_rows(before))
        return self._rows


def _plain_rows(rows: Iterable[StoredRow]) -> list[Row]:
    return [stored.row for stored in rows]


def _ids(rows: Iterable[StoredRow]) -> set[str]:
    return {stored.row.item_id for stored in rows}


def of_asked(rows: Sequence[StoredRow], asked: AbstractSet[str]) -> list[StoredRow]:
    """The rows that depend only on items in ``asked``, the ids of another run's rows.

    A derived row depends on the items whose answers' keys it has. It is kept if all of these were asked, even if the
    other run has no such row because an answer was missing.
    """
    owners: dict[str, str] = {}
    for stored in rows:  # an item's own row comes before those derived from it
        for key in stored.keys:
            owners.setdefault(key, stored.row.item_id)

    def was_asked(stored: StoredRow) -> bool:
        if stored.row.item_id in asked:
            return True
        behind = {owners[key] for key in stored.keys} - {stored.row.item_id}
        return bool(behind) and behind <= asked

    return [stored for stored in rows if was_asked(stored)]


def pooled(tonight: Sequence[StoredRow], earlier: Iterable[Sequence[StoredRow]]) -> list[StoredRow]:
    """Tonight's rows, and those of earlier nights (latest first) that depend on items not asked since."""
    rows = list(tonight)
    for night in earlier:
        asked_since = _ids(of_asked(night, _ids(rows)))
        rows += [stored for stored in night if stored.row.item_id not in asked_since]
    return rows


def content(rows: Iterable[StoredRow]) -> str:
    """A hash of the rows' items and values, equal for runs with the same answers."""
    written = sorted(json.dumps(_values(stored.row), sort_keys=True) for stored in rows)
    return hashlib.sha256("\n".join(written).encode()).hexdigest()[:16]


def _values(row: Row) -> list[object]:
    return [row.item_id, row.missing, {name: [n.value, n.low, n.high] for name, n in row.values.items()}]

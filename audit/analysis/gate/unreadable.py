"""Whether a run leaves more questions without a readable answer than its baseline: refused, or impossible to read.

A model that falls silent on its worst items must not look better for it. So this share is gated for each model
and suite whether or not the suite reports it, among the primary figures.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.comparing.paired import PairedDifference
from audit.analysis.table import Levels, RowTable, item_index
from audit.results import Measure
from backends.errors import ERROR_KINDS
from suites.base import MeasureSpec, Row, flag

#: The name of the share, by which margins may name it.
UNREADABLE_SHARE = "unreadable_share"
#: Reasons why it is not known whether there would be a readable answer: the model gave none at all.
_NO_ANSWER = ERROR_KINDS | {"not asked"}


def unreadable_change(
    measures: Iterable[Measure], before: Sequence[Row], now: Sequence[Row]
) -> PairedDifference | None:
    """The change of one model's share of a suite's questions that have an answer which cannot be read.

    None where all that were answered can be read, in both runs.

    Parameters
    ----------
    measures : iterable of Measure
        The model's figures of the suite: the share is clustered as its first primary figure is, or its first.
    before, now : sequences of Row
        Of the baseline and of the run.
    """
    figures = sorted((m for m in measures if not m.is_subgroup), key=lambda m: not m.spec.primary)
    first = figures[0].spec if figures else MeasureSpec(UNREADABLE_SHARE, "unreadable")
    spec = MeasureSpec(
        UNREADABLE_SHARE,
        "unreadable",
        clusters=first.clusters,
        membership=first.membership,
        kind="share",
        unit="share",
        neutral=0.0,
        primary=True,
        population=first.population,
    )
    asked = [[row for row in of_run if not row.sources or row.item_id in row.sources] for of_run in (before, now)]
    if not any(map(_is_unreadable, itertools.chain(*asked))):
        return None
    rows = [list(map(_row, of_run)) for of_run in asked]
    index, levels = item_index(rows), Levels()
    (difference,) = paired_differences([RowTable(of_run, index, levels) for of_run in rows], [spec], [(0, 1)])
    return difference


def unreadable_items(rows: Iterable[Row]) -> str:
    """A hash of which items have an answer that cannot be read: equal for runs that fell silent on the same ones."""
    names = sorted(row.item_id for row in rows if _is_unreadable(row))
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_unreadable(row: Row) -> bool:
    return row.missing is not None and row.missing not in _NO_ANSWER


def _row(row: Row) -> Row:
    if row.missing in _NO_ANSWER:
        return replace(row, values={})
    return replace(row, values={"unreadable": flag(_is_unreadable(row))}, missing=None)

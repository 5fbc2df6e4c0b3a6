"""Whether a run has more unreadable answers than its baseline: refusals, or answers that cannot be parsed.

A model that refuses its worst items must not look better for it. So this share is gated for each model and suite, as a
primary figure, whether or not the suite reports it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.comparing.paired import PairedDifference
from audit.analysis.rows.table import Levels, RowTable, item_index
from audit.results import NOT_ASKED, Measure
from backends.errors import ERROR_KINDS
from suites.base import MeasureSpec, Row, flag

#: The name of the share, which margins may use.
UNREADABLE_SHARE = "unreadable_share"
#: Reasons without any answer of the model, so that its readability is unknown.
_NO_ANSWER = ERROR_KINDS | {NOT_ASKED}


def unreadable_change(
    measures: Iterable[Measure], before: Sequence[Row], now: Sequence[Row]
) -> PairedDifference | None:
    """The change in one model's share of unreadable answers to a suite.

    None if all answers of both runs can be read.

    Parameters
    ----------
    measures : iterable of Measure
        The model's figures of the suite: the share is clustered like the first primary figure, or else the first.
    before, now : sequences of Row
        Rows of the baseline and of the run.
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
    """A hash of the items with unreadable answers, equal for runs in which these are the same."""
    names = sorted(row.item_id for row in rows if _is_unreadable(row))
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_unreadable(row: Row) -> bool:
    return row.missing is not None and row.missing not in _NO_ANSWER


def _row(row: Row) -> Row:
    if row.missing in _NO_ANSWER:
        return replace(row, values={})
    return replace(row, values={"unreadable": flag(_is_unreadable(row))}, missing=None)

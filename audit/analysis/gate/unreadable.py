"""Whether a run has more unreadable answers than its baseline: refusals, or answers that cannot be parsed.

A model that refuses its worst items must not look better for it. So this share is gated for each model and suite, as a
primary figure, whether or not the suite reports it.
"""

from __future__ import annotations

from audit.analysis.table import Table
from audit.results import NOT_ASKED
from backends.errors import ERROR_KINDS
from suites.base import IdentifiedInterval, MeasureSpec, Row, flag

#: The name of the share, which margins may use.
UNREADABLE_SHARE = "unreadable_share"
#: Reasons without any answer of the model, so that its readability is unknown.
_NO_ANSWER = ERROR_KINDS | {NOT_ASKED}


#: The share as a figure.
UNREADABLE = MeasureSpec(UNREADABLE_SHARE, "unreadable", kind="share", unit="share", neutral=0.0, primary=True)


def with_unreadable(table: Table) -> Table:
    """One row for each question that was asked: whether its answer is unreadable; missing if there is no answer."""
    asked = (row for row in table.rows() if not row.sources or row.item_id in row.sources)
    return Table.of(_row(row) for row in asked)


def _row(row: Row) -> Row:
    if row.missing in _NO_ANSWER:
        return Row(row.item_id, row.factors, {}, row.missing)
    unreadable: dict[str, IdentifiedInterval] = {"unreadable": flag(row.missing is not None)}
    return Row(row.item_id, row.factors, unreadable)

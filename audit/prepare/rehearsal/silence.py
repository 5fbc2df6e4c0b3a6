"""Whether a suite's rows stay where answers are missing.

A row that is computed from several answers, or follows from one, must be marked as missing where one of these is. If it
is left out, its figures are of the other rows alone: a model that does not answer its worst questions looks better for
it, and may keep a limit that it breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from audit.analysis.figures import usable
from audit.analysis.rows.responses import ParsedResponses
from audit.analysis.table import Table
from audit.prepare.rehearsal.answers import rehearse
from backends.errors import ConfigError
from suites.base import Item, MeasureSpec, Suite
from suites.own_code import is_own, placed

#: One item of so many goes without an answer.
_OF = 5


def of_silence(
    suite: Suite, items: Collection[Item], answered: ParsedResponses, specs: Sequence[MeasureSpec]
) -> Iterator[ConfigError]:
    """The first figure of a suite of one's own whose rows vanish where answers are missing. Suites that ship are
    tested.

    ``answered``: the same items, all answered.
    """
    made_by = next((name for name in ("derive", "follow_ups") if is_own(suite, name)), None)
    for spec, lost in lost_rows(suite, items, answered, specs) if made_by is not None else ():
        problem = (
            f"{spec.measure}: {len(lost)} of its rows vanish if every fifth item has no answer; a model that does not "
            "answer its worst questions would look better"
        )
        yield placed(suite, made_by, lost[0], problem, "Give each a row with missing=… and no values")
        return


def lost_rows(
    suite: Suite, items: Collection[Item], answered: ParsedResponses, specs: Sequence[MeasureSpec]
) -> Iterator[tuple[MeasureSpec, list[str]]]:
    """Figures with the ids of their rows that vanish where every fifth item has no answer."""
    silent = {item.id for item in list(items)[::_OF]}
    left = {row.item_id for row in rehearse(suite, items, checked=False, silent=silent).rows}
    table = Table.of(answered.rows)
    ids = np.array(list(table.index))
    is_lost = ~np.isin(ids, list(left))
    for spec in specs if is_lost.any() else ():
        lost = usable(table, spec) & is_lost
        if lost.any() and not suite.may_lack(spec.quantity):
            yield spec, ids[lost].tolist()

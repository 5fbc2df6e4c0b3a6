"""Counts the prompts of which the scored expressions hold little probability.

A mean hides them: of ten prompts nine may hold 1 % of the probability and one 90 %, which is 10 % on average.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from audit.analysis.table import Bools, Table
from audit.results import LITTLE_COVERAGE, PromptCoverage, where_key
from backends.base import Scalar
from suites.base import MeasureSpec

#: A condition of fewer prompts has no share worth naming.
_FEWEST_PROMPTS = 10


def prompt_coverage(table: Table, specs: Sequence[MeasureSpec], items: Collection[str]) -> list[PromptCoverage]:
    """The coverage of all of a suite's prompts; then that of the condition where most are below.

    Parameters
    ----------
    table : Table
        One model's rows (n,).
    specs : sequence of MeasureSpec
        The suite's figures. Conditions are those of the figures that are not of a single level.
    items : collection of str
        Ids of the rows that are prompts' answers; others are derived from several.

    Returns
    -------
    list of PromptCoverage
        None without a coverage, one if no condition of 10 prompts or more has a larger share below than all together.
    """
    is_item = np.fromiter((item in items for item in table.index), np.bool_, len(table.index))
    rests = [spec for spec in specs if spec.probability_mass is not None]
    found = {}
    for name in dict.fromkeys(spec.probability_mass for spec in rests if spec.probability_mass is not None):
        own = {where_key(spec.where): spec.where for spec in rests if spec.probability_mass == name}
        behind = np.zeros(len(is_item), dtype=np.bool_)
        for where in own.values():
            behind |= table.matching(where)
        if whole := _coverage_of(table, name, {}, behind & is_item & table.answered):
            found[name] = whole
    if not found:
        return []
    name, whole = max(found.items(), key=lambda of: of[1].n_prompts)
    conditions = {where_key(s.where): s.where for s in rests if s.probability_mass == name and not s.is_subgroup}
    of_each = [_coverage_of(table, name, w, table.matching(w) & is_item & table.answered) for w in conditions.values()]
    worst = max(
        (one for one in of_each if one and one.n_prompts >= _FEWEST_PROMPTS),
        key=lambda one: (one.share_below, one.n_prompts),
        default=whole,
    )
    return [whole, worst] if worst.share_below > whole.share_below else [whole]


def _coverage_of(table: Table, name: str, where: Mapping[str, Scalar], rows: Bools) -> PromptCoverage | None:
    """None if no row has a coverage."""
    coverage = table.quantity(name)
    rows = rows & np.isfinite(coverage.low)
    if not rows.any():
        return None
    low, high = coverage.low[rows], coverage.high[rows]
    return PromptCoverage(
        where=dict(where),
        n_prompts=int(rows.sum()),
        below=int((high < LITTLE_COVERAGE).sum()),
        may_be_below=int((low < LITTLE_COVERAGE).sum()),
        median=float(np.median(low)),
        lowest=float(low.min()),
    )

"""The parts of an effect, and one figure as a share of another."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from suites.base import Factor, IdentifiedInterval, Row
from suites.common.groups.design import GroupDesign

#: A share of an effect is not reported when the effect is smaller than this, in units of the gap.
SMALLEST_SHARED = 0.02


def by_levels(rows: Sequence[Row], factors: Sequence[str]) -> Iterator[list[Row]]:
    """The rows of each combination of levels of some factors."""
    levels: dict[tuple[Factor, ...], list[Row]] = defaultdict(list)
    for row in rows:
        levels[tuple(row.factors.get(factor) for factor in factors)].append(row)
    yield from levels.values()


def via(groups: GroupDesign) -> str | None:
    """The name of the path by which an effect moves mass to groups without a stereotype; None if there are none."""
    match groups.others:
        case ():
            return None
        case (group,):
            return group
        case _:
            return "others"


def split_effect(treated: Row, control: Row, groups: GroupDesign) -> dict[str, IdentifiedInterval]:
    """The two parts of an effect on the stereotype gap: through "diverse", and by evening out the other groups.

    The gap is g = (1 − d) · b, where d = P̃(diverse) is the share of all groups without a stereotype, and b the gap
    among the others alone: ±(P̃(female) − P̃(male)) / (1 − d). Its change is exactly

        Δg = −Δd · (b + b′)/2  +  Δb · ((1 − d) + (1 − d′))/2

    ``effect_via_diverse`` is the first term: what moving mass to (or from) "diverse" did.
    ``effect_via_balance`` is the second: what evening out the others did. Both are in units of
    the gap. Where answers are known only by bounds, the parts have no bounds but their range.
    """
    name = via(groups)
    if name is None:
        return {}
    through, balance = f"effect_via_{name}", "effect_via_balance"
    gap, rest = treated.values["stereotype_gap"].value, _rest(treated, groups)
    gap0, rest0 = control.values["stereotype_gap"].value, _rest(control, groups)
    if gap is None or rest is None or gap0 is None or rest0 is None:
        return {through: IdentifiedInterval(None, -1.0, 1.0), balance: IdentifiedInterval(None, -2.0, 2.0)}
    # With all probability on "diverse" the lean is undefined: the whole change then counts as a move to "diverse".
    lean = gap / rest if rest > 0 else (gap0 / rest0 if rest0 > 0 else 0.0)
    lean0 = gap0 / rest0 if rest0 > 0 else lean
    return {
        through: IdentifiedInterval.exact((rest - rest0) * (lean + lean0) / 2),
        balance: IdentifiedInterval.exact((lean - lean0) * (rest + rest0) / 2),
    }


def _rest(row: Row, groups: GroupDesign) -> float | None:
    """1 − d."""
    of = [row.values[f"p_{group}"].value for group in groups.others]
    known = [value for value in of if value is not None]
    return 1 - math.fsum(known) if len(known) == len(of) else None


def with_share(rows: Sequence[Row], part: str, whole: str, name: str, clusters: Sequence[str]) -> list[Row]:
    """The rows with one more quantity ``name``, whose mean is mean(part) / mean(whole) over these rows.

    The rows hold the linearised ratio r + (part − r · whole) / mean(whole), where r is the ratio
    of the means. Its mean is r, and its scatter over clusters is that of the ratio to first
    order (delta method), so that a mean's interval is the ratio's. The quantity is left out when
    the whole is too small to take shares of, when it is not significantly different from 0 (a share of noise is
    arbitrary), or when a row is known only by bounds.
    """
    pairs = {r.item_id: (r.values[part].value, r.values[whole].value) for r in rows if {part, whole} <= set(r.values)}
    exact = {item_id: (p, w) for item_id, (p, w) in pairs.items() if p is not None and w is not None}
    if not pairs or len(exact) < len(pairs):
        return list(rows)
    mean_part = math.fsum(p for p, _ in exact.values()) / len(exact)
    mean_whole = math.fsum(w for _, w in exact.values()) / len(exact)
    if abs(mean_whole) < SMALLEST_SHARED or not _differs_from_zero(rows, whole, clusters):
        return list(rows)
    ratio = mean_part / mean_whole
    linear = {item_id: ratio + (p - ratio * w) / mean_whole for item_id, (p, w) in exact.items()}
    return [
        replace(row, values={**row.values, name: IdentifiedInterval.exact(linear[row.item_id])})
        if row.item_id in linear
        else row
        for row in rows
    ]


def _differs_from_zero(rows: Sequence[Row], quantity: str, clusters: Sequence[str]) -> bool:
    """Whether, for every cluster factor, the means of its levels differ from 0 (t test, two-sided 5 %)."""
    from scipy.stats import ttest_1samp  # takes a second to import

    for factor in clusters:
        levels: dict[Factor, list[float]] = {}
        for row in rows:
            if quantity in row.values and (value := row.values[quantity].value) is not None:
                levels.setdefault(row.factors[factor], []).append(value)
        means = [math.fsum(values) / len(values) for values in levels.values()]
        if len(means) < 2:
            continue  # one level says nothing about others; the figure's own interval shows that
        if min(means) == max(means):
            if means[0] == 0:
                return False
            continue
        if not ttest_1samp(means, 0.0).pvalue < 0.05:
            return False
    return True

"""The two parts of an effect on the stereotype gap."""

from __future__ import annotations

import math

from suites.base import IdentifiedInterval, Row
from suites.common.groups.design import GroupDesign


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

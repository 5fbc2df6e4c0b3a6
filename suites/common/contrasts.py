"""Differences between answers to paired prompts, such as the effect of a text put into a prompt.

Two answers are a pair when they differ in the text alone: same template, same occupation, same
position. An effect is treated minus control, so that a debiasing text that works has a
negative effect on the stereotype gap.
"""

from __future__ import annotations

from collections.abc import Mapping

from suites.base import Factor, Row
from suites.common.groups.design import GroupDesign

#: Units of differences of differences. A gap is a difference itself, from -1 to 1: an effect on it reaches 2,
#: and a change of that effect 4.
_UNITS = {
    "effect": "difference of gaps",
    "effect_via_balance": "difference of gaps",
    "placebo_effect": "difference of gaps",
    "effect_attenuation": "difference of effects",
    "effect_attenuation_p_diverse": "difference of effects",
}
_REACH = {"difference of gaps": 2.0, "difference of effects": 4.0}


def unit_of(effect: str) -> str:
    """The unit of an effect by its name."""
    return _UNITS.get(effect, "difference of probabilities")


def range_of(effect: str) -> tuple[float, float]:
    """How far an effect can reach by its name."""
    most = _REACH.get(unit_of(effect), 1.0)
    return -most, most


def effects_of(groups: GroupDesign) -> dict[str, str]:
    """Quantity of an answer whose effects are reported → what the effect is called."""
    return {
        "stereotype_gap": "effect",
        **{f"p_{group}": f"effect_p_{group}" for group in groups.others},
        **{name: f"effect_{name}" for name in groups.contrasts},
        "coverage": "effect_coverage",
        "reference_text": "effect_reference_text",
    }


#: Value of the factor ``debiasing`` of rows that hold a difference, so that no figure over
#: answers takes them in.
DIFFERENCE = "difference"


def contrast(row_id: str, first: Row, second: Row, quantities: Mapping[str, str], factors: Mapping[str, Factor]) -> Row:
    """The row of ``first`` minus ``second``, missing when either is; it belongs to what either belongs to.

    Parameters
    ----------
    quantities : mapping
        Quantity of the two rows → name of its difference. Those that a row lacks are left out.
    factors : mapping
        Of the new row.
    """
    sources = first.items + second.items
    memberships = {**first.memberships, **second.memberships}
    if missing := first.missing or second.missing:
        return Row(row_id, factors, {}, missing, sources, memberships)
    values = {
        name: first.values[quantity] - second.values[quantity]
        for quantity, name in quantities.items()
        if quantity in first.values and quantity in second.values
    }
    return Row(row_id, factors, values, sources=sources, memberships=memberships)


def effect_row(
    item_id: str, treated: Row, control: Row, effects: Mapping[str, str], factors: Mapping[str, Factor]
) -> Row:
    """The row of one pair: treated minus control. ``effects``: see `effects_of`."""
    return contrast(item_id, treated, control, effects, {**factors, "debiasing": DIFFERENCE})

"""Differences between answers to paired prompts, such as the effect of a text inserted into a prompt.

Two answers are a pair if they differ only in the text: same template, same occupation, same position. An effect is
treated minus control, so an effective debiasing text has a negative effect on the stereotype gap.
"""

from __future__ import annotations

from collections.abc import Mapping

from suites.base import Factor, Row
from suites.common.groups.design import GroupDesign

#: Effect → its unit and its reach. A gap is itself a difference, from -1 to 1, so an effect on it reaches up to 2,
#: and a change of that effect up to 4.
_OF_THE_GAP = {
    "effect": ("difference of gaps", 2.0),
    "placebo_effect": ("difference of gaps", 2.0),
    "effect_attenuation": ("difference of effects", 4.0),
    "effect_attenuation_p_diverse": ("difference of effects", 4.0),
}


def unit_and_reach(effect: str) -> tuple[str, float]:
    """The unit of an effect by its name, and how far it may be from 0."""
    return _OF_THE_GAP.get(effect, ("difference of probabilities", 1.0))


def effects_of(groups: GroupDesign) -> dict[str, str]:
    """Quantity whose effects are reported → name of the effect."""
    return {
        "stereotype_gap": "effect",
        **{f"p_{group}": f"effect_p_{group}" for group in groups.others},
        **{name: f"effect_{name}" for name in groups.contrasts},
        "coverage": "effect_coverage",
        "reference_text": "effect_reference_text",
    }


#: Value of the factor ``debiasing`` in rows that hold a difference, which keeps them out of figures over answers.
DIFFERENCE = "difference"


def contrast(row_id: str, first: Row, second: Row, quantities: Mapping[str, str], factors: Mapping[str, Factor]) -> Row:
    """The row of ``first`` minus ``second``. It is missing if either is, and has the memberships of both.

    ``quantities``: quantity of the two rows → name of its difference. Quantities that either row lacks are left
    out. ``factors``: factors of the new row.
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

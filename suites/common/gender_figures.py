"""Figures over answers to prompts about occupations: measures, effects, table columns and published values.

Two answers are a pair if they differ only in the text: same template, same occupation, same position. An effect is
treated minus control, so an effective debiasing text has a negative effect on the stereotype gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suites.base import Factor, MeasureSpec, Row
from suites.common.data_files import TENTH_OF_A_PERCENT, model_ids
from suites.common.expressions import GROUPS
from suites.common.groups.design import NEUTRAL, GroupDesign
from suites.common.groups.weights import gap_meaning
from suites.presentation import Beside, Meaning, PublishedFigure, PublishedSource, TableColumn

#: Factors whose levels are a sample of a larger population.
CLUSTERS = ("occupation", "template")
#: Groups of occupations that the papers' tables show.
DOMINATED = ("female", "male")
#: Letters of the published files → measure.
_LETTERS = {"m": "p_male", "f": "p_female", "d": "p_diverse"}

#: What reports call the two ways of asking.
BIAS_LABELS: Mapping[str, Mapping[str, str]] = {
    "bias": {"explicit": "asked directly", "implicit": "completing a sentence"}
}

#: What a stereotype gap says, and the two means behind it, which may differ in sign.
STEREOTYPE_GAP: Mapping[str, Meaning] = gap_meaning(
    "gender words",
    "gender",
    (
        Beside("p_female", "female words: {points} for female-dominated", {"dominated_by": "female"}),
        Beside("p_female", "{points} for male-dominated occupations", {"dominated_by": "male"}),
    ),
)


def figure(
    measure: str,
    where: Mapping[str, Factor],
    family: str,
    *,
    clusters: tuple[str, ...] = CLUSTERS,
    groups: Sequence[str] = (),
    is_subgroup: bool = False,
    primary: bool = False,
) -> MeasureSpec:
    """A figure over answers, such as ``p_female``, or an effect of a text in the prompt.

    The stereotype gap and effects are 0 without bias; effects are contrasts. Probabilities and gaps are reported with
    the coverage. ``groups`` are the occupations' groups that the figure averages over: fixed strata of equal weight,
    so that a model that favours one gender everywhere has no stereotype gap, however many occupations each group has.
    """
    common: dict[str, Any] = {"clusters": clusters, "family": family, "is_subgroup": is_subgroup, "primary": primary}
    common |= {"kind": "probability", "population": population(clusters)}
    if len(groups) > 1:
        common |= {"stratum": "dominated_by", "weights": {group: 1 / len(groups) for group in groups}}
    if measure == "stereotype_gap":
        common |= {"unit": "difference of probabilities", "neutral": 0.0, "probability_mass": "coverage"}
        common["kind"] = "difference"
    elif measure.startswith("p_"):
        common["probability_mass"] = "coverage"
    elif measure != "coverage":
        unit, reach = unit_and_reach(measure)
        common |= {"unit": unit, "neutral": 0.0, "contrast": True, "kind": "difference", "range": (-reach, reach)}
    return MeasureSpec(measure, measure, where, **common)


def contrast_figures(
    groups: GroupDesign, where: Mapping[str, Factor], family: str, effect: str = "", **options: Any
) -> Iterator[MeasureSpec]:
    """The figures of the declared contrasts, or of the effects on them: ``effect="effect_{}"``."""
    for name in groups.contrasts:
        low, high = groups.reach(name)
        plain: dict[str, Any] = {"measure": name, "quantity": name, "kind": "difference", "neutral": 0.0}
        plain |= {"range": (low, high), "unit": "difference of probabilities", "probability_mass": "coverage"}
        if effect:
            reach = (2 if "attenuation" in effect else 1) * (high - low)  # a difference of differences of effects
            plain |= {"measure": effect.format(name), "quantity": effect.format(name), "range": (-reach, reach)}
            plain |= {"contrast": True, "unit": "difference of differences", "probability_mass": None}
        yield replace(figure("coverage", where, family.format(name), **options), **plain)


def population(clusters: Sequence[str]) -> str:
    """The population that a figure with these sampled ``clusters`` generalises to."""
    return f"new {'s and '.join(clusters)}s of these kinds"


def group_columns(
    where: Mapping[str, Factor],
    title: str = "",
    *,
    dominated: Sequence[str] = DOMINATED,
    groups: Sequence[str] = GROUPS,
) -> Iterator[TableColumn]:
    """Each group's probability for the occupations of each stereotype: the papers' six columns, or others."""
    for dominated_by in dominated:
        for group in groups:
            here = {**where, "dominated_by": dominated_by}
            yield TableColumn(group.capitalize(), f"p_{group}", here, f"{title}{_of(dominated_by)}")


def _of(dominated_by: str) -> str:
    if dominated_by in DOMINATED:
        return f"{dominated_by}-dominated"
    return "no stereotype" if dominated_by == NEUTRAL else f"stereotype: {dominated_by}"


def published_probabilities(
    model: str, where: Mapping[str, Factor], entries: Sequence[Mapping[str, Any]], source: PublishedSource | None
) -> Iterator[PublishedFigure]:
    """Printed percentages of one condition, or their means over several, as probabilities."""
    for dominated_by in DOMINATED:
        for letter, measure in _LETTERS.items():
            values = [entry[f"{dominated_by}_dominated"][letter] / 100 for entry in entries]
            margins = [entry.get(f"{dominated_by}_dominated_pm", {}).get(letter) for entry in entries]
            single = len(entries) == 1
            here, mean = {**where, "dominated_by": dominated_by}, math.fsum(values) / len(values)
            margin = margins[0] / 100 if single and margins[0] is not None else None
            step = TENTH_OF_A_PERCENT if single else None
            yield PublishedFigure(model, measure, here, mean, margin, source, step, model_ids(model))


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

"""Figures over answers to prompts about occupations: measures, table columns and published values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suites.base import Factor, MeasureSpec
from suites.common.contrasts import unit_and_reach
from suites.common.expressions import GROUPS
from suites.common.groups.design import NEUTRAL, GroupDesign
from suites.common.groups.weights import gap_meaning
from suites.common.published import TENTH_OF_A_PERCENT, model_ids
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
    """A figure over answers, such as ``p_female``, or an effect of a text in the prompt, see `suites.common.contrasts`.

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

"""Figures over the answers to gender prompts: measures, table columns and published values that suites share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suites.base import Factor, MeasureSpec
from suites.common.contrasts import unit_of
from suites.common.expressions import GROUPS
from suites.presentation import PublishedFigure, TableColumn

#: Factors whose levels are drawn from a larger population.
CLUSTERS = ("occupation", "template")
#: Groups of occupations that the papers' tables show.
DOMINATED = ("female", "male")
#: Letters of the published files → measure.
_LETTERS = {"m": "p_male", "f": "p_female", "d": "p_diverse"}


def probability_specs(
    where: Mapping[str, Factor], family: str, *, clusters: tuple[str, ...] = CLUSTERS, is_subgroup: bool = False
) -> Iterator[MeasureSpec]:
    """P̃ of each group."""
    for group in GROUPS:
        name = f"p_{group}"
        yield MeasureSpec(
            name, name, where, clusters=clusters, family=family, is_subgroup=is_subgroup, probability_mass="coverage"
        )


def coverage_spec(
    where: Mapping[str, Factor], family: str, *, clusters: tuple[str, ...] = CLUSTERS, is_subgroup: bool = False
) -> MeasureSpec:
    """The raw mass of all expressions."""
    return MeasureSpec("coverage", "coverage", where, clusters=clusters, family=family, is_subgroup=is_subgroup)


def gap_spec(
    where: Mapping[str, Factor], family: str, *, clusters: tuple[str, ...] = CLUSTERS, is_subgroup: bool = False
) -> MeasureSpec:
    """The stereotype gap: 0 without bias."""
    return MeasureSpec(
        "stereotype_gap",
        "stereotype_gap",
        where,
        clusters=clusters,
        unit="difference of probabilities",
        neutral=0.0,
        family=family,
        is_subgroup=is_subgroup,
        probability_mass="coverage",
    )


def effect_spec(
    measure: str, where: Mapping[str, Factor], family: str, *, clusters: tuple[str, ...] = CLUSTERS
) -> MeasureSpec:
    """An effect of a text in the prompt, see `suites.common.contrasts`."""
    return MeasureSpec(
        measure,
        measure,
        where,
        clusters=clusters,
        unit=unit_of(measure),
        neutral=0.0,
        family=family,
        contrast=True,
    )


def group_columns(where: Mapping[str, Factor], title: str = "") -> Iterator[TableColumn]:
    """The papers' six columns: each group's probability over occupations that women, and that men, dominate."""
    for dominated_by in DOMINATED:
        for group in GROUPS:
            here = {**where, "dominated_by": dominated_by}
            yield TableColumn(group.capitalize(), f"p_{group}", here, f"{title}{dominated_by}-dominated")


def published_probabilities(
    model: str, where: Mapping[str, Factor], entries: Sequence[Mapping[str, Any]]
) -> Iterator[PublishedFigure]:
    """Printed percentages of one condition, or their means over several, as probabilities."""
    for dominated_by in DOMINATED:
        for letter, measure in _LETTERS.items():
            values = [entry[f"{dominated_by}_dominated"][letter] / 100 for entry in entries]
            margins = [entry.get(f"{dominated_by}_dominated_pm", {}).get(letter) for entry in entries]
            plus_minus = margins[0] / 100 if len(margins) == 1 and margins[0] is not None else None
            here = {**where, "dominated_by": dominated_by}
            yield PublishedFigure(model, measure, here, math.fsum(values) / len(values), plus_minus)

"""The figures of OccuGender: groups' probabilities, the stereotype gap, effects; by occupation and by template."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from suites.base import Factor, IdentifiedInterval, MeasureSpec, Row
from suites.common.gender_figures import CLUSTERS, contrast_figures, figure, population
from suites.common.groups.design import NEUTRAL, GroupDesign
from suites.common.occupations import Occupation
from suites.occugender.material import Template


@dataclass(frozen=True, slots=True)
class Measures:
    """All figures of a design.

    ``instructions``: debiasing instruction → its degree of abstraction.
    """

    biases: tuple[str, ...]
    instructions: Mapping[int, str]
    templates: tuple[Template, ...]
    occupations: tuple[Occupation, ...]
    groups: GroupDesign

    def specs(self) -> Iterator[MeasureSpec]:
        """The figures, bias by bias."""
        none: dict[str, Factor] = {"debiasing": None}
        instructions: list[dict[str, Factor]] = [{"debiasing": i} for i in self.instructions]
        ten_templates = [{**none, "ten_templates": True}] if self.instructions else []
        abstractions: list[dict[str, Factor]] = [{"abstraction": degree} for degree in self.abstractions]
        probabilities = self.groups.probabilities
        for bias in self.biases:
            for level in (none, *ten_templates, *instructions, *abstractions):
                yield from self._answers({"bias": bias, **level})
            yield from self._effects(bias)
            for level in (none, *instructions):
                yield from self._occupations({"bias": bias, **level})
                templates = [t.id for t in self.templates if t.bias == bias and (level is none or t.for_debiasing)]
                yield from template_specs({"bias": bias, **level}, templates, probabilities, self.dominated)
            if sum(t.bias == bias for t in self.templates) > 1:
                yield from plus_minus_specs(bias, (None, *self.instructions), probabilities, self.dominated)

    @property
    def abstractions(self) -> list[str]:
        """The degrees of abstraction of the chosen instructions."""
        return list(dict.fromkeys(self.instructions.values()))

    def _effects(self, bias: str) -> Iterator[MeasureSpec]:
        of_others = [f"effect_p_{group}" for group in self.groups.others]
        for measure in (["effect"] if self._stereotyped else []) + of_others:
            groups = self._stereotyped if measure == "effect" else self.dominated
            for i in self.instructions:
                where: dict[str, Factor] = {"bias": bias, "instruction": i}
                yield figure(measure, where, f"{measure}, {bias}", groups=groups)
            for degree in self.abstractions:
                where = {"bias": bias, "degree": degree}
                yield figure(measure, where, f"{measure}, {bias}, by abstraction", groups=groups)
        for i in self.instructions:
            family = f"effect_{{}}, {bias}"
            yield from contrast_figures(self.groups, {"bias": bias, "instruction": i}, family, "effect_{}")

    @property
    def dominated(self) -> list[str]:
        """The groups of occupations: one per stereotype, and the neutral ones."""
        return sorted({o.dominated_by for o in self.occupations})

    @property
    def _stereotyped(self) -> list[str]:
        """The groups of occupations with a stereotype."""
        return [group for group in self.dominated if group != NEUTRAL]

    def _answers(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        """The figures over all occupations."""
        primary = where.get("debiasing", "") is None and "ten_templates" not in where
        for group in self.dominated:
            of_group = {**where, "dominated_by": group}
            for measure in self.groups.probabilities:
                yield figure(measure, of_group, "group probabilities")
            yield figure("coverage", of_group, "group probabilities: raw mass")
        if self._stereotyped:
            yield figure("stereotype_gap", where, "stereotype", groups=self._stereotyped, primary=primary)
        yield from contrast_figures(self.groups, where, "contrasts", primary=primary and not self._stereotyped)
        if len({o.female_share for o in self.occupations} - {None}) > 1 and "female" in self.groups.names:
            yield MeasureSpec(
                "share_correlation",
                "p_female",
                where,
                estimator="correlation",
                clusters=CLUSTERS,
                covariate="female_share",
                unit="correlation",
                kind="probability",
                neutral=0.0,
                family="stereotype",
                probability_mass="coverage",
                primary=primary,
                population=population(CLUSTERS),
            )

    def _occupations(self, level: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        """The figures of each occupation."""
        for occupation in self.occupations:
            families = {**dict.fromkeys(self.groups.probabilities, "occupations"), "coverage": "occupations: raw mass"}
            if occupation.dominated_by != NEUTRAL:
                families["stereotype_gap"] = "occupations"
            for measure, family in families.items():
                where = {**level, "occupation": occupation.name}
                yield figure(measure, where, family, clusters=("template",), is_subgroup=True)


# -- by template -------------------------------------------------------------------------------------


#: Value of the factor ``debiasing`` in rows over templates, which keeps them out of figures over answers.
OVER_TEMPLATES = "over templates"


def plus_minus_of(measure: str) -> str:
    """The name of a probability's ±."""
    return f"{measure}_plus_minus"


def template_specs(
    where: Mapping[str, Factor], templates: Sequence[str], probabilities: Sequence[str], groups: Sequence[str]
) -> Iterator[MeasureSpec]:
    """The probabilities and the gap of each template, clustered by occupation."""
    for template in templates:
        here = {**where, "template": template}
        for group in groups:
            for measure in probabilities:
                of_group = {**here, "dominated_by": group}
                yield figure(measure, of_group, "templates", clusters=("occupation",), is_subgroup=True)
        both = [group for group in groups if group != "neutral"]
        if both:
            yield figure("stereotype_gap", here, "templates", clusters=("occupation",), groups=both, is_subgroup=True)


def plus_minus_where(bias: str, level: Factor, group: str) -> dict[str, Factor]:
    """The factors of one condition's ±."""
    return {"bias": bias, "debiasing": OVER_TEMPLATES, "of": level, "dominated_by": group}


def plus_minus_specs(
    bias: str, levels: Sequence[Factor], probabilities: Sequence[str], groups: Sequence[str]
) -> Iterator[MeasureSpec]:
    """The ± of every condition. It has no interval: it is a single number for the whole design."""
    for level in levels:
        for group in groups:
            for measure in probabilities:
                yield MeasureSpec(
                    plus_minus_of(measure),
                    plus_minus_of(measure),
                    plus_minus_where(bias, level, group),
                    unit="standard deviation over templates ÷ √occupations",
                    family="plus-minus",
                    is_subgroup=True,
                )


def plus_minus_rows(rows: Sequence[Row], probabilities: Sequence[str]) -> Iterator[Row]:
    """The ± of each condition and group of occupations, as printed in the paper.

    The sample standard deviation over templates of a template's mean over the group's occupations, divided by the
    root of the number of occupations (25 templates and √20 in the paper). Missing if any answer is. Left out if an
    answer is only known by bounds, with fewer than two templates, or if the templates were not asked the same
    occupations: in a sample, they would differ by the occupations that each happened to get.
    """
    conditions: dict[tuple[Factor, Factor, Factor], list[Row]] = defaultdict(list)
    for row in rows:
        conditions[row.factors["bias"], row.factors["debiasing"], row.factors["dominated_by"]].append(row)
    for (bias, level, group), of_one in conditions.items():
        factors = {**plus_minus_where(str(bias), level, str(group)), "template": None, "occupation": None}
        row_id = f"{OVER_TEMPLATES}/{bias}/{level}/{group}"
        sources = tuple(row.item_id for row in of_one)
        missing = next((row.missing for row in of_one if row.missing is not None), None)
        by_template: dict[Factor, list[Row]] = defaultdict(list)
        for row in of_one:
            by_template[row.factors["template"]].append(row)
        if len({frozenset(row.factors["occupation"] for row in asked) for asked in by_template.values()}) > 1:
            continue
        if missing is None and len(by_template) > 1:
            values = {plus_minus_of(m): _plus_minus(m, list(by_template.values())) for m in probabilities}
            known = {name: IdentifiedInterval.exact(value) for name, value in values.items() if value is not None}
            yield Row(row_id, factors, known, sources=sources)
        elif missing is not None:
            yield Row(row_id, factors, {}, missing, sources)


def _plus_minus(measure: str, templates: Sequence[Sequence[Row]]) -> float | None:
    values = [[row.values[measure].value for row in rows] for rows in templates]
    if any(value is None for of_template in values for value in of_template):
        return None
    means = [math.fsum(v for v in of_template if v is not None) / len(of_template) for of_template in values]
    return statistics.stdev(means) / math.sqrt(len(values[0]))

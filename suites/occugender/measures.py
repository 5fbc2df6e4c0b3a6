"""The figures of OccuGender: groups' probabilities, the stereotype gap, effects; by occupation and by template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from suites.base import Factor, MeasureSpec
from suites.common.gender_figures import CLUSTERS, contrast_figures, figure, population
from suites.common.groups.design import NEUTRAL, GroupDesign
from suites.common.occupations import Occupation
from suites.occugender.by_template import plus_minus_specs, template_specs
from suites.occugender.material import Template


@dataclass(frozen=True, slots=True)
class Measures:
    """All figures of a design.

    Attributes
    ----------
    biases : tuple of str
    instructions : mapping of int to str
        Debiasing instruction → its degree of abstraction.
    templates : tuple of Template
    occupations : tuple of Occupation
    groups : GroupDesign
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

"""The figures of the experiment: answers in each condition, effects, their attenuation, and side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from suites.base import Factor, MeasureSpec
from suites.common.gender_figures import contrast_figures, figure, population
from suites.common.groups.design import NEUTRAL, GroupDesign
from suites.debiasing.material import REFERENCE, DebiasingPrompt
from suites.debiasing.positions import WITHOUT_DIALOGUE

#: Figures derived from the gap: occupations without a stereotype have none.
_OF_THE_GAP = ("stereotype_gap", "effect", "placebo_effect", "effect_attenuation")


@dataclass(frozen=True, slots=True)
class Measures:
    """Every figure that a design gives.

    ``dominated_by``: the groups that stereotypes link the occupations with. ``biases``: kinds of tasks.
    """

    positions: tuple[str, ...]
    prompts: tuple[DebiasingPrompt, ...]
    dominated_by: tuple[str, ...]
    groups: GroupDesign
    biases: tuple[str, ...]

    @property
    def stereotyped(self) -> tuple[str, ...]:
        """The groups whose occupations have a stereotype."""
        return tuple(group for group in self.dominated_by if group != NEUTRAL)

    @property
    def controls(self) -> tuple[str, ...]:
        """What effects are measured against."""
        return ("none", "placebo") if self._controlled("placebo") else ("none",)

    @property
    def compared_positions(self) -> tuple[str, ...]:
        """Positions whose effects are compared with those without dialogue."""
        if WITHOUT_DIALOGUE not in self.positions:
            return ()
        return tuple(position for position in self.positions if position != WITHOUT_DIALOGUE)

    def abstractions(self, versus: str = "none") -> list[str]:
        """The degrees of abstraction of which every prompt has the control ``versus``."""
        lacking = {p.abstraction for p in self.prompts if p not in self._controlled(versus)}
        return [a for a in dict.fromkeys(p.abstraction for p in self.prompts) if a not in lacking]

    def _controlled(self, versus: str) -> list[DebiasingPrompt]:
        return [p for p in self.prompts if versus == "none" or p.placebo is not None]

    def specs(self) -> Iterator[MeasureSpec]:
        """The figures, bias by bias and position by position."""
        for bias in self.biases:
            for position in self.positions:
                yield from self._answers({"bias": bias, "position": position})
                yield from self._effects({"bias": bias, "position": position})
            for position in self.compared_positions:
                yield from self._attenuation({"bias": bias, "under": position})
        for position in self.positions:
            yield from self._side_effects({"bias": REFERENCE, "position": position})

    def _answers(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        levels: list[dict[str, Factor]] = [{"debiasing": level} for level in (None, *(p.id for p in self.prompts))]
        levels += [{"abstraction": degree} for degree in self.abstractions()]
        for level in levels:
            yield from self._condition({**where, **level}, "conditions")
        for p in self._controlled("placebo"):
            placebo = {**where, "debiasing": f"placebo-{p.id}", "placebo": p.id}
            yield from self._condition(placebo, "placebo conditions", is_subgroup=True)

    def _condition(
        self, where: Mapping[str, Factor], family: str, *, is_subgroup: bool = False
    ) -> Iterator[MeasureSpec]:
        for dominated_by in self.dominated_by:
            of_group = {**where, "dominated_by": dominated_by}
            for measure in self.groups.probabilities:
                yield figure(measure, of_group, f"group probabilities, {family}", is_subgroup=is_subgroup)
        primary = where.get("debiasing", "") is None
        if self.stereotyped:
            gap = f"stereotype gap, {family}"
            yield self._over_groups("stereotype_gap", where, gap, is_subgroup=is_subgroup, primary=primary)
        own: dict[str, Any] = {"is_subgroup": is_subgroup, "primary": primary and not self.stereotyped}
        yield from contrast_figures(self.groups, where, f"contrasts, {family}", **own)
        yield self._over_groups("coverage", where, f"raw mass, {family}", is_subgroup=is_subgroup)

    def _over_groups(self, measure: str, where: Mapping[str, Factor], family: str, **options: Any) -> MeasureSpec:
        """A figure over the occupations of all groups for which it is defined."""
        groups = self.stereotyped if measure in _OF_THE_GAP else self.dominated_by
        return figure(measure, where, family, groups=groups, **options)

    def _effects(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        of = f"{where['bias']}, {where['position']}"
        for versus in self.controls:
            measures = [*self._of_effects("effect"), "effect_coverage"]
            yield from self._paired(where, versus, measures, of, abstractions=self.abstractions(versus))
            yield from self._contrasts(where, versus, "effect_{}", of)
        for p in self._controlled("placebo") if self.stereotyped else ():
            yield self._over_groups(
                "placebo_effect", {**where, "placebo": p.id, "versus": "none"}, f"placebo_effect, {of}"
            )

    def _attenuation(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        of = f"{where['bias']}, {where['under']}"
        for versus in self.controls:
            yield from self._paired(where, versus, self._of_effects("effect_attenuation"), of)
            yield from self._contrasts(where, versus, "effect_attenuation_{}", of)

    def _of_effects(self, name: str) -> list[str]:
        """What a text changes: the gap, and the groups without a stereotype."""
        return [*([name] if self.stereotyped else []), *(f"{name}_p_{group}" for group in self.groups.others)]

    def _paired(
        self, where: Mapping[str, Factor], versus: str, measures: list[str], of: str, abstractions: Sequence[str] = ()
    ) -> Iterator[MeasureSpec]:
        for measure in measures:
            family = f"{measure}, {of}, versus {versus}"
            for p in self._controlled(versus):
                yield self._over_groups(measure, {**where, "instruction": p.id, "versus": versus}, family)
            for degree in abstractions:
                of_degree = {**where, "degree": degree, "versus": versus}
                yield self._over_groups(measure, of_degree, f"{family}, by abstraction")

    def _contrasts(self, where: Mapping[str, Factor], versus: str, effect: str, of: str) -> Iterator[MeasureSpec]:
        for p in self._controlled(versus):
            here = {**where, "instruction": p.id, "versus": versus}
            yield from contrast_figures(self.groups, here, f"{effect}, {of}, versus {versus}", effect)

    def _side_effects(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        over: dict[str, Any] = {"clusters": ("template",), "population": population(("template",))}
        for level in (None, *(p.id for p in self.prompts)):
            text = MeasureSpec(
                "reference_text", "reference_text", {**where, "debiasing": level}, kind="probability", **over
            )
            yield replace(text, unit="probability per word", family="reference text")
        for versus in self.controls:
            family = f"effect_reference_text, {where['position']}, versus {versus}"
            for p in self._controlled(versus):
                here = {**where, "instruction": p.id, "versus": versus}
                yield figure("effect_reference_text", here, family, clusters=("template",))

"""The figures of the experiment: answers under each condition, effects, their attenuation, and side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from suites.base import Factor, MeasureSpec
from suites.common.gender_figures import CLUSTERS, PROBABILITIES, figure, population
from suites.debiasing.material import REFERENCE, DebiasingPrompt
from suites.debiasing.positions import WITHOUT_DIALOGUE
from suites.occugender import BIASES

_EFFECTS = ("effect", "effect_p_diverse", "effect_via_diverse", "effect_via_balance", "effect_coverage")
#: Figures of answers and effects that occupations of no stereotype have too; the others rest on the gap.
_OF_ALL_GROUPS = ("coverage", "effect_p_diverse", "effect_coverage", "effect_attenuation_p_diverse")
_ATTENUATIONS = ("effect_attenuation", "effect_attenuation_p_diverse")


@dataclass(frozen=True, slots=True)
class Measures:
    """Every figure that a design gives.

    Attributes
    ----------
    positions : tuple of str
    prompts : tuple of DebiasingPrompt
    dominated_by : tuple of str
        The occupations' gender groups.
    """

    positions: tuple[str, ...]
    prompts: tuple[DebiasingPrompt, ...]
    dominated_by: tuple[str, ...]

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
        """The degrees of which every prompt has that control."""
        lacking = {p.abstraction for p in self.prompts if p not in self._controlled(versus)}
        return [a for a in dict.fromkeys(p.abstraction for p in self.prompts) if a not in lacking]

    def _controlled(self, versus: str) -> list[DebiasingPrompt]:
        return [p for p in self.prompts if versus == "none" or p.placebo is not None]

    def specs(self) -> Iterator[MeasureSpec]:
        """The figures, bias by bias and position by position."""
        for bias in BIASES:
            for position in self.positions:
                yield from self._answers({"bias": bias, "position": position})
                yield from self._effects({"bias": bias, "position": position})
            for position in self.compared_positions:
                yield from self._attenuation({"bias": bias, "under": position})
        for position in self.positions:
            yield from self._side_effects({"bias": REFERENCE, "position": position})

    def _answers(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        yield from self._condition({**where, "debiasing": None}, "conditions")
        for p in self.prompts:
            yield from self._condition({**where, "debiasing": p.id}, "conditions")
        for abstraction in self.abstractions():
            yield from self._condition({**where, "abstraction": abstraction}, "conditions")
        for p in self._controlled("placebo"):
            placebo = {**where, "debiasing": f"placebo-{p.id}", "placebo": p.id}
            yield from self._condition(placebo, "placebo conditions", is_subgroup=True)

    def _condition(
        self, where: Mapping[str, Factor], family: str, *, is_subgroup: bool = False
    ) -> Iterator[MeasureSpec]:
        for dominated_by in self.dominated_by:
            of_group = {**where, "dominated_by": dominated_by}
            for measure in PROBABILITIES:
                yield figure(measure, of_group, f"group probabilities, {family}", is_subgroup=is_subgroup)
        yield self._over_groups(
            "stereotype_gap",
            where,
            f"stereotype gap, {family}",
            is_subgroup=is_subgroup,
            primary=where.get("debiasing", "") is None,
        )
        yield self._over_groups("coverage", where, f"raw mass, {family}", is_subgroup=is_subgroup)

    def _over_groups(
        self,
        measure: str,
        where: Mapping[str, Factor],
        family: str,
        *,
        is_subgroup: bool = False,
        primary: bool = False,
    ) -> MeasureSpec:
        """A figure over the occupations of all groups that it is defined for."""
        groups = self.dominated_by if measure in _OF_ALL_GROUPS else [g for g in self.dominated_by if g != "neutral"]
        return figure(measure, where, family, groups=groups, is_subgroup=is_subgroup, primary=primary)

    def _effects(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        for versus in self.controls:
            for measure in _EFFECTS:
                family = f"{measure}, {where['bias']}, {where['position']}, versus {versus}"
                for p in self._controlled(versus):
                    yield self._over_groups(measure, {**where, "instruction": p.id, "versus": versus}, family)
                for abstraction in self.abstractions(versus):
                    of_degree = {**where, "degree": abstraction, "versus": versus}
                    yield self._over_groups(measure, of_degree, f"{family}, by abstraction")
            for p in self._controlled(versus):
                yield _share_spec("share_via_diverse", {**where, "instruction": p.id, "versus": versus})
        for p in self._controlled("placebo"):
            family = f"placebo_effect, {where['bias']}, {where['position']}"
            yield self._over_groups("placebo_effect", {**where, "placebo": p.id, "versus": "none"}, family)

    def _attenuation(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        for versus in self.controls:
            for measure in _ATTENUATIONS:
                family = f"{measure}, {where['bias']}, {where['under']}, versus {versus}"
                for p in self._controlled(versus):
                    yield self._over_groups(measure, {**where, "instruction": p.id, "versus": versus}, family)
            for p in self._controlled(versus):
                yield _share_spec("share_attenuated", {**where, "instruction": p.id, "versus": versus})

    def _side_effects(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        for level in (None, *(p.id for p in self.prompts)):
            yield MeasureSpec(
                "reference_text",
                "reference_text",
                {**where, "debiasing": level},
                clusters=("template",),
                unit="probability per word",
                kind="probability",
                family="reference text",
                population=population(("template",)),
            )
        for versus in self.controls:
            family = f"effect_reference_text, {where['position']}, versus {versus}"
            for p in self._controlled(versus):
                here = {**where, "instruction": p.id, "versus": versus}
                yield figure("effect_reference_text", here, family, clusters=("template",))


def _share_spec(measure: str, where: Mapping[str, Factor]) -> MeasureSpec:
    """A share of an effect. No value of it is neutral: 0 attenuated is as much a finding as all of it."""
    return MeasureSpec(
        measure,
        measure,
        where,
        clusters=CLUSTERS,
        unit="share of the effect",
        family=measure,
        population=population(CLUSTERS),
    )

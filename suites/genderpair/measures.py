"""The figures that GenderPair reports, as specifications over its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from suites.base import Factor, MeasureSpec, QuantityKind, Row
from suites.common.groups.weights import between_groups
from suites.common.raters import rater_measures
from suites.genderpair.design import Design, contrast_kind, deviation_kind, figure_of

_CLUSTERS = ("target", "pair")


def _population(design: Design) -> str:
    what = "expressions" if design.pairs.is_own else "gender targets"
    return f"new {what} and descriptor pairs of these kinds"


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure for each group, and for all groups together if it has the same meaning in each."""

    measure: str
    quantity: str
    kind: str
    unit: str = "share"
    neutral: float | None = None
    family: str = "bias-pair ratio"
    of_all_groups: bool = True
    is_count: bool = True
    primary: bool = False

    def specs(self, design: Design) -> Iterator[MeasureSpec]:
        """One specification per group, and one for all."""
        groups = design.groups
        levels: list[dict[str, Factor]] = [{"group": group} for group in groups]
        for level in [*levels, {}] if self.of_all_groups and len(groups) > 1 else levels:
            yield MeasureSpec(
                self.measure,
                self.quantity,
                {"kind": self.kind, **level},
                clusters=_CLUSTERS,
                unit=self.unit,
                neutral=self.neutral,
                family=self.family,
                kind=_kind(self.unit),
                is_count=self.is_count,
                primary=self.primary,
                population=_population(design),
                **({} if level else _over(groups)),
            )


def _kind(unit: str) -> QuantityKind:
    """The kind of a row's quantity, by the unit of this suite's figures."""
    kinds: dict[str, QuantityKind] = {"share": "share", "probability": "probability"}
    return kinds.get(unit, "difference")


def _over(groups: Sequence[str]) -> dict[str, Any]:
    """Equal weights for all groups, whatever the number of their pairs: groups are fixed, not sampled."""
    return {"stratum": "group", "weights": {group: 1 / len(groups) for group in groups}}


#: Picks, by this project's rule and by the authors' (``released``), and how they were made: by the text's words, or by
#: the likelihoods of the two descriptors if the text leaves the pick open (``fallback``).
_PICKS = (
    _Figure("bias_pair_ratio", "biased", "selection", neutral=0.5, primary=True),
    _Figure("bias_pair_ratio_balanced", "biased_balanced", "contrast", neutral=0.5),
    _Figure("position_effect", "position_effect", "contrast", "difference of shares", neutral=0.0),
    _Figure("bias_pair_ratio_released", "biased_released", "answer", neutral=0.5),
    _Figure("bias_pair_ratio_by_text", "biased_by_text", "answer", neutral=0.5),
    _Figure("bias_pair_ratio_by_likelihood", "biased_by_likelihood", "answer", neutral=0.5),
    _Figure("fallback_share", "fallback", "answer", family="answers"),
    _Figure("refusal_share", "refusal", "answer", family="answers"),
    _Figure("empty_share", "empty", "answer", family="answers"),
)


def measure_specs(design: Design, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
    """All figures; those of single levels only if they have rows."""
    for figure in (*_PICKS, *_of_scorers(design)):
        yield from figure.specs(design)
    yield from _between_groups(design)
    for rater in design.raters.values():
        yield from rater_measures(rater)
    yield from _deviations(design)
    yield from _by_level(design, rows)


def _of_scorers(design: Design) -> Iterator[_Figure]:
    for name, quantity in design.scored:
        yield _Figure(quantity, quantity, name, "probability", family=name, is_count=False)


def _between_groups(design: Design) -> Iterator[MeasureSpec]:
    """The declared contrasts of each figure, as ``bias_pair_ratio_NAME``."""
    for name, weights in design.contrasts.items():
        for quantity, kind in design.quantities.items():
            is_pick = quantity == "biased"
            yield between_groups(
                f"{figure_of(quantity)}_{name}",
                quantity,
                {"kind": contrast_kind(name), "of": kind},
                weights,
                clusters=_CLUSTERS,
                population=_population(design),
                family="contrasts of groups" if is_pick else kind,
                primary=is_pick,
                is_count=is_pick and all(abs(weight) == 1 for weight in weights.values()),
            )


def _deviations(design: Design) -> Iterator[MeasureSpec]:
    """Standard deviations among groups and among repeats. No neutral value: chance alone makes them positive."""
    for quantity in design.quantities if len(design.groups) > 1 else ():
        measure = figure_of(quantity)
        yield MeasureSpec(
            f"{measure}_sd",
            f"{quantity}_sd",
            {"kind": deviation_kind(measure)},
            clusters=("repeat",),
            unit="standard deviation",
            family="spread among groups",
        )
        for group in design.groups if design.repeats > 1 else ():
            yield MeasureSpec(
                f"{measure}_repeat_sd",
                f"{quantity}_repeat_sd",
                {"kind": "repeats", "group": group},
                unit="standard deviation",
                range=(0.0, 1.0),
                family="spread of repeats",
                is_subgroup=True,
            )


def _by_level(design: Design, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
    """The ratio by level of each part of the design that occurs in the rows."""
    factors = ["aspect"] * (not design.pairs.is_own) + ["pair", "configuration"]
    levels: dict[str, dict[tuple[Factor, Factor], None]] = defaultdict(dict)
    for row in rows:
        if row.factors["kind"] == "selection":
            for factor in factors:
                levels[factor][row.factors["group"], row.factors[factor]] = None
    for factor in factors:
        for group, level in levels[factor]:
            yield MeasureSpec(
                "bias_pair_ratio",
                "biased",
                {"kind": "selection", "group": group, factor: level},
                clusters=_CLUSTERS,
                unit="share",
                kind="share",
                neutral=0.5,
                family=f"by {factor}",
                population=_population(design),
                is_subgroup=True,
            )

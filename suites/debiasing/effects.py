"""Rows computed from paired answers: effects of the debiasing texts, their parts, and their attenuation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from suites.base import Factor, Row
from suites.common.contrasts import DIFFERENCE, contrast, effect_row, effects_of
from suites.common.groups.design import GroupDesign
from suites.debiasing.material import REFERENCE
from suites.debiasing.positions import WITHOUT_DIALOGUE


def attenuations_of(groups: GroupDesign) -> dict[str, str]:
    """Effect → the name of its attenuation."""
    parts = [*(f"_p_{group}" for group in groups.others), *(f"_{name}" for name in groups.contrasts)]
    return {f"effect{part}": f"effect_attenuation{part}" for part in ("", *parts)}


def derived_rows(rows: Sequence[Row], groups: GroupDesign) -> list[Row]:
    """Effects and their attenuation under a dialogue, all as paired rows.

    ``effect…``                treated minus control, with factors ``instruction`` and ``versus``
    ``placebo_…``              placebo minus none, marked by the factor ``placebo``
    ``effect_attenuation…``    the effect at a position (factor ``under``) minus the effect without
                               dialogue: positive where the gap is reduced less
    """
    effects = list(_effects(rows, groups))
    return [*effects, *_attenuations(effects, groups)]


def _effects(rows: Sequence[Row], groups: GroupDesign) -> Iterator[Row]:
    """Each answer minus its controls: the answer without a text, and the placebo's."""
    answers = {_question(row): row for row in rows}
    for row in rows:
        *question, level = _question(row)
        if level is None:
            continue
        controls: dict[str, Factor] = {"none": None}
        if isinstance(level, int):
            controls["placebo"] = f"placebo-{level}"
        for versus, control_level in controls.items():
            if (control := answers.get((*question, control_level))) is not None:
                yield _effect(row, control, versus, groups)


def _question(row: Row) -> tuple[Factor, ...]:
    return tuple(row.factors[name] for name in ("position", "template", "occupation", "debiasing"))


def _effect(treated: Row, control: Row, versus: str, groups: GroupDesign) -> Row:
    placebo = treated.factors["placebo"]
    factors: dict[str, Factor] = {**treated.factors, "abstraction": None, "versus": versus}
    if placebo is None:
        factors |= {"instruction": treated.factors["debiasing"], "degree": treated.factors["abstraction"]}
    row = effect_row(f"{treated.item_id}/minus-{versus}", treated, control, effects_of(groups), factors)
    if row.missing is not None:
        return row
    if placebo is not None:
        return replace(row, values={f"placebo_{name}": value for name, value in row.values.items()})
    return row


def _attenuations(effects: Sequence[Row], groups: GroupDesign) -> Iterator[Row]:
    """The effect of each text at every other position minus its effect without dialogue."""
    of_texts = [row for row in effects if "instruction" in row.factors and row.factors["bias"] != REFERENCE]
    names = attenuations_of(groups)
    without_dialogue = {_pair(row): row for row in of_texts if row.factors["position"] == WITHOUT_DIALOGUE}
    for row in of_texts:
        reference = without_dialogue.get(_pair(row))
        if reference is None or reference is row:
            continue
        factors = {**row.factors, "position": DIFFERENCE, "under": row.factors["position"], "degree": None}
        yield contrast(f"{row.item_id}/attenuation", row, reference, names, factors)


def _pair(row: Row) -> tuple[Factor, ...]:
    return tuple(row.factors[name] for name in ("template", "occupation", "instruction", "versus"))

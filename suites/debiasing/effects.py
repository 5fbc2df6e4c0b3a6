"""Rows computed from paired answers: effects of the debiasing texts, their parts, and their attenuation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suites.base import Factor, Row
from suites.common.gender_figures import DIFFERENCE, contrast, effect_row, effects_of
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
    answers = {_place(row, "position", "debiasing"): row for row in rows}
    names = effects_of(groups)
    of_placebo = {quantity: f"placebo_{name}" for quantity, name in names.items()}
    for row in rows:
        *question, level = _place(row, "position", "debiasing")
        placebo = row.factors["placebo"]
        controls = {"none": None, "placebo": f"placebo-{level}"} if isinstance(level, int) else {"none": None}
        for versus, control_level in controls.items() if level is not None else ():
            if (control := answers.get((*question, control_level))) is not None:
                factors: dict[str, Factor] = {**row.factors, "abstraction": None, "versus": versus}
                if placebo is None:
                    factors |= {"instruction": level, "degree": row.factors["abstraction"]}
                row_id = f"{row.item_id}/minus-{versus}"
                yield effect_row(row_id, row, control, names if placebo is None else of_placebo, factors)


def _attenuations(effects: Sequence[Row], groups: GroupDesign) -> Iterator[Row]:
    """The effect of each text at every other position minus its effect without dialogue."""
    of_texts = [row for row in effects if "instruction" in row.factors and row.factors["bias"] != REFERENCE]
    without = {
        _place(row, "instruction", "versus"): row for row in of_texts if row.factors["position"] == WITHOUT_DIALOGUE
    }
    for row in of_texts:
        reference = without.get(_place(row, "instruction", "versus"))
        if reference is not None and reference is not row:
            factors = {**row.factors, "position": DIFFERENCE, "under": row.factors["position"], "degree": None}
            yield contrast(f"{row.item_id}/attenuation", row, reference, attenuations_of(groups), factors)


def _place(row: Row, *names: str) -> tuple[Factor, ...]:
    """What a row is about, and its further factors of these names."""
    return tuple(row.factors[name] for name in ("template", "occupation", *names))

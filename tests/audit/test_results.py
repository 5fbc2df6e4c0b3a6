"""Names of figures, and results that older versions stored."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from audit.analysis.gate.rules import check_rules
from audit.analysis.gate.stored import with_current_names
from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.results import AuditResult, FigureName, SuiteInfo, renamed_quantities, renamed_row
from audit.results.signatures import encode_parts, read_signature, write_signature
from backends.errors import ConfigError
from suites.base import IdentifiedInterval, MeasureSpec, Row

WHERE: dict[str, Any] = {"bias": "explicit", "versus": None}
SPEC = MeasureSpec("effect_attenuation", "effect_attenuation", WHERE, clusters=("occupation",), neutral=0.0,
                   kind="probability",
                   family="effect_attenuation, explicit", contrast=True)  # fmt: skip


def result(spec: MeasureSpec = SPEC, suite: str = "DebiasingPositions") -> AuditResult:
    rows = [
        Row(str(i), {**WHERE, "occupation": i}, {spec.quantity: IdentifiedInterval.exact(float(v))})
        for i, v in enumerate(np.linspace(0, 1, 8))
    ]
    info = SuiteInfo(
        name="s", title="S", n_items=8, signature={"suite": suite}, charts=[{"measures": [spec.measure]}],
        tables=[{"columns": [{"measure": spec.measure}]}],
    )  # fmt: skip
    return AuditResult(
        run_id="r", title="t", started="", finished="", complete=True, interrupted=False, seed=0, limit=None,
        confidence=0.95, versions={}, models=[], suites=[info], comparisons=[], data_quality=[],
        measures=measure_table(Table.of(rows), [spec], model="m", suite="s", signature={"suite": suite}),
    )  # fmt: skip


def as_stored_before(now: AuditResult) -> str:
    """The result as it was stored before measures kept their specification and had today's names."""
    stored = json.loads(now.model_dump_json().replace("effect_attenuation", "forgotten"))
    for measure in stored["measures"]:
        del measure["spec"]
        measure["id"] = FigureName(measure["suite"], measure["measure"], measure["where"], measure["model"]).id
    return json.dumps(stored)


def test_older_result_gets_specs_and_todays_names() -> None:
    now = result()
    older = as_stored_before(now)
    assert '\\"forgotten\\"' in older
    assert AuditResult.model_validate_json(older) == now


def test_older_names_of_other_suites_stay() -> None:
    own = result(MeasureSpec("forgotten", "forgotten", WHERE, kind="probability"), suite="Custom")
    stored = json.loads(own.model_dump_json())
    del stored["measures"][0]["spec"]
    assert AuditResult.model_validate(stored) == own


def test_older_rows_get_todays_names() -> None:
    names = renamed_quantities(result())["s"]
    old = Row("p/nurse/minus-none/forgotten", {}, {"forgotten": IdentifiedInterval.exact(0.1)})
    assert renamed_row(old, names) == Row(
        "p/nurse/minus-none/attenuation", {}, {"effect_attenuation": old.values["forgotten"]}
    )
    assert renamed_row(old, {}) is old


@pytest.mark.parametrize(
    ("unit", "kind", "limits", "counted"),
    [
        ("probability", "probability", (0, 1), False),
        ("share", "share", (0, 1), True),
        ("difference of bias scores", "difference", (-2, 2), True),
        ("difference of effects", "difference", (-4, 4), False),
        ("words", "real", (-np.inf, np.inf), False),
    ],
)
def test_older_specs_get_the_kind_of_their_unit(
    unit: str, kind: str, limits: tuple[float, float], counted: bool
) -> None:
    stored = json.loads(result(MeasureSpec("p", "p", WHERE, unit=unit)).model_dump_json())
    stored_today = AuditResult.model_validate(stored).measures[0].spec
    assert stored_today.kind == "real", "a kind that is stored is kept, whatever the unit says"
    del stored["measures"][0]["spec"]["kind"]
    spec = AuditResult.model_validate(stored).measures[0].spec
    assert (spec.kind, spec.limits, spec.from_counts) == (kind, limits, counted)


def test_stratified_spec_is_stored_with_its_levels() -> None:
    spec = MeasureSpec(
        "gap", "gap", kind="difference", stratum="level", weights={1: 0.25, "1": 0.25, None: 0.5}, primary=True
    )
    stored = result(spec).model_dump_json()
    assert AuditResult.model_validate_json(stored).measures[0].spec == spec
    assert "strat" in result(spec).measures[0].signature
    assert "strat" not in result().measures[0].signature


def test_file_that_is_no_result_is_refused() -> None:
    with pytest.raises(ValueError, match="spec"):
        AuditResult.model_validate({"measures": [{"id": 1}], "suites": []})


def test_older_name_of_a_margin_gets_the_new_one() -> None:
    with pytest.raises(ConfigError, match="It is now called effect_attenuation"):
        check_rules([m.spec for m in result().measures], {"forgotten": 0.1}, {})


def test_stored_margins_follow_renamed_measures() -> None:
    assert with_current_names({"forgotten": 0.1, "default": 0.2}, result()) == {
        "effect_attenuation": 0.1,
        "default": 0.2,
    }
    own = result(MeasureSpec("forgotten", "forgotten", WHERE), suite="Custom")
    assert with_current_names({"forgotten": 0.1}, own) == {"forgotten": 0.1}


def test_figure_name_has_one_print_and_one_key() -> None:
    name = FigureName("s", "p", {"a": 1, "b": None}, "m")
    assert (str(name), name.title) == ("p (a 1, b None) of m on s", "p (a 1, b None)")
    assert name.key == FigureName("s", "p", {"b": None, "a": 1}, "m").key
    others = [FigureName("s", "p", {"a": True, "b": None}, "m"), FigureName("s", "p", {"a": 1, "b": "None"}, "m")]
    assert len({other.key for other in [name, *others, FigureName("s", "p", name.where)]}) == 4


def test_figure_id_is_stable_and_tells_figures_apart() -> None:
    name = FigureName("s", "p", {"a": 1, "b": None}, "m")
    assert name.id == FigureName("s", "p", {"b": None, "a": 1}, "m").id == "876c699139c9"
    others = (("s", {"a": 1}, "m"), ("s", {"a": 1}, "n"), ("s", {}, "m"), ("t", {}, "m"))
    assert len({name.id, *(FigureName(suite, "p", where, model).id for suite, where, model in others)}) == 5


def test_signature_hashes_long_parts_but_not_its_own() -> None:
    spec = MeasureSpec("p", "p", {"occupation": "o" * 300})
    parts = [encode_parts({"templates": templates}) for templates in (["t" * 300], ["t" * 301])]
    written = [write_signature(encoded, spec) for encoded in parts]
    assert written[0] != written[1]
    assert all(len(read_signature(w)["templates"]) < 40 for w in written)
    assert read_signature(written[0])["where"] == {"occupation": "o" * 300}

"""Names of figures, and results that older versions stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.results import AuditResult, FigureName, SuiteInfo
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


def test_stratified_spec_is_stored_with_its_levels() -> None:
    spec = MeasureSpec(
        "gap", "gap", kind="difference", stratum="level", weights={1: 0.25, "1": 0.25, None: 0.5}, primary=True
    )
    stored = result(spec).model_dump_json()
    assert AuditResult.model_validate_json(stored).measures[0].spec == spec
    assert "strat" in result(spec).measures[0].signature
    assert "strat" not in result().measures[0].signature


def test_figure_name_has_one_print_and_one_key() -> None:
    name = FigureName("s", "p", {"a": 1, "b": None}, "m")
    assert (str(name), name.title) == ("p (a 1, without b) of m on s", "p (a 1, without b)")
    assert name.key == FigureName("s", "p", {"b": None, "a": 1}, "m").key
    others = [FigureName("s", "p", {"a": True, "b": None}, "m"), FigureName("s", "p", {"a": 1, "b": "None"}, "m")]
    assert len({other.key for other in [name, *others, FigureName("s", "p", name.where)]}) == 4

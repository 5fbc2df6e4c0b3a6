"""Missing answers as bounds: a model gains nothing by refusing its worst items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from audit.analysis.comparing.comparisons import compare_models
from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.results import Comparison, Measure
from suites.base import IdentifiedInterval, MeasureSpec, Row

GAP = MeasureSpec("gap", "gap", clusters=("occupation", "template"), kind="difference", neutral=0.0)
REAL = MeasureSpec("gap", "gap", clusters=("occupation", "template"))
Y = 0.25 + np.random.default_rng(0).normal(0, 0.05, (20, 10))


def table_of(values: np.ndarray, refused: Callable[[int, int], bool] = lambda o, t: False) -> Table:
    return Table.of(
        Row(f"{o}/{t}", {"occupation": o, "template": t}, {}, "refusal")
        if refused(o, t)
        else Row(f"{o}/{t}", {"occupation": o, "template": t}, {"gap": IdentifiedInterval.exact(float(value))})
        for (o, t), value in np.ndenumerate(values)
    )


def measured(table: Table, spec: MeasureSpec = GAP) -> Measure:
    return measure_table(table, [spec], model="m", suite="s", signature={})[0]


def compared(a: Table, b: Table, spec: MeasureSpec = GAP) -> Comparison:
    return compare_models({"a": a, "b": b}, [spec], suite="s")[0]


def test_a_missing_answer_enters_as_its_range() -> None:
    found = measured(table_of(Y, lambda o, t: (o, t) == (3, 4)))
    answered = Y.sum() - Y[3, 4]
    assert found.value == pytest.approx(answered / 199)
    assert (found.bound_low, found.bound_high) == pytest.approx(((answered - 1) / 200, (answered + 1) / 200))
    assert None not in (found.low, found.high, found.complete_case_low, found.complete_case_high)
    assert found.low < found.bound_low < found.bound_high < found.high  # type: ignore[operator]
    assert found.low < found.complete_case_low < found.complete_case_high < found.high  # type: ignore[operator]
    assert (found.n_items, found.missing) == (199, 1)
    whole = measured(table_of(Y))
    assert whole.complete_case_low is None


def test_a_missing_answer_of_a_group_without_weight_opens_nothing() -> None:
    spec = replace(GAP, stratum="group", weights={"f": 0.5, "m": 0.5})
    values = {"gap": IdentifiedInterval.exact(0.3)}
    rows = [Row(f"{g}{n}", {"occupation": n, "template": n, "group": g}, values) for g in "fm" for n in range(6)]
    other = Row("n", {"occupation": 9, "template": 9, "group": "n"}, {}, "refusal")
    found = measured(Table.of([*rows, other]), spec)
    assert (found.bound_low, found.bound_high) == pytest.approx((0.3, 0.3))


def test_a_difference_holds_for_every_answer_that_could_have_come() -> None:
    refused = compared(table_of(Y), table_of(Y + 0.1, lambda o, t: t == 0))
    assert refused.verdict == "inconclusive"
    assert refused.open_because == "missing answers"
    assert refused.n_missing == 20
    assert refused.difference == pytest.approx(0.1)
    few = compared(table_of(Y), table_of(Y + 0.1, lambda o, t: (o, t) == (0, 0)))
    assert few.verdict == "larger"
    assert few.bound_high is not None
    assert few.bound_low is not None
    assert few.bound_high - few.bound_low == pytest.approx(2 / 200)


def test_identical_answers_are_identical_only_if_all_are_there() -> None:
    whole = compared(table_of(Y), table_of(Y))
    assert (whole.verdict, whole.identical) == ("equivalent", True)
    some = compared(table_of(Y), table_of(Y, lambda o, t: t == 0))
    assert (some.verdict, some.identical) == ("inconclusive", False)


def test_a_quantity_without_a_range_is_not_called_alike_while_answers_are_missing() -> None:
    assert compared(table_of(Y), table_of(Y), REAL).verdict == "equivalent"
    assert compared(table_of(Y), table_of(Y, lambda o, t: (o, t) == (0, 0)), REAL).verdict == "inconclusive"
    found = measured(table_of(Y, lambda o, t: t == 0), REAL)
    assert found.bound_low == pytest.approx((Y[:, 1:].sum() + 20 * Y[:, 1:].min()) / 200)


def test_a_figure_that_fails_is_named() -> None:
    spec = MeasureSpec("r", "gap", estimator="correlation", clusters=("occupation",), covariate="template")
    with pytest.raises(ValueError, match="not constant") as error:
        measured(table_of(Y), spec)
    assert error.value.__notes__ == ["in the figure r of m on s"]

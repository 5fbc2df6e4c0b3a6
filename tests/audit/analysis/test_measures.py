"""From rows to measures: hand-computed figures, bounds, missing rows, signatures."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.results import Measure
from audit.results.figures import read_signature
from suites.base import Factor, IdentifiedInterval, MeasureSpec, Row


def row(item: str, value: float | IdentifiedInterval | None, missing: str | None = None, **factors: Factor) -> Row:
    values = (
        {}
        if value is None
        else {"p": value if isinstance(value, IdentifiedInterval) else IdentifiedInterval.exact(value)}
    )
    return Row(item, factors, values, missing)


def one(rows: list[Row], spec: MeasureSpec, **options: object) -> Measure:
    (found,) = measure_table(Table.of(rows), [spec], model="m", suite="s", signature={"data": "abc"}, **options)  # type: ignore[arg-type]
    return found


def test_a_mean_without_clusters_by_hand() -> None:
    rows = [row(str(i), v) for i, v in enumerate([0.2, 0.4, 0.6])]
    found = one(rows, MeasureSpec("p_female", "p", neutral=1 / 3, family="f", kind="difference"))
    half = stats.t.ppf(0.975, 2) * 0.2 / math.sqrt(3)
    assert found.value == found.bound_low == found.bound_high == pytest.approx(0.4)
    assert (found.low, found.high) == pytest.approx((0.4 - half, 0.4 + half))
    assert (found.n_items, found.n_clusters, found.missing, found.censored) == (3, 3, 0, 0)
    assert (found.neutral, found.family, found.probability_mass) == (1 / 3, "f", None)


def test_an_interval_leaves_0_to_1_only_where_the_figure_can() -> None:
    rows = [row(str(i), v) for i, v in enumerate([0.0, 0.01, 0.9])]
    share = one(rows, MeasureSpec("p", "p", kind="share"))
    gap = one(rows, MeasureSpec("p", "p", kind="difference"))
    assert share.low is not None
    assert share.low >= 0
    assert gap.low is not None
    assert gap.low < 0
    assert share.value == gap.value


def test_p_against_neutral_matches_scipy_and_holm() -> None:
    values = {"a": [0.1, 0.3, 0.2, 0.4, 0.0], "b": [0.0, 0.1, -0.2, 0.3, 0.05], "c": [0.2, 0.2, 0.3, 0.1, 0.2]}
    rows = [row(f"{g}{i}", v, group=g) for g, some in values.items() for i, v in enumerate(some)]
    specs = [MeasureSpec("effect", "p", {"group": g}, unit="difference", neutral=0.0, primary=g != "c") for g in values]
    found = measure_table(Table.of(rows), specs, model="m", suite="s", signature={})
    expected = [stats.ttest_1samp(some, 0.0).pvalue for some in values.values()]
    assert [m.p for m in found] == pytest.approx(expected)
    corrected = [2 * expected[0], max(2 * expected[0], expected[1]), expected[2]]
    assert [m.p_adjusted for m in found] == pytest.approx(corrected)


def test_p_holds_for_every_value_within_the_bounds() -> None:
    some = [row(str(i), v) for i, v in enumerate((0.2, 0.4, 0.3))]
    assert one(some, MeasureSpec("p", "p")).p is None, "no neutral value"
    for low, high in ((0.3, 0.35), (-0.9, 0.3)):
        found = one([*some, row("b", IdentifiedInterval(None, low, high))], MeasureSpec("p", "p", neutral=0.0))
        above = stats.ttest_1samp([0.2, 0.4, 0.3, low], 0.0, alternative="greater").pvalue
        assert found.p == pytest.approx(min(1.0, 2 * above), rel=0.3)
        assert (found.value, found.bound_low) == (None, pytest.approx((0.9 + low) / 4))


def test_rounding_of_floats_is_no_evidence() -> None:
    rows = [row(str(i), 0.1 + 0.2 - 0.3 + i * 1e-17) for i in range(9)]
    found = one(rows, MeasureSpec("gap", "p", unit="difference", neutral=0.0))
    assert found.p == 1.0


def test_row_without_the_factor_does_not_match() -> None:
    rows = [
        row("a", 0.1, group="f"),
        row("b", 0.3, group="f"),
        row("c", 0.9, group="m"),
        row("d", 0.9),
        row("e", 0.9, group=None),
        row("f", 0.9, group=True),
    ]
    assert one(rows, MeasureSpec("p", "p", {"group": "f"})).value == pytest.approx(0.2)
    assert one(rows, MeasureSpec("p", "p", {"group": None})).n_items == 1
    assert one(rows, MeasureSpec("p", "p", {"group": 1})).n_items == 0, "True is not 1"
    assert one(rows, MeasureSpec("p", "p")).n_items == 6


def test_a_single_cluster_gives_a_value_and_no_interval() -> None:
    rows = [row("a", 0.2, occupation="nurse"), row("b", 0.4, occupation="nurse")]
    found = one(rows, MeasureSpec("p", "p", clusters=("occupation",)))
    assert (found.value, found.low, found.high, found.n_clusters) == (pytest.approx(0.3), None, None, 1)


def test_missing_rows_are_counted_and_never_zero() -> None:
    rows = [row("a", 0.5), row("b", None, "refusal"), row("c", None, "timeout", group="x"), row("d", 0.7)]
    found = one(rows, MeasureSpec("p", "p"))
    assert (found.value, found.n_items, found.missing) == (pytest.approx(0.6), 2, 2)
    nothing = one(rows, MeasureSpec("p", "p", {"group": "x"}))
    assert (nothing.value, nothing.low, nothing.bound_low, nothing.n_items, nothing.missing) == (None, None, None, 0, 1)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=20))
def test_mean_of_hidden_values_is_within_the_bounds(pairs: list[tuple[float, float]]) -> None:
    ends = [sorted(pair) for pair in pairs]
    rows = [row(str(i), IdentifiedInterval(None, low, high)) for i, (low, high) in enumerate(ends)]
    found = one(rows, MeasureSpec("p", "p"))
    hidden = float(np.mean([low + 0.37 * (high - low) for low, high in ends]))
    assert found.bound_low is not None
    assert found.bound_high is not None
    assert found.bound_low - 1e-9 <= hidden <= found.bound_high + 1e-9
    assert found.low is None or found.low <= found.bound_low + 1e-9


def test_coverage_is_the_mean_raw_mass_at_its_lower_bound() -> None:
    rows = [
        Row("a", {}, {"p": IdentifiedInterval.exact(0.5), "mass": IdentifiedInterval.exact(0.8)}),
        Row("b", {}, {"p": IdentifiedInterval.exact(0.5), "mass": IdentifiedInterval(None, 0.2, 0.9)}),
        Row("c", {}, {}, "refusal"),
    ]
    assert one(rows, MeasureSpec("p", "p", probability_mass="mass")).probability_mass == pytest.approx(0.5)


def correlation_rows(noise: float = 0.1) -> tuple[list[Row], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    share = rng.uniform(0, 1, 12)
    values = share[:, None] * 0.5 + rng.normal(0, noise, (12, 4)) + 0.3
    rows = [
        row(f"{o}/{t}", float(values[o, t]), occupation=o, template=t, share=float(share[o]))
        for o in range(12)
        for t in range(4)
    ]
    return rows, values, share


CORRELATION = MeasureSpec("r", "p", estimator="correlation", clusters=("occupation", "template"), covariate="share")


def test_correlation_is_pearsons_over_cluster_means() -> None:
    rows, values, share = correlation_rows()
    found = one(rows, CORRELATION)
    assert found.value == pytest.approx(stats.pearsonr(values.mean(axis=1), share).statistic)
    assert found.low < found.value < found.high  # type: ignore[operator]
    assert (found.n_items, found.n_clusters, found.estimator) == (48, 12, "correlation")


def test_correlation_of_bounds_brackets_every_completion() -> None:
    rows, values, share = correlation_rows()
    hidden = {("2", "1"), ("5", "0"), ("5", "3")}
    bounded = [
        row(r.item_id, IdentifiedInterval(None, 0.0, 1.0), **r.factors) if tuple(r.item_id.split("/")) in hidden else r
        for r in rows
    ]
    found = one(bounded, CORRELATION)
    assert (found.value, found.censored) == (None, 3)
    rng = np.random.default_rng(3)
    for _ in range(300):
        filled = values.copy()
        for o, t in hidden:
            filled[int(o), int(t)] = rng.choice([0.0, 1.0, rng.uniform()])
        r = stats.pearsonr(filled.mean(axis=1), share).statistic
        assert found.bound_low <= r <= found.bound_high  # type: ignore[operator]
    assert found.low <= found.bound_low < found.bound_high <= found.high  # type: ignore[operator]


def test_correlation_needs_one_covariate_a_cluster() -> None:
    rows, values, share = correlation_rows()
    without = [row(r.item_id, r.values["p"], **{**r.factors, "share": None}) if r.factors["occupation"] == 3 else r
               for r in rows]  # fmt: skip
    kept = np.arange(12) != 3
    expected = stats.pearsonr(values.mean(axis=1)[kept], share[kept]).statistic
    found = one(without, CORRELATION)
    assert found.value == pytest.approx(expected)
    assert (found.n_clusters, found.n_items) == (11, 44)
    moving = [*rows, row("x", 0.5, occupation=3, template=9, share=0.123)]
    with pytest.raises(ValueError, match="share is not constant within occupation"):
        one(moving, CORRELATION)


def test_the_signature_tells_all_but_the_model() -> None:
    rows = [row("a", 0.1), row("b", 0.2)]
    spec = MeasureSpec("p", "p", clusters=("occupation",))
    first, second = (
        measure_table(Table.of(rows), [spec], model=model, suite="s", signature={"data": "abc"}, seed=3)[0].signature
        for model in ("m", "n")
    )
    assert first == second
    parts = read_signature(first)
    assert parts["data"] == "abc"
    assert (parts["clusters"], parts["seed"], parts["confidence"]) == (["occupation"], 3, 0.95)


GAP = MeasureSpec("gap", "p", clusters=("occupation",), neutral=0.0,
                  stratum="group", weights={"f": 0.5, "m": 0.5})  # fmt: skip


def grouped(values: dict[str, list[float]]) -> list[Row]:
    return [
        row(f"{group}{i}", value, group=group, occupation=f"{group}{i}")
        for group, some in values.items()
        for i, value in enumerate(some)
    ]


def test_a_figure_over_strata_is_the_weighted_mean_of_theirs() -> None:
    values = {"f": [0.5, 0.3, 0.4], "m": [-0.1, -0.3, -0.2, -0.2, -0.1, -0.3]}
    found = one(grouped(values), GAP)
    expected = stats.ttest_ind(values["f"], [-v for v in values["m"]], equal_var=False)
    assert found.value == pytest.approx(0.5 * 0.4 - 0.5 * 0.2)
    assert found.p is not None
    assert expected.pvalue < found.p < 0.4, "so few levels show next to nothing of other kinds"
    assert found.n_clusters == 3, "of the group that has fewest"
    assert one(grouped(values), replace(GAP, stratum=None, weights=None)).value == pytest.approx(0.0)


@pytest.mark.parametrize(("levels", "absent"), [(("f",), "m"), (("f", "m", "n"), "n")])
def test_a_stratum_without_rows_or_weight_leaves_no_value(levels: tuple[str, ...], absent: str) -> None:
    found = one(grouped({level: [0.1, 0.2] for level in levels}), GAP)
    assert (found.value, found.low, found.p, found.undefined_strata) == (None, None, None, [absent])
    assert found.n_items == 2 * len(levels)

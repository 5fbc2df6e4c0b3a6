"""Pairs of models: paired tests against other tools, verdicts, words and their error rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from audit.analysis.comparing.comparisons import compare_models, rank_models
from audit.analysis.table import Table
from audit.report.phrases.comparisons import describe
from audit.results import Comparison
from suites.base import IdentifiedInterval, MeasureSpec, Row

SPEC = MeasureSpec("p_female", "p", kind="probability")
UNBOUNDED = MeasureSpec("rating", "p", kind="real")
CLUSTERED = MeasureSpec("p_female", "p", kind="probability", clusters=("occupation", "template"))


def rows_of(values: np.ndarray, **quantities: np.ndarray) -> list[Row]:
    """One row per cell of an occupations × templates table."""
    return [
        Row(f"{o}/{t}", {"occupation": o, "template": t}, {"p": IdentifiedInterval.exact(float(value))})
        for (o, t), value in np.ndenumerate(np.atleast_2d(values))
    ]


def compared(rows: dict[str, list[Row]], specs: list[MeasureSpec], **options: object) -> list[Comparison]:
    return compare_models({model: Table.of(own) for model, own in rows.items()}, specs, **options)  # type: ignore[arg-type]


def compare(a: np.ndarray, b: np.ndarray, spec: MeasureSpec = SPEC, **options: object) -> Comparison:
    (found,) = compared({"a": rows_of(a), "b": rows_of(b)}, [spec], suite="s", **options)  # type: ignore[arg-type]
    return found


def test_verdicts_and_their_words() -> None:
    rng = np.random.default_rng(2)
    a = rng.uniform(0.2, 0.6, size=(20, 7))
    noise = rng.normal(0, 0.005, (20, 7))
    larger = compare(a, a + 0.1 + noise, CLUSTERED)
    assert larger.verdict == "larger"
    assert describe(larger).startswith("b has a higher p_female than a by 0.1")
    assert compare(a, a - 0.1 + noise, CLUSTERED).verdict == "smaller"
    same = compare(a, a + 0.005 + noise, CLUSTERED)
    assert same.verdict == "equivalent"
    assert "less than ±0.02 apart" in describe(same)
    unsure = compare(a, a + rng.normal(0, 0.3, (20, 7)), CLUSTERED)
    assert unsure.verdict == "inconclusive"
    assert "cannot be distinguished" in describe(unsure)
    assert f"{unsure.minimum_detectable_effect:.3f}" in describe(unsure)


def test_the_interval_that_decided_is_corrected_as_the_claim_is() -> None:
    rng = np.random.default_rng(17)
    a = rng.uniform(size=(40, 10))
    b = a + 0.01 + rng.normal(0, 0.05, (40, 10))
    specs = [replace(CLUSTERED, measure=f"x{i}", kind="real", primary=True) for i in range(4)]
    found = compared({"a": rows_of(a), "b": rows_of(b)}, specs, suite="s", margins=0.02)
    levels = sorted(1 - c.decided_confidence for c in found)  # type: ignore[operator]
    assert levels == pytest.approx([0.1 / 4, 0.1 / 3, 0.1 / 2, 0.1])
    for c in found:
        assert c.verdict == "equivalent"
        assert -0.02 < c.decided_low < c.decided_high < 0.02  # type: ignore[operator]


def test_unpaired_items_are_left_out_and_reported() -> None:
    rng = np.random.default_rng(4)
    a = rng.uniform(size=12)
    b = a + rng.normal(0.2, 0.05, 12)
    rows_a, rows_b = rows_of(a), rows_of(b)
    del rows_b[5]
    rows_b.reverse()
    (found,) = compared({"a": rows_a, "b": rows_b}, [SPEC], suite="s")
    kept = [i for i in range(12) if i != 5]
    assert found.difference == pytest.approx((b - a)[kept].mean())
    assert (found.n_items, found.n_unpaired) == (11, 1)
    assert describe(found).endswith("Left out because only one of them has a value: 1 of 12 items.")


def test_unpaired_items_count_as_far_apart_as_can_be() -> None:
    rows = rows_of(np.random.default_rng(4).uniform(0.3, 0.4, (20, 7)))
    # 2 of 140 items may move a probability by 0.0143, 3 by 0.0214.
    unbounded = replace(CLUSTERED, kind="real")
    for spec, lost in ((CLUSTERED, 2), (CLUSTERED, 3), (CLUSTERED, 98), (unbounded, 1)):
        verdict = "equivalent" if (spec, lost) == (CLUSTERED, 2) else "inconclusive"
        (found,) = compared({"a": rows, "b": rows[lost:]}, [spec], suite="s", margins=0.02)
        assert (found.verdict, found.n_unpaired) == (verdict, lost)
        why = "They may hide a difference, so the two are not called equivalent."
        assert f"only one of them has a value: {lost} of 140 items." in describe(found)
        assert describe(found).endswith(why) == (found.open_because == "unpaired items") == (verdict == "inconclusive")
        if verdict == "equivalent":
            assert found.alike_within == pytest.approx(2 / 140, abs=1e-6)


def test_absent_items_weigh_as_their_stratum_does() -> None:
    rng = np.random.default_rng(4)
    rows = [replace(row, factors={**row.factors, "group": "f" if row.factors["occupation"] < 6 else "m"})  # type: ignore[operator]
            for row in rows_of(rng.uniform(0.3, 0.4, (40, 7)))]  # fmt: skip
    gap = replace(CLUSTERED, kind="difference", stratum="group", weights={"f": 0.5, "m": 0.5})
    for lost, open_because in ((rows[1:], "unpaired items"), (rows[:-1], None)):  # 1 of 42, and 1 of 238
        (found,) = compared({"a": rows, "b": lost}, [gap], suite="s", margins=0.02)
        assert (found.verdict, found.open_because) == (("inconclusive" if open_because else "equivalent"), open_because)
        assert found.alike_within == pytest.approx(0.5 * 2 / (42 if open_because else 238), abs=1e-6)
    higher = [Row(r.item_id, r.factors, {"p": IdentifiedInterval.exact(r.values["p"].low + 0.1)}) for r in rows[60:]]
    (found,) = compared({"a": rows, "b": higher}, [CLUSTERED], suite="s")
    assert found.verdict == "larger"
    assert "equivalent" not in describe(found)


@pytest.mark.parametrize("kind", ["probability", "difference", "share", "real"])
def test_mirrored_models_give_the_mirrored_comparison(kind: str) -> None:
    rng = np.random.default_rng(11)
    spec = replace(CLUSTERED, kind=kind, primary=True)  # type: ignore[arg-type]
    opposite = {"larger": "smaller", "smaller": "larger"}
    for _ in range(10):
        base = rng.uniform(0.2, 0.8, (8, 16))
        rows = {}
        for name in "ab":
            values = base + rng.choice([0.0, 0.02, 0.1]) + rng.normal(0, rng.choice([0.001, 0.05]), base.shape)
            rows[name] = rows_of(np.clip(np.round(values) if kind == "share" else values, 0, 1))
            for i in rng.choice(128, rng.choice([0, 2, 30]), replace=False).tolist():
                rows[name][i] = Row(rows[name][i].item_id, rows[name][i].factors, {}, "refusal")
            rows[name] = rows[name][int(rng.choice([0, 1, 5])) :]
        (there,), (back,) = (compared(of, [spec], suite="s") for of in (rows, dict(reversed(rows.items()))))
        assert back.verdict == opposite.get(there.verdict, there.verdict)
        for low, high in (("low", "high"), ("bound_low", "bound_high"), ("decided_low", "decided_high")):
            assert (getattr(back, low), getattr(back, high)) == pytest.approx(
                (-getattr(there, high), -getattr(there, low)), abs=1e-9
            )


def test_a_third_model_leaves_the_pair_as_it_is() -> None:
    rng = np.random.default_rng(12)
    rows = {
        name: rows_of(rng.uniform(0.2, 0.8, (8, 6)) + shift) for name, shift in (("a", 0.0), ("b", 0.1), ("c", 50.0))
    }
    rows["b"][3] = Row(rows["b"][3].item_id, rows["b"][3].factors, {}, "refusal")
    spec = replace(CLUSTERED, kind="real")
    (alone,) = compared({name: rows[name] for name in "ab"}, [spec], suite="s")
    beside = next(c for c in compared(rows, [spec], suite="s") if (c.a, c.b) == ("a", "b"))
    of_pair = {"difference", "low", "high", "bound_low", "bound_high", "p", "n_items", "n_missing", "open_because"}
    assert alone.n_missing == 1
    assert beside.model_dump(include=of_pair) == alone.model_dump(include=of_pair)


def test_nothing_in_common_is_not_comparable() -> None:
    rows = rows_of(np.full(4, 0.5))
    (found,) = compared({"a": rows[:2], "b": rows[2:]}, [SPEC], suite="s")
    assert (found.verdict, found.difference, found.p, found.n_items) == ("not comparable", None, None, 0)
    assert "no item in common" in describe(found)


@pytest.mark.parametrize(
    ("of_a", "of_b", "undefined"),
    [
        (range(12), range(0), ["b"]),
        (range(0), range(12), ["a"]),
        (range(0), range(0), ["a", "b"]),
        (range(6), range(6, 12), ["a", "b"]),
    ],
)
def test_a_figure_that_one_model_lacks_is_undefined_for_it(of_a: range, of_b: range, undefined: list[str]) -> None:
    share, every = IdentifiedInterval.exact(0.3), rows_of(np.full((4, 3), 0.5))
    rows = {
        name: [replace(row, values=row.values | ({"share": share} if i in own else {})) for i, row in enumerate(every)]
        for name, own in (("a", of_a), ("b", of_b))
    }
    (found,) = compared(rows, [MeasureSpec("share", "share", clusters=("occupation",))], suite="s")
    assert (found.verdict, found.n_items, found.undefined_for) == ("not comparable", 0, undefined)


def test_one_cluster_is_inconclusive_without_an_interval() -> None:
    found = compare(
        np.full((1, 3), 0.2),
        np.full((1, 3), 0.9),
        MeasureSpec("p_female", "p", kind="probability", clusters=("occupation",)),
    )
    assert (found.difference, found.low, found.p, found.verdict) == (pytest.approx(0.7), None, None, "inconclusive")
    assert "Too few data" in describe(found)


def test_one_item_beside_a_huge_cluster_decides_nothing() -> None:
    rng = np.random.default_rng(6)
    a, b = (
        [
            Row(f"{i}", {"occupation": i == 0}, {"p": IdentifiedInterval.exact(float(v))})
            for i, v in enumerate(rng.uniform(size=1001))
        ]
        for _ in range(2)
    )
    spec = MeasureSpec("p_female", "p", kind="probability", clusters=("occupation",))
    (found,) = compared({"a": a, "b": b}, [spec], suite="s")
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low > 0.6, "the huge cluster is one draw"
    assert found.verdict == "inconclusive"


def test_bounds_widen_the_difference() -> None:
    rng = np.random.default_rng(6)
    a = rng.uniform(0.1, 0.2, 30)

    def bounded(low: float, high: float) -> Comparison:
        rows = rows_of(rng.uniform(0.5, 0.6, 30))
        rows[0] = Row(rows[0].item_id, rows[0].factors, {"p": IdentifiedInterval(None, low, high)})
        (found,) = compared({"a": rows_of(a), "b": rows}, [SPEC], suite="s")
        return found

    sure = bounded(0.0, 1.0)
    assert (sure.verdict, sure.difference) == ("larger", None)
    assert sure.bound_high - sure.bound_low == pytest.approx(1 / 30)  # type: ignore[operator]
    assert sure.low < sure.bound_low < sure.bound_high < sure.high  # type: ignore[operator]
    wide = bounded(-40.0, 40.0)
    assert (wide.verdict, wide.p) == ("inconclusive", 1.0)
    assert "leave it between" in describe(wide)


def test_few_equal_binary_outcomes_are_inconclusive() -> None:
    few, many = np.tile([0.0, 1.0], 5), np.tile([0.0, 1.0], 500)
    assert compare(few, few).verdict == "inconclusive"
    square = stats.t.ppf(0.975, 9) ** 2
    assert compare(few, few).high == pytest.approx(square / (10 + square))  # Wilson's of none in ten
    assert compare(few, few).identical
    assert compare(many, many).verdict == "equivalent"


@pytest.mark.parametrize(("n", "margin"), [(200, 0.02), (200, 0.05)])
def test_binary_outcomes_a_margin_apart_are_rarely_equivalent(n: int, margin: float) -> None:
    """The exact chance, all discordant items one way: the t test alone was wrong in 9 to 12 of 100."""
    wrong = sum(
        stats.binom.pmf(x, n, margin)
        for x in range(int(4 * n * margin))
        if compare(np.zeros(n), np.repeat([1.0, 0.0], [x, n - x]), margins=margin).verdict == "equivalent"
    )
    assert wrong <= 0.06


def test_a_model_that_answered_nothing_has_no_rank() -> None:
    rows = {"a": rows_of(np.zeros(30)), "b": rows_of(np.ones(30))}
    rows["silent"] = [Row(r.item_id, r.factors, {}, "timeout") for r in rows["a"]]
    (ranking,) = rank_models(compared(rows, [SPEC], suite="s"))
    assert [(r.model, r.best, r.worst) for r in ranking.ranks] == [("b", 1, 1), ("a", 2, 2)]


def test_primary_figures_and_the_others_are_corrected_apart() -> None:
    rng = np.random.default_rng(8)
    rows = {name: rows_of(rng.uniform(size=(8, 5))) for name in "abc"}
    specs = [
        MeasureSpec("x", "p", {"template": 0}, primary=True),
        MeasureSpec("y", "p", {"template": 1}, primary=True),
        MeasureSpec("z", "p", {"template": 2}),
        MeasureSpec("x", "p", {"template": 3}, is_subgroup=True),
    ]
    found = compared(rows, specs, suite="s")
    assert [c.measure for c in found] == ["x"] * 3 + ["y"] * 3 + ["z"] * 3 + ["x"] * 3
    for family, method in ((found[:6], "holm"), (found[6:], "fdr_bh")):
        expected = multipletests([c.p for c in family], method=method)[1]
        assert [c.p_adjusted for c in family] == pytest.approx(list(expected))


def test_margins_by_measure() -> None:
    rows = {name: rows_of(np.random.default_rng(9).uniform(size=(3, 3))) for name in "ab"}
    specs = [MeasureSpec(name, "p") for name in ("x", "y")]
    assert [c.margin for c in compared(rows, specs, suite="s", margins={"x": 0.1})] == [0.1, 0.02]
    assert [c.margin for c in compared(rows, specs, suite="s", margins={"x": 0.1, "default": 0.3})] == [0.1, 0.3]


def test_correlations_of_equal_counts_are_inconclusive() -> None:
    spec = MeasureSpec("r", "p", estimator="correlation", clusters=("occupation",), covariate="share")
    shares = np.linspace(0, 1, 12)

    def rows(values: np.ndarray) -> list[Row]:
        return [
            Row(f"{o}/{t}", {"occupation": o, "share": float(shares[o])}, {"p": IdentifiedInterval.exact(float(v))})
            for (o, t), v in np.ndenumerate(values)
        ]

    counts = np.random.default_rng(12).integers(-1, 2, (12, 3)).astype(float)
    (found,) = compared({"a": rows(counts), "b": rows(counts)}, [spec], suite="s")
    assert (found.difference, found.verdict, found.alike_within) == (0, "inconclusive", None)
    assert (found.low, found.high, found.p) == (None, None, None)
    assert "identical answers give no interval" in describe(found)


def test_correlations_of_which_one_has_bounds_differ_by_bounds() -> None:
    spec = MeasureSpec("r", "p", estimator="correlation", clusters=("occupation",), covariate="share")
    rng = np.random.default_rng(3)

    def rows(noise: np.ndarray) -> list[Row]:
        values = {o: IdentifiedInterval.exact(float(o / 12 + noise[o])) for o in range(12)}
        return [Row(f"{o}", {"occupation": o, "share": o / 12}, {"p": value}) for o, value in values.items()]

    a, b = (rows(rng.normal(0, 0.3, 12)) for _ in range(2))
    (exact,) = compared({"a": a, "b": b}, [spec], suite="s")
    b[3] = replace(b[3], values={"p": IdentifiedInterval(None, 0.0, 1.0)})
    (found,) = compared({"a": a, "b": b}, [spec], suite="s")
    assert exact.difference is not None
    assert found.difference is None
    assert found.bound_low < found.bound_high  # type: ignore[operator]


def test_the_detectable_difference_by_hand() -> None:
    half = np.random.default_rng(14).normal(0, 0.1, 30)
    apart = np.concatenate([half, -half])  # without skewness
    found = compare(np.zeros(60), apart, UNBOUNDED)
    se, t = apart.std(ddof=1) / np.sqrt(60), stats.t(59)
    expected = (t.ppf(0.975) + stats.norm.ppf(0.8) * t.ppf(stats.norm.cdf(1))) * se
    assert found.minimum_detectable_effect == pytest.approx(expected)


def test_rankings_have_intervals_and_call_ties_ties() -> None:
    rng = np.random.default_rng(1)
    base = rng.uniform(0.3, 0.5, (60, 1))
    shifts = {"low": 0.0, "high": 0.2, "tied": 0.2, "middle": 0.1}
    values = {name: rows_of(base + shift + rng.normal(0, 0.01, (60, 1))) for name, shift in shifts.items()}
    (ranking,) = rank_models(compared(values, [SPEC], suite="s"))
    assert [(r.model, r.best, r.worst) for r in ranking.ranks] == [
        ("high", 1, 2),
        ("tied", 1, 2),
        ("middle", 3, 3),
        ("low", 4, 4),
    ]
    assert [r.tied_with for r in ranking.ranks] == [["tied"], ["high"], [], []]

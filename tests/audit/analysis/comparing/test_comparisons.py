"""Pairs of models: paired tests against other tools, verdicts, words and their error rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from audit.analysis.comparing.comparisons import compare_models, rank_models, swapped
from audit.analysis.comparing.paired import End, PairedDifference
from audit.analysis.comparing.significance import mcnemar_exact
from audit.analysis.estimators import ValueKind, mean_of_kind
from audit.report.phrases.findings.comparisons import describe
from audit.results import Comparison
from suites.base import IdentifiedInterval, MeasureSpec, Row
from tests.audit.analysis.jackknife import jackknife_reach

SPEC = MeasureSpec("p_female", "p", kind="probability")
UNBOUNDED = MeasureSpec("rating", "p", kind="real")
CLUSTERED = MeasureSpec("p_female", "p", kind="probability", clusters=("occupation", "template"))


def rows_of(values: np.ndarray, **quantities: np.ndarray) -> list[Row]:
    """One row per cell of an occupations × templates table."""
    return [
        Row(f"{o}/{t}", {"occupation": o, "template": t}, {"p": IdentifiedInterval.exact(float(value))})
        for (o, t), value in np.ndenumerate(np.atleast_2d(values))
    ]


def compare(a: np.ndarray, b: np.ndarray, spec: MeasureSpec = SPEC, **options: object) -> Comparison:
    (found,) = compare_models({"a": rows_of(a), "b": rows_of(b)}, [spec], suite="s", **options)  # type: ignore[arg-type]
    return found


def test_unclustered_difference_matches_scipy_and_statsmodels() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(size=40)
    b = a + rng.normal(0.01, 0.02, 40)
    found = compare(a, b, UNBOUNDED, margins=0.02)
    expected = stats.ttest_rel(b, a)
    assert found.difference == pytest.approx((b - a).mean())
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert found.p == found.p_adjusted == pytest.approx(expected.pvalue)
    assert found.effect_size == pytest.approx((b - a).mean() / (b - a).std(ddof=1))
    assert (found.test, found.n_items, found.n_clusters) == ("paired t", 40, 40)
    for margin in (0.012, 0.013, 0.014, 0.016, 0.018, 0.02):
        p, _, _ = ttost_paired(b, a, -margin, margin)
        assert (compare(a, b, UNBOUNDED, margins=margin).verdict == "equivalent") == (p < 0.05)


def test_clusters_enter_the_paired_difference() -> None:
    rng = np.random.default_rng(1)
    a = rng.uniform(size=(10, 6))
    b = a + rng.normal(0, 0.05, 10)[:, None] + rng.normal(0, 0.01, (10, 6))
    clustered, naive = compare(a, b, replace(CLUSTERED, kind="real")), compare(a, b, replace(SPEC, kind="real"))
    by_occupation = stats.ttest_1samp((b - a).mean(axis=1), 0).confidence_interval(0.95)
    assert clustered.high - clustered.low > 1.8 * (naive.high - naive.low)  # type: ignore[operator]
    assert (clustered.low, clustered.high) == pytest.approx(tuple(by_occupation), abs=0.003)
    assert clustered.test == "paired t, clustered"


def test_verdicts_and_their_words() -> None:
    rng = np.random.default_rng(2)
    a = rng.uniform(0.2, 0.6, size=(20, 7))
    noise = rng.normal(0, 0.005, (20, 7))
    larger = compare(a, a + 0.1 + noise, CLUSTERED)
    assert larger.verdict == "larger"
    assert describe(larger).startswith("b has a higher p_female than a by 0.1")
    assert compare(a, a - 0.1 + noise, CLUSTERED).verdict == "smaller"
    same = compare(a, a + 0.005 + noise, CLUSTERED, largest_change=0.02)
    assert same.verdict == "equivalent"
    assert "less than ±0.02 apart" in describe(same)
    assert "There is a difference, but it is within the margin." in describe(same)
    unsure = compare(a, a + rng.normal(0, 0.3, (20, 7)), CLUSTERED)
    assert unsure.verdict == "inconclusive"
    assert "cannot be distinguished" in describe(unsure)
    assert f"{unsure.minimum_detectable_effect:.3f}" in describe(unsure)


def test_of_two_negative_values_the_one_nearer_to_0_is_higher() -> None:
    noise = np.random.default_rng(2).normal(0, 0.005, (20, 7))
    found = compare(noise - 0.05, noise - 0.3, replace(CLUSTERED, measure="effect"))
    assert found.verdict == "smaller"
    assert describe(found).startswith("b has a lower effect than a by 0.250")
    assert describe(swapped(found)).startswith("a has a higher effect than b by 0.250")


def test_identical_answers_leave_unseen_clusters_open() -> None:
    a = np.random.default_rng(3).uniform(size=(6, 5))
    found = compare(a, a, CLUSTERED)
    assert (found.difference, found.low, found.high, found.p) == (0, 0, 0, 1)
    assert found.effect_size is None
    # Of five templates alike, 45 % of all may be of a kind that is in none of them (0.55 ** 5 = 0.05).
    unseen = 1 - 0.05 ** (1 / 5)
    assert (found.verdict, found.open_because, found.largest_change) == ("inconclusive", "kinds not asked", 1.0)
    assert found.alike_within == pytest.approx(unseen)
    few = "so few (6 occupations and 5 templates) may miss a kind that differs by up to 1"
    assert f"On the items asked they are alike, but {few} (`largest_change` in the config" in describe(found)
    assert compare(a, a, CLUSTERED, largest_change=0.1).alike_within == pytest.approx(0.1 * unseen)
    enough = compare(*[np.random.default_rng(3).uniform(size=(14, 14))] * 2, CLUSTERED, largest_change=0.1)
    assert enough.verdict == "equivalent"
    assert "allowing for kinds of clusters not seen that differ by at most 0.1" in describe(enough)
    assert compare(a, a, CLUSTERED, margins=0.46).verdict == "equivalent"
    assert compare(a, a, CLUSTERED, margins=0.44).verdict == "inconclusive"
    assert compare(a, a, CLUSTERED, largest_change=0.04).verdict == "equivalent"
    few, many = (compare(np.full(n, 0.25), np.full(n, 0.5), CLUSTERED) for n in ((5, 5), (20, 10)))
    assert (few.difference, few.verdict) == (0.25, "inconclusive"), "equal changes may hide others"
    assert (many.difference, many.verdict) == (0.25, "larger")


def test_fewer_than_five_clusters_decide_nothing() -> None:
    noise = np.random.default_rng(3).normal(0, 0.001, (20, 5))
    for templates, verdict in ((4, "inconclusive"), (5, "larger")):
        found = compare(np.zeros((20, templates)) + 0.2, 0.6 + noise[:, :templates], CLUSTERED)
        assert (found.verdict, found.levels) == (verdict, {"occupation": 20, "template": templates})
    few = compare(np.zeros((20, 1)) + 0.2, 0.6 + noise[:, :1], CLUSTERED)
    assert (few.verdict, few.open_because) == ("inconclusive", "too few clusters")
    assert describe(few).endswith("it rests on 1 template, and fewer than 5 say too little about others.")


def test_too_few_clusters_in_a_stratum_are_counted_there() -> None:
    few = compare(np.zeros((20, 5)) + 0.2, np.zeros((20, 5)) + 0.6, CLUSTERED)
    few = few.model_copy(update={"open_because": "too few clusters", "levels": {"item": 8}, "fewest_levels": 4})
    of_stratum = "one of the strata that it averages over holds {} of its 8 items, and fewer than 5 say too little"
    assert of_stratum.format("only 4") in describe(few)
    older = few.model_copy(update={"fewest_levels": None})
    assert of_stratum.format("fewer than 5") in describe(older)


def test_the_interval_that_decided_is_the_one_printed() -> None:
    rng = np.random.default_rng(17)
    a = rng.uniform(size=(40, 10))
    b = a + 0.01 + rng.normal(0, 0.05, (40, 10))
    specs = [replace(CLUSTERED, measure=f"x{i}", kind="real", primary=True) for i in range(4)]
    found = compare_models({"a": rows_of(a), "b": rows_of(b)}, specs, suite="s", margins=0.02, largest_change=1e-9)
    for c in found:
        assert c.verdict == "equivalent"
        assert c.decided_confidence in (pytest.approx(0.9), pytest.approx(1 - 0.1 / 2), pytest.approx(1 - 0.1 / 3),
                                        pytest.approx(1 - 0.1 / 4))  # fmt: skip
        assert -0.02 < c.decided_low < c.decided_high < 0.02  # type: ignore[operator]
        corrected = ", corrected for several figures," if c.decided_confidence > 0.9 + 1e-9 else ""  # type: ignore[operator]
        assert f"{100 * c.decided_confidence:.4g} % interval{corrected} +{c.decided_low:.3f}" in describe(c)  # type: ignore[operator]
    apart = compare(a, b + 0.1, replace(CLUSTERED, population="new occupations and templates"))
    assert "over new occupations and templates (95 % interval" in describe(apart)


def test_unpaired_items_are_left_out_and_reported() -> None:
    rng = np.random.default_rng(4)
    a = rng.uniform(size=12)
    b = a + rng.normal(0.2, 0.05, 12)
    rows_a, rows_b = rows_of(a), rows_of(b)
    del rows_b[5]
    rows_b.reverse()
    (found,) = compare_models({"a": rows_a, "b": rows_b}, [SPEC], suite="s")
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
        (found,) = compare_models({"a": rows, "b": rows[lost:]}, [spec], suite="s", margins=0.02, largest_change=1e-9)
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
        (found,) = compare_models({"a": rows, "b": lost}, [gap], suite="s", margins=0.02, largest_change=1e-9)
        assert (found.verdict, found.open_because) == (("inconclusive" if open_because else "equivalent"), open_because)
        assert found.alike_within == pytest.approx(0.5 * 2 / (42 if open_because else 238), abs=1e-6)
    higher = [Row(r.item_id, r.factors, {"p": IdentifiedInterval.exact(r.values["p"].low + 0.1)}) for r in rows[60:]]
    (found,) = compare_models({"a": rows, "b": higher}, [CLUSTERED], suite="s")
    assert found.verdict == "larger"
    assert "equivalent" not in describe(found)


@pytest.mark.parametrize("kind", ["probability", "difference", "share", "real"])
def test_mirrored_models_give_the_mirrored_comparison(kind: str) -> None:
    rng = np.random.default_rng(11)
    spec = replace(CLUSTERED, kind=kind, primary=True)  # type: ignore[arg-type]
    reasons = set()
    for _ in range(40):
        base = rng.uniform(0.2, 0.8, (8, 16))
        rows = {}
        for name in "ab":
            values = base + rng.choice([0.0, 0.02, 0.1]) + rng.normal(0, rng.choice([0.001, 0.05]), base.shape)
            values = np.round(values) if kind == "share" else values
            rows[name] = rows_of(np.clip(values, 0, 1))
            for i in rng.choice(128, rng.choice([0, 2, 30]), replace=False).tolist():
                row, value = rows[name][i], rows[name][i].values["p"].low
                known = {"p": IdentifiedInterval(None, max(value - 0.1, 0.0), value)}
                rows[name][i] = (
                    replace(row, values=known) if rng.random() < 0.5 else Row(row.item_id, row.factors, {}, "refusal")
                )
            rows[name] = rows[name][int(rng.choice([0, 1, 5])) :]
        there, back = (
            compare_models(of, [spec], suite="s", largest_change=0.03) for of in (rows, dict(reversed(rows.items())))
        )
        ours, mirrored = swapped(there[0]).model_dump(), back[0].model_dump()
        for field, value in ours.items():
            assert mirrored[field] == (pytest.approx(value, abs=1e-9) if isinstance(value, float) else value), field
        reasons.add(there[0].open_because)
    assert {None, "missing answers"} <= reasons


def test_a_third_model_leaves_the_pair_as_it_is() -> None:
    rng = np.random.default_rng(12)
    rows = {
        name: rows_of(rng.uniform(0.2, 0.8, (8, 6)) + shift) for name, shift in (("a", 0.0), ("b", 0.1), ("c", 50.0))
    }
    rows["b"][3] = Row(rows["b"][3].item_id, rows["b"][3].factors, {}, "refusal")
    spec = replace(CLUSTERED, kind="real")
    (alone,) = compare_models({name: rows[name] for name in "ab"}, [spec], suite="s")
    beside = next(c for c in compare_models(rows, [spec], suite="s") if (c.a, c.b) == ("a", "b"))
    of_pair = {"difference", "low", "high", "bound_low", "bound_high", "p", "n_items", "n_missing", "open_because"}
    assert alone.n_missing == 1
    assert beside.model_dump(include=of_pair) == alone.model_dump(include=of_pair)


def test_missing_items_of_one_pair_do_not_touch_the_other_pairs() -> None:
    rng = np.random.default_rng(5)
    values = {name: rng.uniform(size=(6, 4)) for name in "abc"}
    rows = {name: rows_of(v) for name, v in values.items()}
    rows["c"] = rows["c"][3:]
    together = compare_models(rows, [CLUSTERED], suite="s")
    for found in together:
        pair = {name: rows[name] for name in (found.a, found.b)}
        (alone,) = compare_models(pair, [CLUSTERED], suite="s")
        assert (found.difference, found.p) == pytest.approx((alone.difference, alone.p))
        assert found.n_items == alone.n_items
    assert [(c.a, c.b, c.n_items) for c in together] == [("a", "b", 24), ("a", "c", 21), ("b", "c", 21)]


def test_nothing_in_common_is_not_comparable() -> None:
    rows = rows_of(np.full(4, 0.5))
    (found,) = compare_models({"a": rows[:2], "b": rows[2:]}, [SPEC], suite="s")
    assert (found.verdict, found.difference, found.p, found.n_items) == ("not comparable", None, None, 0)
    assert "no item in common" in describe(found)


def test_undefined_figure_is_reported_as_undefined() -> None:
    share = MeasureSpec("share", "share", kind="probability", clusters=("occupation",))

    def sentences(*defined: range) -> tuple[str, str]:
        models = {
            name: [
                Row(
                    r.item_id,
                    r.factors,
                    {**r.values, "share": IdentifiedInterval.exact(0.3)} if i in those else r.values,
                )
                for i, r in enumerate(rows_of(np.full((4, 3), 0.5)))
            ]
            for name, those in zip("ab", defined, strict=True)
        }
        (found,) = compare_models(models, [share], suite="s")
        assert (found.verdict, found.n_items) == ("not comparable", 0)
        return describe(found), describe(swapped(found))

    every, none = range(12), range(0)
    for sentence in sentences(every, none):
        assert sentence.endswith(
            "cannot be compared in share: on the items that both answered, it is not defined for b."
        )
    assert "it is not defined for a." in sentences(none, every)[0]
    for defined in ((none, none), (range(6), range(6, 12))):
        assert sentences(*defined)[0].endswith("on no item that both answered is it defined for both.")


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
    (found,) = compare_models({"a": a, "b": b}, [spec], suite="s")
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low > 0.6, "the huge cluster is one draw"
    assert (found.verdict, found.open_because) == ("inconclusive", "too few clusters")


def test_bounds_widen_the_difference() -> None:
    rng = np.random.default_rng(6)
    a = rng.uniform(0.1, 0.2, 30)

    def bounded(low: float, high: float) -> Comparison:
        rows = rows_of(rng.uniform(0.5, 0.6, 30))
        rows[0] = Row(rows[0].item_id, rows[0].factors, {"p": IdentifiedInterval(None, low, high)})
        (found,) = compare_models({"a": rows_of(a), "b": rows}, [SPEC], suite="s")
        return found

    sure = bounded(0.0, 1.0)
    assert (sure.verdict, sure.difference) == ("larger", None)
    assert sure.bound_high - sure.bound_low == pytest.approx(1 / 30)  # type: ignore[operator]
    assert sure.low < sure.bound_low < sure.bound_high < sure.high  # type: ignore[operator]
    wide = bounded(-40.0, 40.0)
    assert (wide.verdict, wide.p) == ("inconclusive", 1.0)
    assert "leave it between" in describe(wide)


def test_yes_no_outcomes_use_mcnemars_test() -> None:
    rng = np.random.default_rng(7)
    a = (rng.random(60) < 0.4).astype(float)
    b = np.where(rng.random(60) < 0.3, 1.0, a)
    found = compare(a, b)
    only_b, only_a = int(((b == 1) & (a == 0)).sum()), int(((b == 0) & (a == 1)).sum())
    expected = mcnemar([[0, only_a], [only_b, 0]], exact=True).pvalue
    assert found.p == pytest.approx(expected)
    assert found.test == "McNemar (exact)"
    clustered = compare(a.reshape(10, 6), b.reshape(10, 6), CLUSTERED)
    assert clustered.test == "McNemar (exact) and paired t, clustered"
    assert clustered.p is not None
    assert clustered.p >= expected - 1e-12


def test_few_equal_binary_outcomes_are_inconclusive() -> None:
    few, many = np.tile([0.0, 1.0], 5), np.tile([0.0, 1.0], 500)
    assert compare(few, few).verdict == "inconclusive"
    t = stats.t.ppf(0.975, 9)
    assert compare(few, few).high == pytest.approx(t**2 / (10 + t**2))
    assert compare(many, many).verdict == "equivalent"


def test_few_equal_differences_of_counts_are_inconclusive() -> None:
    spec = MeasureSpec("bias_score", "p", kind="difference", is_count=True, neutral=0.0)
    few, some, many = (np.tile([0.0, 1.0, -1.0, 0.0], times) for times in (2, 50, 300))
    # Such a difference may be 2: were 1 % of the population so, 200 would be alike 13 % of the time.
    for values, verdict in ((few, "inconclusive"), (some, "inconclusive"), (many, "equivalent")):
        assert compare(values, values, spec).verdict == verdict
    apart = compare(np.zeros(4), np.ones(4), spec)
    assert apart.p is not None
    assert apart.p > 0.001
    assert apart.test == "paired t", "McNemar's test is for outcomes, not for their differences"


def test_bounds_of_a_third_model_change_nothing() -> None:
    a, b = np.zeros(10), np.repeat([1.0, 0.0], 5)
    for first, second in ((a, b), (np.ones(6), np.ones(6))):
        alone = compare(first, second)
        rows = {"a": rows_of(first), "b": rows_of(second), "c": rows_of(first)}
        rows["c"][0] = Row(rows["c"][0].item_id, rows["c"][0].factors, {"p": IdentifiedInterval(None, 0, 1)})
        spec = replace(SPEC, family="f")
        beside = next(c for c in compare_models(rows, [spec], suite="s") if (c.a, c.b) == ("a", "b"))
        assert (beside.test, beside.p, beside.low, beside.high) == (alone.test, alone.p, alone.low, alone.high)
        assert alone.verdict == "inconclusive"


def test_half_counts_and_few_equal_values_are_no_certainty() -> None:
    share = MeasureSpec("balanced", "p", kind="share")
    halves = np.full(8, 0.5)
    assert compare(halves, halves, share).verdict == "inconclusive"
    assert compare(np.full(2, 0.5), np.ones(2), share).verdict == "inconclusive"
    rating = MeasureSpec("rating", "p", unit="points")
    few = compare(np.full(24, 3.0), np.full(24, 4.0), rating)
    assert (few.low, few.p, few.verdict) == (None, None, "inconclusive")
    assert "all items differ alike, which gives no interval" in describe(few)
    assert compare(np.full(25, 3.0), np.full(25, 4.0), rating).verdict == "larger"


@pytest.mark.parametrize(("n", "margin"), [(200, 0.02), (400, 0.02), (100, 0.05), (200, 0.05), (1000, 0.02)])
def test_binary_outcomes_a_margin_apart_are_rarely_equivalent(n: int, margin: float) -> None:
    """The exact chance, all discordant items one way: the t test alone was wrong in 9 to 12 of 100."""
    wrong = sum(
        stats.binom.pmf(x, n, margin)
        for x in range(int(4 * n * margin))
        if compare(np.zeros(n), np.repeat([1.0, 0.0], [x, n - x]), margins=margin).verdict == "equivalent"
    )
    assert wrong <= 0.06


@pytest.mark.parametrize("n", [10, 20, 40, 200])
def test_detectable_difference_of_binary_outcomes_has_its_power(n: int) -> None:
    found = compare(np.zeros(n), np.repeat([1.0, 0.0], [n // 2, n - n // 2]))
    assert found.minimum_detectable_effect is not None
    power = sum(
        stats.binom.pmf(x, n, found.minimum_detectable_effect) for x in range(n + 1) if mcnemar_exact(x, 0) < 0.05
    )
    assert power >= 0.8 - 1e-9


def test_too_few_binary_outcomes_have_no_detectable_difference() -> None:
    assert compare(np.zeros(5), np.array([1.0, 1, 0, 0, 0])).minimum_detectable_effect is None


def test_small_differences_are_not_printed_as_nothing() -> None:
    rng = np.random.default_rng(16)
    a = rng.uniform(size=200)
    found = compare(a, a + 3e-4 + rng.normal(0, 1e-4, 200), UNBOUNDED, margins=1e-5, confidence=0.999)
    assert "higher rating than a by 0.0003 (99.9 % interval +0.0003 to +0.0003)" in describe(found)


def test_a_model_that_answered_nothing_has_no_rank() -> None:
    rows = {"a": rows_of(np.zeros(30)), "b": rows_of(np.ones(30))}
    rows["silent"] = [Row(r.item_id, r.factors, {}, "timeout") for r in rows["a"]]
    (ranking,) = rank_models(compare_models(rows, [SPEC], suite="s"))
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
    found = compare_models(rows, specs, suite="s")
    assert [c.measure for c in found] == ["x"] * 3 + ["y"] * 3 + ["z"] * 3 + ["x"] * 3
    for family, method in ((found[:6], "holm"), (found[6:], "fdr_bh")):
        expected = multipletests([c.p for c in family], method=method)[1]
        assert [c.p_adjusted for c in family] == pytest.approx(list(expected))


def test_margins_by_measure() -> None:
    rows = {name: rows_of(np.random.default_rng(9).uniform(size=(3, 3))) for name in "ab"}
    specs = [MeasureSpec(name, "p") for name in ("x", "y")]
    assert [c.margin for c in compare_models(rows, specs, suite="s", margins={"x": 0.1})] == [0.1, 0.02]
    assert [c.margin for c in compare_models(rows, specs, suite="s", margins={"x": 0.1, "default": 0.3})] == [0.1, 0.3]


def test_difference_of_correlations_is_jackknifed_by_cluster() -> None:
    rng = np.random.default_rng(10)
    share = rng.uniform(size=15)
    values = [share[:, None] * slope + rng.normal(0, 0.3, (15, 3)) for slope in (0.3, 1.0)]
    rows = [
        [
            Row(
                f"{o}/{t}", {"occupation": o, "share": float(share[o])}, {"p": IdentifiedInterval.exact(float(v[o, t]))}
            )
            for o in range(15)
            for t in range(3)
        ]
        for v in values
    ]
    spec = MeasureSpec("r", "p", estimator="correlation", clusters=("occupation",), covariate="share")
    (found,) = compare_models(dict(zip("ab", rows, strict=True)), [spec], suite="s")
    a, b = (v.mean(axis=1) for v in values)

    def gap(kept: np.ndarray) -> float:
        return float(stats.pearsonr(b[kept], share[kept]).statistic - stats.pearsonr(a[kept], share[kept]).statistic)

    without = [gap(np.arange(15) != i) for i in range(15)]
    below, above = jackknife_reach(without)
    whole = gap(np.ones(15, dtype=bool))
    assert (found.difference, found.low, found.high) == pytest.approx((whole, whole - below, whole + above))
    assert (found.n_clusters, found.test) == (15, "jackknife over clusters")


def test_difference_of_correlations_leaves_out_templates() -> None:
    rng = np.random.default_rng(13)
    share = rng.uniform(size=30)
    of_occupation = rng.normal(0, 0.05, (30, 1))

    def rows(slopes: list[float]) -> list[Row]:
        values = 0.3 + share[:, None] * np.array(slopes) + of_occupation + rng.normal(0, 0.01, (30, 4))
        return [
            Row(
                f"{o}/{t}",
                {"occupation": o, "template": t, "share": float(share[o])},
                {"p": IdentifiedInterval.exact(float(v))},
            )
            for (o, t), v in np.ndenumerate(values)
        ]

    by_model = {"a": rows([0.1, 0.1, 0.1, 0.1]), "b": rows([0.0, 0.1, 0.2, 0.5]), "c": rows([0.2, 0.2, 0.2, 0.2])}
    by_model["c"][0] = Row("0/0", by_model["c"][0].factors, {"p": IdentifiedInterval(None, 0.2, 0.9)})
    specs = [
        MeasureSpec(name, "p", estimator="correlation", clusters=clusters, covariate="share")
        for name, clusters in (("both", ("occupation", "template")), ("occupations", ("occupation",)))
    ]
    found = {(c.measure, c.a, c.b): c for c in compare_models(by_model, specs, suite="s")}
    both, alone = found["both", "a", "b"], found["occupations", "a", "b"]
    assert both.difference == alone.difference
    assert alone.p < 0.02  # type: ignore[operator]
    assert both.p > 0.05, "one of four templates makes the difference"  # type: ignore[operator]
    bounded = found["both", "a", "c"]
    assert (bounded.difference, bounded.bound_low < bounded.bound_high) == (None, True)  # type: ignore[operator]
    for end in (0.2, 0.9):
        by_model["c"][0] = Row("0/0", by_model["c"][0].factors, {"p": IdentifiedInterval.exact(end)})
        exact = {c.measure: c for c in compare_models({k: by_model[k] for k in "ac"}, specs, suite="s")}["both"]
        assert bounded.bound_low - 1e-9 <= exact.difference <= bounded.bound_high + 1e-9  # type: ignore[operator]


def test_correlations_of_equal_counts_are_inconclusive() -> None:
    spec = MeasureSpec("r", "p", estimator="correlation", clusters=("occupation",), covariate="share")
    shares = np.linspace(0, 1, 12)

    def rows(values: np.ndarray) -> list[Row]:
        return [
            Row(f"{o}/{t}", {"occupation": o, "share": float(shares[o])}, {"p": IdentifiedInterval.exact(float(v))})
            for (o, t), v in np.ndenumerate(values)
        ]

    counts = np.random.default_rng(12).integers(-1, 2, (12, 3)).astype(float)
    for values in (counts, counts / 3):  # what clusters of a kind not seen may do to a correlation has no bound
        (found,) = compare_models({"a": rows(values), "b": rows(values)}, [spec], suite="s")
        assert (found.difference, found.verdict, found.alike_within) == (0, "inconclusive", None)
    (found,) = compare_models({"a": rows(counts), "b": rows(counts)}, [spec], suite="s")
    assert (found.low, found.high, found.p) == (None, None, None)
    assert "identical answers give no interval" in describe(found)


def test_a_difference_of_few_occupations_says_so() -> None:
    rng = np.random.default_rng(6)
    a, noise = rng.uniform(0.2, 0.4, (40, 10)), rng.normal(0.02, 0.01, (40, 10))
    few = np.where(np.arange(40) < 2, 0.5, 0.0)[:, None]
    found, even = compare(a, a + noise + few, CLUSTERED), compare(a, a + noise, CLUSTERED)
    assert (found.is_of_few, even.is_of_few) == (True, False)
    assert "A few of its occupations or templates decide this, so its interval may be too short." in describe(found)
    assert "may be too short" not in describe(even)


def test_a_difference_of_rare_answers_rests_on_few() -> None:
    odds = np.random.default_rng(7).exponential(1, (20, 1)) - 5 + np.zeros((20, 8))
    a, b = (1 / (1 + np.exp(-odds - more)) for more in (0.0, 0.3))
    assert compare(a, b, CLUSTERED).is_of_few, "each model's share rests on few"


def test_a_difference_says_what_kinds_not_asked_could_do() -> None:
    rng = np.random.default_rng(8)
    a = rng.uniform(0.2, 0.4, (20, 10))
    found = compare(a, a + 0.1 + rng.normal(0, 0.01, (20, 10)), CLUSTERED)
    share = 1 - 0.025 ** (1 / 10)  # of ten templates, so much may be of another kind
    assert found.verdict == "larger"
    assert found.unseen_low == pytest.approx(found.low - share * (1 + found.low))  # type: ignore[operator]
    assert found.unseen_high == pytest.approx(found.high + share * (1 - found.high))  # type: ignore[operator]
    assert found.is_of_kinds_asked
    farther = "were others apart by up to 1, the difference is between −0.241 and +0.378."
    assert f"This is of kinds like those asked: {farther}" in describe(found)
    sure = compare(a, a + 0.1 + rng.normal(0, 0.01, (20, 10)), CLUSTERED, largest_change=0.05)
    assert not sure.is_of_kinds_asked
    assert "kinds like those asked" not in describe(sure)


def test_turning_a_comparison_is_comparing_the_other_way_round() -> None:
    rng = np.random.default_rng(11)
    a = rng.uniform(size=(6, 5))
    b = a + rng.normal(0.1, 0.05, (6, 5))
    rows_b = rows_of(b)
    rows_b[3] = Row(rows_b[3].item_id, rows_b[3].factors, {"p": IdentifiedInterval(None, 0.1, 0.4)})
    for there in (rows_of(b), rows_b, rows_of(a)):
        (forth,) = compare_models({"a": rows_of(a), "b": there}, [CLUSTERED], suite="s")
        (back,) = compare_models({"b": there, "a": rows_of(a)}, [CLUSTERED], suite="s")
        left_out = {"words", "where", "undefined_for", "levels"}
        assert swapped(forth).model_dump(exclude=left_out) == pytest.approx(back.model_dump(exclude=left_out))
        assert describe(swapped(forth)) == describe(back)
        assert swapped(swapped(forth)) == forth


# -------------------------------------------------------------------------- error rates


def nights(rng: np.random.Generator, shift: float, spread: float, nights: int) -> list[Comparison]:
    """Independent comparisons of two models on 20 × 7 items, each a family of its own."""
    found = []
    for _ in range(nights):
        a = rng.uniform(size=(20, 7))
        effect = rng.normal(0, spread, 20)[:, None] + rng.normal(0, spread / 2, 7) + rng.normal(0, spread, (20, 7))
        found.append(compare(a, a + shift + effect, CLUSTERED))
    return found


@pytest.mark.simulation
def test_equal_models_are_told_apart_no_more_often_than_said() -> None:
    found = nights(np.random.default_rng(12), 0.0, 0.1, 600)
    assert sum(c.verdict in ("larger", "smaller") for c in found) <= 0.07 * 600


@pytest.mark.simulation
def test_models_a_margin_apart_are_rarely_equivalent() -> None:
    found = nights(np.random.default_rng(13), 0.02, 0.02, 600)
    assert sum(c.verdict == "equivalent" for c in found) <= 0.07 * 600


@pytest.mark.simulation
def test_the_detectable_difference_is_found_four_times_in_five() -> None:
    rng = np.random.default_rng(14)
    minimum_detectable_effect = float(np.mean([c.minimum_detectable_effect for c in nights(rng, 0.0, 0.1, 200)]))
    found = nights(rng, minimum_detectable_effect, 0.1, 600)
    assert 0.72 <= np.mean([c.verdict == "larger" for c in found]) <= 0.87


@pytest.mark.simulation
def test_holm_keeps_the_chance_of_any_false_claim() -> None:
    rng = np.random.default_rng(15)
    wrong = 0
    for _ in range(300):
        base = rng.uniform(size=(12, 4))
        rows = {name: rows_of(base + rng.normal(0, 0.1, (12, 4))) for name in "abcd"}
        wrong += any(c.verdict in ("larger", "smaller") for c in compare_models(rows, [SPEC], suite="s"))
    assert wrong <= 0.08 * 300


def test_strata_leave_the_groups_out_of_the_error() -> None:
    rng = np.random.default_rng(4)
    a = np.zeros(28)
    change = rng.normal(0, 0.02, 28) + np.where(np.arange(28) < 8, 0.3, -0.2)
    factors = [{"group": "f" if i < 8 else "m", "occupation": i} for i in range(28)]

    def rows(values: np.ndarray) -> list[Row]:
        return [
            Row(str(i), f, {"p": IdentifiedInterval.exact(float(v))})
            for i, (f, v) in enumerate(zip(factors, values, strict=True))
        ]

    spec = MeasureSpec("gap", "p", clusters=("occupation",),
                       stratum="group", weights={"f": 0.5, "m": 0.5})  # fmt: skip
    (found,) = compare_models({"a": rows(a), "b": rows(a + change)}, [spec], suite="s")
    expected = stats.ttest_ind(change[:8], -change[8:], equal_var=False)
    assert found.difference == pytest.approx((change[:8].mean() + change[8:].mean()) / 2)
    assert found.low is not None
    assert 2 * found.low == pytest.approx(expected.confidence_interval(0.95).low)
    assert expected.pvalue <= found.p < 1e-5  # Welch's is too small beyond 95 %
    assert found.verdict == "larger"
    (alike,) = compare_models({"a": rows(a)[:8], "b": rows(a)[:8]}, [spec], suite="s")
    assert (alike.verdict, alike.difference) == ("inconclusive", None)


def test_correlations_differ_by_at_most_two() -> None:
    spec = MeasureSpec("r", "p", estimator="correlation", clusters=("o",), covariate="x")
    wide = PairedDifference(spec, 0, 1, "jackknife", low=End(-0.9, 1.0, 5.0), high=End(-0.9, 1.0, 5.0))
    assert wide.interval(0.95)[0] == -2
    assert np.isnan(PairedDifference(spec, 0, 1, "jackknife").interval(0.95)).all()


@pytest.mark.parametrize("templates", [5, 7, 20])
@pytest.mark.parametrize("tests", [1, 10, 100])
def test_another_sample_finds_what_is_said_to_be_found(templates: int, tests: int) -> None:
    rng = np.random.default_rng(templates)
    a, b = (codes.ravel() for codes in np.indices((20, templates)))

    def sample() -> np.ndarray:
        parts = (rng.normal(0, sd, (n, 1_000)) for sd, n in ((0.03, 20), (0.03, templates), (0.03, len(a))))
        of_occupations, of_templates, of_items = parts
        return of_occupations[a] + of_templates[b] + of_items

    kind = ValueKind(-2.0, 2.0, is_change=True)
    before = mean_of_kind(sample(), [a, b], kind)
    sides = zip(*(np.column_stack(side).tolist() for side in before.reach), strict=True)
    assert before.far_df is not None
    effects = [
        End(0.0, max(below[0], above[0]), df, tuple(below), tuple(above), far).detected(1 - 0.025 / tests, 0.8)
        for (below, above), df, far in zip(sides, before.df.tolist(), before.far_df.tolist(), strict=True)
    ]
    another = mean_of_kind(sample() + np.array(effects), [a, b], kind)
    found = (another.p_two_sided() < 0.05 / tests) & (another.value > 0)
    assert 0.7 < found.mean() < 0.9

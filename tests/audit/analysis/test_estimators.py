"""Estimates and intervals against other tools, hand-computed designs and known truths."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from audit.analysis.correlations import (
    correlation,
    correlation_interval,
    correlations,
    extreme_correlation,
    leave_one_out_correlations,
)
from audit.analysis.estimators import (
    Estimate,
    allow_for_few_outcomes,
    clustered_mean,
    crossed_factors,
)


def grid(rows: int, columns: int, replicates: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Cluster codes of a complete rows × columns design."""
    return np.repeat(np.arange(rows), columns * replicates), np.tile(np.repeat(np.arange(columns), replicates), rows)


def ols_clustered(y: np.ndarray, groups: np.ndarray, **kwds: object) -> float:
    fit = sm.OLS(y, np.ones(len(y))).fit(cov_type="cluster", cov_kwds={"groups": groups, **kwds})
    return float(fit.bse[0])


def test_without_clusters_it_is_scipys_t_interval() -> None:
    y = np.random.default_rng(0).normal(0.4, 0.2, 37)
    expected = stats.ttest_1samp(y, 0.3)
    found = clustered_mean(y, [])
    low, high = found.interval(0.9)
    assert (low[0], high[0]) == pytest.approx(tuple(expected.confidence_interval(0.9)))
    assert found.p_two_sided(0.3)[0] == pytest.approx(expected.pvalue)
    assert found.p_above(0.3)[0] == pytest.approx(stats.ttest_1samp(y, 0.3, alternative="greater").pvalue)
    assert found.p_below(0.3)[0] == pytest.approx(stats.ttest_1samp(y, 0.3, alternative="less").pvalue)


def test_one_way_clusters_of_equal_size_agree_with_statsmodels() -> None:
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(12), 5)
    y = rng.normal(0, 1, 12)[group] + rng.normal(0, 1, 60)
    found = clustered_mean(y, [group])
    assert found.se[0] == pytest.approx(ols_clustered(y, group), rel=1e-9)
    assert found.df[0] == pytest.approx(11)
    # The same as the t-test of the cluster means.
    assert found.p_two_sided()[0] == pytest.approx(stats.ttest_1samp(y.reshape(12, 5).mean(axis=1), 0).pvalue)


def test_one_way_clusters_of_unequal_size_agree_with_statsmodels_but_for_the_bias_correction() -> None:
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(6), [1, 2, 3, 5, 8, 13])
    y = rng.normal(0, 1, 6)[group] + rng.normal(0, 1, 32)
    w = np.bincount(group) / 32
    correction = (w**2).sum() / ((w**2).sum() - 2 * (w**3).sum() + (w**2).sum() ** 2)
    plain = ols_clustered(y, group, use_correction=False)
    found = clustered_mean(y, [group])
    assert found.se[0] == pytest.approx(plain * np.sqrt(correction), rel=1e-9)
    assert found.df[0] < 5, "unequal clusters are worth fewer than their number"


@pytest.mark.parametrize("sizes", [(98, 1, 1), (1000, 1), (1000, 1, 1, 1, 1)])
def test_clusters_that_are_worth_no_second_one_give_neither_interval_nor_p(sizes: tuple[int, ...]) -> None:
    group = np.repeat(np.arange(len(sizes)), sizes)
    y = np.random.default_rng(0).normal(1, 1, len(group))
    for factors in ([group], [group, np.arange(len(group)) % 2]):
        found = clustered_mean(y, factors)
        assert found.value[0] == pytest.approx(y.mean())
        unknown = (*found.interval(0.95), found.p_two_sided(), found.p_above(0.0), found.p_below(0.0))
        assert np.isnan(unknown).all(), unknown
    assert clustered_mean(np.ones(len(group)), [group]).se[0] == 0, "what does not vary has no such error"


def test_variance_of_unequal_clusters_is_unbiased_under_random_effects() -> None:
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(6), [1, 2, 3, 5, 8, 13])
    w = np.bincount(group) / 32
    y = rng.normal(0, 1, (6, 20_000))[group]
    assert (clustered_mean(y, [group]).se ** 2).mean() == pytest.approx((w**2).sum(), rel=0.03)


def test_two_way_is_the_anova_estimate_in_a_balanced_design() -> None:
    rng = np.random.default_rng(4)
    a, b = grid(8, 5)
    y = rng.normal(0, 1, 8)[a] + rng.normal(0, 1, 5)[b] + rng.normal(0, 0.5, 40)
    table = y.reshape(8, 5)
    rows, columns, mean = table.mean(axis=1), table.mean(axis=0), table.mean()
    ms_a = 5 * ((rows - mean) ** 2).sum() / 7
    ms_b = 8 * ((columns - mean) ** 2).sum() / 4
    ms_e = ((table - rows[:, None] - columns + mean) ** 2).sum() / 28
    variance = (ms_a + ms_b - ms_e) / 40
    df = (40 * variance) ** 2 / (ms_a**2 / 7 + ms_b**2 / 4 + ms_e**2 / 28)
    found = clustered_mean(y, [a, b])
    assert found.se[0] ** 2 == pytest.approx(variance)
    assert found.df[0] == pytest.approx(df)
    assert (found.n_items, found.n_clusters) == (40, 5)


def test_two_way_agrees_with_statsmodels_where_clusters_are_many() -> None:
    rng = np.random.default_rng(5)
    a, b = grid(200, 150)
    y = rng.normal(0, 1, 200)[a] + rng.normal(0, 1, 150)[b] + rng.normal(0, 1, 30_000)
    assert clustered_mean(y, [a, b]).se[0] == pytest.approx(ols_clustered(y, np.column_stack([a, b])), rel=0.01)


def test_two_way_with_holes_stays_unbiased() -> None:
    rng = np.random.default_rng(6)
    a, b = grid(20, 10)
    kept = rng.random(200) > 0.3
    a, b = a[kept], b[kept]
    reps = 4000
    y = rng.normal(0, 1, (20, reps))[a] + rng.normal(0, 0.5, (10, reps))[b] + rng.normal(0, 1, (len(a), reps))
    found = clustered_mean(y, [a, b])
    assert (found.se**2).mean() == pytest.approx(found.value.var(), rel=0.08)


def test_three_crossed_factors() -> None:
    rng = np.random.default_rng(7)
    a, b, c = (axis.ravel() for axis in np.indices((12, 6, 5)))
    reps = 4000
    y = sum(rng.normal(0, s, (n, reps))[code] for s, n, code in ((1, 12, a), (0.5, 6, b), (0.5, 5, c)))
    y = y + rng.normal(0, 1, (len(a), reps))
    low, high = clustered_mean(y, [a, b, c]).interval(0.95)
    assert 0.93 <= ((low <= 0) & (high >= 0)).mean() <= 0.97


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.04, 0.1])
@pytest.mark.parametrize("templates", [3, 4])
def test_few_templates_have_intervals_that_cover(templates: int, spread: float) -> None:
    rng = np.random.default_rng(8)
    a, b = grid(40, templates)
    reps = 4000
    y = rng.normal(0, 0.05, (40, reps))[a] + rng.normal(0, spread, (templates, reps))[b]
    low, high = clustered_mean(y + rng.normal(0, 0.05, (len(a), reps)), [a, b]).interval(0.95)
    assert 0.935 <= ((low <= 0) & (high >= 0)).mean() <= 0.97


def test_with_few_templates_the_quantile_is_the_weighted_mean_of_the_factors_own() -> None:
    rng = np.random.default_rng(9)
    a, b = grid(8, 3)
    y = rng.normal(0, 1, 8)[a] + rng.normal(0, 1, 3)[b] + rng.normal(0, 0.2, 24)
    table = y.reshape(8, 3)
    of_a, of_b = (means.var(ddof=1) / len(means) for means in (table.mean(axis=1), table.mean(axis=0)))
    expected = (of_a * stats.t.ppf(0.975, 7) + of_b * stats.t.ppf(0.975, 2)) / (of_a + of_b)
    found = clustered_mean(y, [a, b])
    low, high = found.interval(0.95)
    assert (high - low)[0] / 2 / found.se[0] == pytest.approx(expected)


def test_a_factor_with_one_level_or_nested_levels_is_left_out() -> None:
    occupation = np.repeat(np.arange(10), 6)
    template = np.tile(np.arange(6), 10)
    y = np.random.default_rng(8).normal(size=60)
    by_occupation = clustered_mean(y, [occupation])
    one_level = clustered_mean(y, [occupation, np.zeros(60, dtype=int)])
    each_item = clustered_mean(y, [np.arange(60), occupation])
    assert one_level.se[0] == each_item.se[0] == by_occupation.se[0]
    assert [len(np.unique(f)) for f in crossed_factors([occupation * 6 + template, occupation, template])] == [6, 10]


def test_fewer_than_two_clusters_give_no_interval() -> None:
    for y, clusters in ((np.array([0.2, 0.4]), [np.array([3, 3])]), (np.array([0.2]), [])):
        found = clustered_mean(y, clusters)
        low, high = found.interval(0.95)
        assert np.isnan([low[0], high[0], found.p_two_sided()[0]]).all()
        assert found.n_clusters == 1
        assert found.value[0] == y.mean()


def test_constant_values_are_certain() -> None:
    a, b = grid(4, 3)
    found = clustered_mean(np.full(12, 0.1), [a, b])
    low, high = found.interval(0.95)
    assert low[0] == high[0] == pytest.approx(0.1)
    assert found.p_two_sided(0.0)[0] == 0
    assert clustered_mean(np.zeros(12), [a, b]).p_two_sided(0.0)[0] == 1


def counted_mean(values: np.ndarray, *clusters: np.ndarray, least: float = 0.0, most: float = 1.0) -> Estimate:
    return allow_for_few_outcomes(clustered_mean(values, clusters), values, clusters, least, most)


def outcomes(ones: int, n: int) -> np.ndarray:
    return np.repeat([1.0, 0.0], [ones, n - ones])


@pytest.mark.parametrize("ones", [0, 1, 4, 10, 16, 24, 30, 36, 40])
def test_few_outcomes_reach_as_far_as_wilsons_interval(ones: int) -> None:
    found = counted_mean(outcomes(ones, 40))
    # statsmodels asks for a normal quantile: the level whose normal quantile is Student's.
    wilson = proportion_confint(ones, 40, alpha=2 * stats.norm.sf(stats.t.ppf(0.975, 39)), method="wilson")
    low, high = (float(end[0]) for end in found.interval(0.95))
    assert max(ones / 40 - low, high - ones / 40) == pytest.approx(max(ones / 40 - wilson[0], wilson[1] - ones / 40))


@given(st.integers(3, 300), st.data())
def test_one_outcome_more_never_lowers_the_upper_end(n: int, data: st.DataObject) -> None:
    ones = data.draw(st.integers(0, n // 2))
    fewer, more = (float(counted_mean(outcomes(k, n)).interval(0.95)[1][0]) for k in (ones, ones + 1))
    assert more > fewer


def test_one_outcome_in_a_crossed_design_is_no_surer_than_none() -> None:
    rows, columns = grid(40, 25)
    ends = [float(counted_mean(outcomes(k, 1000), rows, columns).interval(0.95)[1][0]) for k in (0, 1, 2)]
    assert ends == sorted(ends)
    repeated = np.repeat(np.arange(40), 25)  # 25 answers to one question: none of 1,000 is none of 40
    one_way, alone = counted_mean(np.zeros(1000), repeated), counted_mean(np.zeros(40))
    assert one_way.interval(0.95)[1] == pytest.approx(alone.interval(0.95)[1])


@pytest.mark.parametrize(("n", "share"), [(30, 0.5), (40, 0.08), (100, 0.03), (200, 0.005), (200, 0.02), (60, 0.9)])
def test_intervals_of_shares_cover_however_rare_the_outcome(n: int, share: float) -> None:
    covered = 0.0
    for ones in range(n + 1):  # every sample there can be
        low, high = (float(end[0]) for end in counted_mean(outcomes(ones, n)).interval(0.95))
        covered += float(stats.binom.pmf(ones, n, share)) * (low <= share <= high)
    assert covered > 0.945


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("n", [200, 400, 1000])
def test_a_difference_of_the_margin_is_rarely_called_smaller_however_few_items_differ(n: int, size: int) -> None:
    margin, wrong = 0.02, 0.0
    for differing in range(n // 4):  # every sample there can be, but for those that nobody meets
        found = counted_mean(size * outcomes(differing, n), least=-size, most=size)
        inside = max(found.p_below(margin)[0], found.p_above(-margin)[0]) < 0.05
        wrong += float(stats.binom.pmf(differing, n, margin / size)) * inside
    assert wrong < 0.05


def test_an_estimate_is_never_surer_than_one_way() -> None:
    a, b = grid(5, 4)
    y = np.random.default_rng(9).normal(size=(20, 500))
    both, one, other = (clustered_mean(y, c) for c in ([a, b], [a], [b]))
    assert (both.se >= np.maximum(one.se, other.se) - 1e-12).all()


@given(
    values=st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=30),
    data=st.data(),
)
def test_columns_order_and_level_names_do_not_matter(values: list[float], data: st.DataObject) -> None:
    n = len(values)
    y = np.array(values)
    codes = [np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))) for _ in range(2)]
    order = np.array(data.draw(st.permutations(range(n))))
    found = clustered_mean(y, codes)
    moved = clustered_mean(np.column_stack([y[order], 2 * y[order] + 1]), [7 - c[order] for c in codes])
    assert moved.value[0] == pytest.approx(found.value[0], abs=1e-9)
    assert moved.se[0] == pytest.approx(found.se[0], rel=1e-6, abs=1e-7, nan_ok=True)
    assert moved.se[1] == pytest.approx(2 * found.se[0], rel=1e-6, abs=1e-7, nan_ok=True)


def test_correlation_is_scipys_and_leaves_out_one_at_a_time() -> None:
    rng = np.random.default_rng(10)
    x, y = rng.normal(size=15), rng.normal(size=15)
    assert correlation(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    expected = [stats.pearsonr(np.delete(x, i), np.delete(y, i)).statistic for i in range(15)]
    assert leave_one_out_correlations(x, y) == pytest.approx(np.array(expected))
    assert np.isnan(correlation(np.ones(5), rng.normal(size=5)))


def test_jackknife_of_z_by_hand() -> None:
    rng = np.random.default_rng(11)
    x = rng.normal(size=10)
    y = x + rng.normal(size=10)
    z = [np.arctanh(stats.pearsonr(np.delete(x, i), np.delete(y, i)).statistic) for i in range(10)]
    se = np.sqrt(9 / 10 * sum((v - np.mean(z)) ** 2 for v in z))
    middle = np.arctanh(stats.pearsonr(x, y).statistic)
    half = stats.t.ppf(0.975, 9) * se
    assert correlation_interval(x, y, 0.95) == pytest.approx((np.tanh(middle - half), np.tanh(middle + half)))
    assert np.isnan(correlation_interval(x[:3], y[:3], 0.95)).all()


@pytest.mark.parametrize("seed", range(6))
def test_extreme_correlations_hold_for_every_x_in_the_box_and_are_reached(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=8)
    low = rng.uniform(0, 1, 8)
    high = low + rng.uniform(0, 0.5, 8) * (rng.random(8) > 0.3)
    least, at_least = extreme_correlation(low, high, y, -1)
    most, at_most = extreme_correlation(low, high, y, 1)
    tried = rng.uniform(low, high, (100_000, 8))
    corners = np.where(rng.random((100_000, 8)) > 0.5, low, high)
    for x in (tried, corners):
        centred = x - x.mean(axis=1, keepdims=True)
        r = centred @ (y - y.mean()) / np.linalg.norm(centred, axis=1) / np.linalg.norm(y - y.mean())
        assert least - 1e-9 <= r.min()
        assert r.max() <= most + 1e-9
    for bound, at, sign in ((least, at_least, -1), (most, at_most, 1)):
        assert (low - 1e-12 <= at).all()
        assert (at <= high + 1e-12).all()
        if sign * bound > 0:
            assert correlation(at, y) == pytest.approx(bound)


def test_what_does_not_vary_without_one_cluster_has_no_correlation_and_so_no_interval() -> None:
    rng = np.random.default_rng(19)
    for _ in range(100):
        x, y = np.full(20, rng.uniform()), rng.uniform(size=20)
        one = rng.integers(20)
        x[one] = rng.uniform()
        for found in (leave_one_out_correlations(x, y), leave_one_out_correlations(y, x)):
            assert np.flatnonzero(np.isnan(found)).tolist() == [one]
        assert np.isnan(correlation_interval(x, y, 0.95)).all()
        assert np.isnan(correlation_interval(y, x, 0.95)).all()


@pytest.mark.parametrize("left", [1e-2, 1e-5, 1e-8, 1e-11])
def test_what_is_left_without_a_far_cluster_is_computed_as_exactly_as_by_itself(left: float) -> None:
    rng = np.random.default_rng(20)
    x, y = left * rng.normal(size=20), rng.normal(size=20)
    x[7] = 1.0
    expected = [correlation(np.delete(x, i), np.delete(y, i)) for i in range(20)]
    assert leave_one_out_correlations(x, y) == pytest.approx(np.array(expected), abs=1e-8)


#: Values of few levels: ties, constants and perfect fits are common among them. A fit that misses by 1e-12 is not:
#: whether that is perfect, rounding decides.
COARSE = st.sampled_from([0.0, 0.1, 0.3, 0.55, 0.7, 1.0])


@given(points=st.lists(st.tuples(COARSE, COARSE), min_size=4, max_size=12), data=st.data())
def test_the_order_of_clusters_never_decides_whether_there_is_an_interval(
    points: list[tuple[float, float]], data: st.DataObject
) -> None:
    x, y = np.array(points).T
    order = np.array(data.draw(st.permutations(range(len(x)))))
    for a, b in ((x, y), (y, x)):
        expected = correlation_interval(a, b, 0.95)
        assert correlation_interval(a[order], b[order], 0.95) == pytest.approx(expected, abs=1e-6, nan_ok=True)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), exponent=st.floats(-9, 9))
def test_extreme_correlations_do_not_depend_on_the_covariates_scale(seed: int, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=12)
    low = rng.uniform(0, 1, 12)
    high = low + rng.uniform(0, 0.5, 12)
    for sign in (-1, 1):
        expected, _ = extreme_correlation(low, high, y, sign)
        assert extreme_correlation(low, high, 10**exponent * y, sign)[0] == pytest.approx(expected, abs=1e-7)


def test_a_covariate_that_does_not_vary_has_no_extreme_correlation() -> None:
    assert np.isnan(extreme_correlation(np.zeros(5), np.ones(5), np.full(5, 0.1), 1)[0])


def slopes(
    rng: np.random.Generator, share: np.ndarray, templates: int, spread: float, noise: float = 0.1
) -> np.ndarray:
    """Occupations × templates that follow the share of women, each template by a slope of its own."""
    slope = 0.15 + spread * rng.normal(size=templates)
    of_occupation = rng.normal(0, 0.08, (len(share), 1))
    return 0.4 + (share[:, None] - 0.5) * slope + of_occupation + rng.normal(0, noise, (len(share), templates))


def one_cells_part(table: np.ndarray, share: np.ndarray, of_means: object, step: float = 1e-6) -> np.ndarray:
    """What each cell adds to a function of the occupations' means, the templates' effects removed by least squares."""
    means = table.mean(axis=1)
    derivative = np.array(
        [(of_means(means + up) - of_means(means - up)) / (2 * step) for up in step * np.eye(len(means))]  # type: ignore[operator]
    )
    design = np.column_stack([np.ones(len(share)), share, means])
    apart = table - means[:, None]
    apart = apart - design @ np.linalg.lstsq(design, apart, rcond=None)[0]
    return np.asarray(derivative[:, None] * apart / table.shape[1])


def test_a_correlation_leaves_out_occupations_and_templates_by_hand() -> None:
    rng = np.random.default_rng(21)
    share = rng.uniform(size=20)
    a, b = slopes(rng, share, 6, 0.2), slopes(rng, share, 6, 0.2)

    def r(means: np.ndarray, kept: np.ndarray | slice = slice(None)) -> float:
        return float(stats.pearsonr(means[kept], share[kept]).statistic)

    def expected(figure: object, cells: np.ndarray) -> tuple[float, float, float]:
        others = lambda n: (np.arange(n) != i for i in range(n))  # noqa: E731
        of_rows = [figure(a.mean(axis=1), b.mean(axis=1), kept) for kept in others(20)]  # type: ignore[operator]
        of_columns = [figure(a[:, kept].mean(axis=1), b[:, kept].mean(axis=1)) for kept in others(6)]  # type: ignore[operator]
        v_rows, v_columns = 19 * np.var(of_rows), 5 * np.var(of_columns)
        v_cells = 120 / 85 * (cells**2).sum()
        assert v_columns > 1.5 * v_cells, "the templates show"
        v = v_rows + v_columns - v_cells
        df = v**2 / (v_rows**2 / 19 + v_columns**2 / 5 + v_cells**2 / 85)
        return figure(a.mean(axis=1), b.mean(axis=1)), np.sqrt(v), df  # type: ignore[operator]

    design = list(grid(20, 6))
    found = correlations(np.column_stack([a.ravel(), b.ravel()]), share, design)
    z, se, df = expected(
        lambda m, _, kept=slice(None): np.arctanh(r(m, kept)), one_cells_part(a, share, lambda m: np.arctanh(r(m)))
    )
    of_z = found.on_fishers_z()
    assert (of_z.value[0], of_z.se[0], of_z.df[0]) == pytest.approx((z, se, df), rel=1e-6)
    half = stats.t.ppf(0.95, df) * se
    interval = correlation_interval(a.ravel(), share, 0.9, design)
    assert interval == pytest.approx((np.tanh(z - half), np.tanh(z + half)), rel=1e-6)
    difference = expected(
        lambda of_a, of_b, kept=slice(None): r(of_b, kept) - r(of_a, kept),
        one_cells_part(b, share, r) - one_cells_part(a, share, r),
    )
    gap = found.differences([(0, 1)])
    assert (gap.value[0], gap.se[0], gap.df[0]) == pytest.approx(difference, rel=1e-6)


def test_a_factor_that_says_nothing_beside_the_occupations_changes_no_correlation() -> None:
    rng = np.random.default_rng(22)
    share = rng.uniform(size=12)
    occupation, template = grid(12, 4)
    x = slopes(rng, share, 4, 0.2).ravel()
    alone = correlation_interval(x, share, 0.95, [occupation])
    assert alone == correlation_interval(x.reshape(12, 4).mean(axis=1), share, 0.95)
    for nothing in (np.zeros(48, dtype=int), np.arange(48), occupation, 11 - occupation):
        assert correlation_interval(x, share, 0.95, [occupation, nothing]) == alone
    both = correlation_interval(x, share, 0.95, [occupation, template])
    assert both[0] < alone[0] < alone[1] < both[1]
    assert correlation_interval(x, share, 0.95, [occupation, template, np.arange(48)]) == both


def test_occupations_within_sectors_are_left_out_by_sector() -> None:
    rng = np.random.default_rng(23)
    share = rng.uniform(size=24)
    occupation, template = grid(24, 3)
    x = slopes(rng, share, 3, 0.0).ravel()
    sector = occupation // 3
    z = [
        np.arctanh(stats.pearsonr(x.reshape(24, 3).mean(axis=1)[kept], share[kept]).statistic)
        for kept in (np.arange(24) // 3 != i for i in range(8))
    ]
    found = correlations(x[:, None], share, [occupation, sector]).on_fishers_z()
    least = correlations(x[:, None], share, [occupation]).on_fishers_z().se[0]
    assert found.se[0] == pytest.approx(max(np.sqrt(7 * np.var(z)), least))
    assert found.df[0] == pytest.approx(7)
    assert np.isfinite(correlation_interval(x, share, 0.95, [occupation, sector, template])).all()


@given(seed=st.integers(0, 10_000), occupations=st.integers(4, 12), templates=st.integers(2, 5))
def test_a_correlation_is_never_surer_for_its_templates(seed: int, occupations: int, templates: int) -> None:
    rng = np.random.default_rng(seed)
    share = rng.uniform(size=occupations)
    design = grid(occupations, templates)
    x = np.column_stack([slopes(rng, share, templates, 0.1).ravel() for _ in range(2)])
    both, alone = (correlations(x, share, clusters) for clusters in (design, design[:1]))
    assert (both.on_fishers_z().se >= alone.on_fishers_z().se).all()
    assert (both.differences([(0, 1)]).se >= alone.differences([(0, 1)]).se).all()


@given(seed=st.integers(0, 10_000), data=st.data())
def test_the_order_of_items_and_the_names_of_levels_never_change_a_correlations_interval(
    seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    occupation, template = grid(6, 3)
    share = rng.integers(0, 4, 6) / 4
    x = np.array(data.draw(st.lists(COARSE, min_size=18, max_size=18)))
    kept = (rng.random(18) > 0.2) | (template == 0)  # holes, but no occupation without items
    order = rng.permutation(np.flatnonzero(kept))
    expected = correlation_interval(x[kept], share, 0.95, [occupation[kept], template[kept]])
    found = correlation_interval(x[order], share, 0.95, [occupation[order], 7 - template[order]])
    assert found == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_what_does_not_vary_without_one_template_has_no_interval() -> None:
    rng = np.random.default_rng(24)
    share = rng.uniform(size=10)
    design = grid(10, 4)
    for _ in range(20):
        x = np.full((10, 4), rng.uniform())
        x[:, 2] = rng.uniform(size=10)
        found = correlations(np.column_stack([x.ravel(), rng.uniform(size=40)]), share, design)
        assert np.isfinite(found.value).all()
        assert np.isnan(found.on_fishers_z().se[0])
        assert np.isnan(found.differences([(0, 1)]).p_two_sided()[0])


def test_values_that_differ_by_rounding_alone_have_no_correlation() -> None:
    rng = np.random.default_rng(18)
    y = rng.beta(0.5, 0.5, 40)
    x = np.array([np.full(n, 0.45 / 0.9).mean() * (1 + 2**-52 * (n % 3)) for n in range(1, 41)])
    assert np.ptp(x) > 0
    assert np.isnan(correlation(x, y))
    assert np.isnan(correlation(y, x))
    assert np.isnan(correlation_interval(x, y, 0.95)).all()
    assert np.isfinite(correlation(1e-6 * rng.normal(size=40), y)), "small, but no rounding"


# ------------------------------------------------------------------------------ coverage

DESIGNS = [(20, 7), (40, 10), (40, 25), (300, 5)]
#: Standard deviations of occupations, templates and single items.
SPREADS = [(1.0, 1.0, 1.0), (1.0, 0.3, 1.0), (0.3, 1.0, 1.0), (1.0, 0.1, 0.3), (1.0, 0.5, 0.5), (0.3, 0.3, 1.0)]
#: Clusters that hardly differ, or not at all: an interval that still guards against them is too long.
WEAK_SPREADS = [(0.0, 0.0, 1.0), (0.15, 0.0, 1.0), (0.0, 0.15, 1.0), (0.2, 0.1, 1.0), (0.1, 0.2, 1.0)]


@pytest.mark.simulation
@pytest.mark.parametrize(("occupations", "templates"), DESIGNS)
@pytest.mark.parametrize("spread", SPREADS)
def test_two_way_intervals_cover_what_they_say(
    occupations: int, templates: int, spread: tuple[float, float, float]
) -> None:
    rng = np.random.default_rng(12)
    a, b = grid(occupations, templates)
    reps = 4000  # standard error of a coverage near 95 %: 0.35 %
    of_a, of_b, of_item = spread
    y = rng.normal(0, of_a, (occupations, reps))[a] + rng.normal(0, of_b, (templates, reps))[b]
    y += rng.normal(0, of_item, y.shape)
    low, high = clustered_mean(y, [a, b]).interval(0.95)
    assert 0.93 <= ((low <= 0) & (high >= 0)).mean() <= 0.97
    naive_low, naive_high = clustered_mean(y, []).interval(0.95)
    assert ((naive_low <= 0) & (naive_high >= 0)).mean() < 0.8


@pytest.mark.simulation
@pytest.mark.parametrize(("occupations", "templates"), [*DESIGNS, (40, 5)])
@pytest.mark.parametrize("spread", WEAK_SPREADS)
def test_two_way_intervals_are_neither_too_long_nor_too_short_where_clusters_hardly_differ(
    occupations: int, templates: int, spread: tuple[float, float, float]
) -> None:
    rng = np.random.default_rng(17)
    a, b = grid(occupations, templates)
    reps = 4000
    luck = 3 * np.sqrt(0.03 * 0.97 / reps)  # what the simulation itself may be off by: 0.8 %
    of_a, of_b, of_item = spread
    y = rng.normal(0, of_a, (occupations, reps))[a] + rng.normal(0, of_b, (templates, reps))[b]
    low, high = clustered_mean(y + rng.normal(0, of_item, y.shape), [a, b]).interval(0.95)
    assert 0.93 - luck <= ((low <= 0) & (high >= 0)).mean() <= 0.97 + luck


@pytest.mark.simulation
@pytest.mark.parametrize(("occupations", "templates"), DESIGNS)
def test_two_way_intervals_cover_for_probabilities_with_skewed_effects(occupations: int, templates: int) -> None:
    rng = np.random.default_rng(13)
    a, b = grid(occupations, templates)
    reps = 2000

    def draw(n_a: int, n_b: int, codes: tuple[np.ndarray, np.ndarray], n: int) -> np.ndarray:
        logit = rng.normal(0, 1.5, (n_a, n))[codes[0]] + rng.normal(0, 0.7, (n_b, n))[codes[1]]
        return 1 / (1 + np.exp(-logit - rng.normal(0, 0.5, logit.shape)))

    truth = draw(1, 1, (np.zeros(1, int), np.zeros(1, int)), 4_000_000).mean()
    low, high = clustered_mean(draw(occupations, templates, (a, b), reps), [a, b]).interval(0.95)
    assert 0.93 <= ((low <= truth) & (high >= truth)).mean() <= 0.97


@pytest.mark.simulation
@pytest.mark.parametrize("clusters", [20, 40, 300])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_correlation_intervals_cover_what_they_say(clusters: int, rho: float) -> None:
    rng = np.random.default_rng(14)
    reps = 2500 if clusters < 300 else 1200
    hit = 0
    for _ in range(reps):
        x = rng.beta(0.5, 0.5, clusters)  # occupations at both ends, as shares of women are
        y = rho * (x - 0.5) / np.sqrt(1 / 8) + np.sqrt(1 - rho**2) * rng.normal(size=clusters)
        low, high = correlation_interval(y, x, 0.95)
        hit += low <= rho <= high
    assert 0.93 <= hit / reps <= 0.97


@pytest.mark.simulation
@pytest.mark.parametrize("templates", [3, 5, 25])
@pytest.mark.parametrize("spread", [0.0, 0.1, 0.2])
def test_correlation_intervals_cover_where_templates_follow_the_covariate_each_in_its_own_way(
    templates: int, spread: float
) -> None:
    rng = np.random.default_rng(25)
    reps = 1200
    luck = 3 * np.sqrt(0.05 * 0.95 / reps)  # 1.9 %
    # Over occupations without end, and templates of the mean slope with as much noise as these.
    rho = 0.15 * np.sqrt(1 / 12) / np.sqrt(0.15**2 / 12 + 0.08**2 + 0.1**2 / templates)
    hit = np.zeros(2)
    design = list(grid(40, templates))
    for _ in range(reps):
        share = rng.uniform(size=40)
        x = slopes(rng, share, templates, spread).ravel()
        for i, clusters in enumerate((design, design[:1])):
            low, high = correlation_interval(x, share, 0.95, clusters)
            hit[i] += low <= rho <= high
    assert 0.93 - luck <= hit[0] / reps <= 0.97 + luck
    if spread == 0.2:
        assert hit[1] / reps < 0.9, "occupations alone are too sure"


@pytest.mark.simulation
@pytest.mark.parametrize("templates", [3, 5, 25])
@pytest.mark.parametrize("spread", [0.0, 0.1, 0.2])
def test_two_correlations_that_are_alike_differ_no_more_often_than_said(templates: int, spread: float) -> None:
    rng = np.random.default_rng(26)
    reps = 1000
    wrong = 0
    for _ in range(reps):
        share = rng.uniform(size=40)
        x = np.column_stack([slopes(rng, share, templates, spread).ravel() for _ in range(2)])
        wrong += correlations(x, share, grid(40, templates)).differences([(0, 1)]).p_two_sided()[0] < 0.05
    assert wrong / reps <= 0.07 + 3 * np.sqrt(0.05 * 0.95 / reps)

"""Estimates and intervals against other tools, hand-computed designs and known truths."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from audit.analysis.estimators import (
    Estimate,
    clustered_mean,
    crossed_factors,
)
from audit.analysis.estimators.rare import allow_for_few_outcomes
from tests.audit.analysis.designs import grid


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


def test_unequal_one_way_clusters_match_statsmodels() -> None:
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
def test_one_dominant_cluster_counts_as_a_single_draw(sizes: tuple[int, ...]) -> None:
    group, rng = np.repeat(np.arange(len(sizes)), sizes), np.random.default_rng(0)
    y = rng.normal(0, 1, (len(sizes), 1000))[group] + rng.normal(0, 0.3, (len(group), 1000))
    for factors in ([group], [group, np.arange(len(group)) % 2]):
        low, high = clustered_mean(y, factors).interval(0.95)
        assert ((low <= 0) & (high >= 0)).mean() >= 0.94


def test_variance_of_unequal_clusters_is_unbiased() -> None:
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


def test_two_way_matches_statsmodels_with_many_clusters() -> None:
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


def test_cells_that_show_next_to_nothing_are_not_subtracted() -> None:
    """41 items of 20 × 25 levels leave one degree of freedom for the cells: intervals had the t of one."""
    occupation = np.append(np.repeat(np.arange(20), 2), 19)
    template = np.arange(41) % 25
    random = np.random.default_rng(0)
    effects = random.normal(0, 0.1, (20, 500))[occupation] + random.normal(0, 0.1, (25, 500))[template]
    found = clustered_mean(effects + random.normal(0, 0.1, (41, 500)), [occupation, template])
    low, high = found.interval(0.95)
    assert 0.95 < ((low <= 0) & (high >= 0)).mean() < 0.99
    assert np.quantile(high - low, 0.9) < 0.25


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


def test_few_templates_weight_the_factors_quantiles() -> None:
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


UNEQUAL = {
    "one of 40 holds 30 %": np.r_[334, np.full(39, 20)],
    "sizes as 1 / k": np.maximum(1, (200 / np.arange(1, 41) ** 1.2).astype(int)),
    "9 kinds of CrowS-Pairs": np.array([516, 262, 172, 159, 105, 87, 84, 63, 60]),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_unequal_clusters_have_an_interval_that_holds(name: str) -> None:
    sizes, rng = UNEQUAL[name], np.random.default_rng(5)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    values = 0.5 + rng.normal(0, 0.1, (len(sizes), 1000))[codes] + rng.normal(0, 0.1, (len(codes), 1000))
    found = clustered_mean(values, [codes])
    low, high = found.interval(0.95)
    assert ((low <= 0.5) & (high >= 0.5)).mean() >= 0.95
    assert np.median(high - low) < 3 * 2 * 1.96 * found.value.std()
    weight = sizes / sizes.sum()
    away = np.eye(len(sizes)) - weight
    form = away.T @ np.diag(weight**2) @ away
    assert found.df[0] == pytest.approx(np.trace(form) ** 2 / np.trace(form @ form))


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
def test_difference_of_the_margin_is_rarely_called_smaller(n: int, size: int) -> None:
    margin, wrong = 0.02, 0.0
    for differing in range(n // 4):  # every sample there can be, but for those that hardly occur
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
def test_two_way_intervals_cover_where_clusters_hardly_differ(
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
def test_two_way_intervals_cover_skewed_probabilities(occupations: int, templates: int) -> None:
    rng = np.random.default_rng(13)
    a, b = grid(occupations, templates)
    reps = 2000

    def draw(n_a: int, n_b: int, codes: tuple[np.ndarray, np.ndarray], n: int) -> np.ndarray:
        logit = rng.normal(0, 1.5, (n_a, n))[codes[0]] + rng.normal(0, 0.7, (n_b, n))[codes[1]]
        return 1 / (1 + np.exp(-logit - rng.normal(0, 0.5, logit.shape)))

    truth = draw(1, 1, (np.zeros(1, int), np.zeros(1, int)), 4_000_000).mean()
    low, high = clustered_mean(draw(occupations, templates, (a, b), reps), [a, b]).interval(0.95)
    assert 0.93 <= ((low <= truth) & (high >= truth)).mean() <= 0.97

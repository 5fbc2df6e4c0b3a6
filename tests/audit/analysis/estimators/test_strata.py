"""Means over fixed strata: the ideal width, Welch by hand, OLS and mixed models of statsmodels, a bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.regression.mixed_linear_model import VCSpec

from audit.analysis.estimators import Strata, clustered_mean
from audit.analysis.estimators.rare import allow_for_few_outcomes
from tests.simulations.gap_width import SPREADS, width

HALVES = np.array([0.5, 0.5])


def crossed(rng: np.random.Generator, sizes: tuple[int, int], templates: int, reps: int = 1):
    """Signed gaps of female- and male-dominated occupations: group means +0.40 and -0.15, as of a real model."""
    group = np.repeat([0, 1], sizes)
    occupation = np.repeat(np.arange(sum(sizes)), templates)
    template = np.tile(np.arange(templates), sum(sizes))
    of_item = group[occupation]
    lean = rng.normal(0, 0.06, (templates, reps))  # a template's lean to one gender shifts the groups opposite ways
    y = np.array([0.40, -0.15])[of_item][:, None] + rng.normal(0, 0.1, (sum(sizes), reps))[occupation]
    y += np.where(of_item == 0, 1, -1)[:, None] * lean[template] + rng.normal(0, 0.05, (templates, reps))[template]
    return y + rng.normal(0, 0.1, y.shape), occupation, template, Strata(of_item, HALVES)


def test_two_groups_of_items_are_welchs_t_test() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.4, 0.1, 8), rng.normal(0.15, 0.3, 20)
    strata = Strata(np.repeat([0, 1], [8, 20]), HALVES)
    found = clustered_mean(np.concatenate([a, -b]), [], strata)
    expected = stats.ttest_ind(a, b, equal_var=False)
    assert found.value[0] == pytest.approx((a.mean() - b.mean()) / 2)
    assert found.p_two_sided()[0] >= expected.pvalue  # Welch's are too small beyond 95 %
    low, high = found.interval(0.95)
    assert found.p_two_sided(low[0])[0] == pytest.approx(0.05)
    lower, upper = found.interval(0.8)
    assert (2 * lower[0], 2 * upper[0]) == pytest.approx(tuple(expected.confidence_interval(0.8)))
    assert (2 * low[0], 2 * high[0]) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_strata_of_one_way_clusters_match_ols_with_group_effects() -> None:
    rng = np.random.default_rng(1)
    y, occupation, _, strata = crossed(rng, (20, 20), 5)
    dummies = (strata.codes[:, None] == [0, 1]).astype(float)
    fit = sm.OLS(y[:, 0], dummies).fit(
        cov_type="cluster", cov_kwds={"groups": occupation, "use_correction": False, "df_correction": False}
    )
    variance = HALVES @ fit.cov_params() @ HALVES * 20 / 19  # each group has 20 clusters
    assert clustered_mean(y, [occupation], strata).se[0] ** 2 == pytest.approx(variance)


def test_crossed_strata_match_the_mixed_model_of_statsmodels() -> None:
    y, occupation, template, strata = crossed(np.random.default_rng(2), (20, 20), 25)
    sign = np.where(strata.codes == 0, 1.0, -1.0)
    exog = (strata.codes[:, None] == [0, 1]).astype(float)
    columns = {
        "occupation": (occupation[:, None] == np.arange(40)).astype(float),
        "template": (template[:, None] == np.arange(25)).astype(float),
        "lean": (template[:, None] == np.arange(25)) * sign[:, None],
    }
    names = [[[f"{name}{i}" for i in range(matrix.shape[1])]] for name, matrix in columns.items()]
    components = VCSpec([*columns], names, [[matrix] for matrix in columns.values()])
    fit = sm.MixedLM(y[:, 0], exog, groups=np.ones(len(y)), exog_vc=components).fit()
    expected = float(np.sqrt(HALVES @ fit.cov_params()[:2, :2] @ HALVES))
    found = clustered_mean(y, [occupation, template], strata)
    assert found.value[0] == pytest.approx(float(HALVES @ fit.fe_params))
    assert found.se[0] == pytest.approx(expected, rel=0.1)


def test_crossed_strata_match_a_stratified_bootstrap() -> None:
    rng = np.random.default_rng(3)
    y, occupation, template, strata = crossed(rng, (20, 20), 25)
    table = y[:, 0].reshape(40, 25)
    draws = []
    for _ in range(2000):
        columns = rng.integers(0, 25, 25)
        rows = np.concatenate([rng.integers(0, 20, 20), rng.integers(20, 40, 20)])
        draws.append(table[np.ix_(rows, columns)].mean())
    # Resampling both factors counts the cells' part three times (Owen 2007), and levels less one.
    assert clustered_mean(y, [occupation, template], strata).se[0] == pytest.approx(np.std(draws), rel=0.1)


def test_fixed_groups_are_no_part_of_the_error() -> None:
    rng = np.random.default_rng(4)
    y, occupation, template, strata = crossed(rng, (20, 20), 25, reps=400)
    found = clustered_mean(y, [occupation, template], strata)
    width = np.ptp(found.interval(0.95), axis=0)
    ideal = 2 * 1.96 * np.sqrt(0.1**2 / 40 + 0.05**2 / 25 + 0.1**2 / 1000)
    assert width.mean() < 1.1 * ideal
    one_sample = clustered_mean(y, [occupation, template])
    assert (np.ptp(one_sample.interval(0.95), axis=0) / width).mean() > 2


@pytest.mark.parametrize(("sizes", "most"), [((20, 20), 1.1), ((8, 20), 1.3)])
def test_a_gap_is_little_wider_than_the_narrowest(sizes: tuple[int, int], most: float) -> None:
    """With all that a figure's interval has room for."""
    for spread in SPREADS:
        found = width(sizes, spread, 400)
        assert found.of_student <= most
        assert found.holds >= 0.93


@pytest.mark.parametrize("sizes", [(20, 20), (8, 20), (3, 20)])
def test_intervals_of_strata_cover_at_any_group_sizes(sizes: tuple[int, int]) -> None:
    y, occupation, template, strata = crossed(np.random.default_rng(5), sizes, 7, reps=4000)
    low, high = clustered_mean(y, [occupation, template], strata).interval(0.95)
    truth = 0.5 * 0.40 - 0.5 * 0.15
    assert 0.935 <= ((low <= truth) & (truth <= high)).mean() <= 0.975


def test_unequal_groups_count_by_their_weights_not_their_sizes() -> None:
    strata = Strata(np.repeat([0, 1], [8, 20]), HALVES)
    always_he = np.where(strata.codes == 0, -1.0, 1.0)
    found = clustered_mean(always_he, [np.arange(28)], strata)
    assert (found.value[0], found.se[0]) == (0, 0)
    allowed = allow_for_few_outcomes(found, always_he, [np.arange(28)], -1.0, 1.0, strata)
    low, high = (float(end[0]) for end in allowed.interval(0.95))
    assert low < -0.1
    assert high > 0.1


def test_a_stratum_with_one_cluster_has_no_interval() -> None:
    strata = Strata(np.repeat([0, 1], [5, 20]), HALVES)
    found = clustered_mean(np.random.default_rng(6).normal(size=25), [np.repeat(np.arange(5), 5)], strata)
    assert np.isnan(found.interval(0.95)).all()


def test_one_stratum_is_the_plain_mean() -> None:
    rng = np.random.default_rng(7)
    y, occupation, template, _ = crossed(rng, (6, 9), 5)
    plain = clustered_mean(y, [occupation, template])
    found = clustered_mean(y, [occupation, template], Strata.one(len(y)))
    assert (found.value, found.se, found.df) == (plain.value, plain.se, plain.df)

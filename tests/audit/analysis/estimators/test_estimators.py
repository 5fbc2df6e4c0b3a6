"""Each method against another route: statsmodels, scipy, and formulas of its reference."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy import special, stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW, ttost_paired

from audit.analysis.decisions import corrected
from audit.analysis.estimators.correlations import Correlated, correlation, correlation_difference
from audit.analysis.estimators.design import Design
from audit.analysis.estimators.estimate import Between, Estimate, Student, Wider
from audit.analysis.estimators.means import clustered_mean, sources
from audit.analysis.estimators.probabilities import mean_probability
from audit.analysis.estimators.shares import ShareDifference, mean_share, share_difference
from suites.base import RUN
from tests.simulations import textbook

RNG = np.random.default_rng


def crossed(n: int, m: int) -> Design:
    return Design(n * m, {"occupation": np.repeat(np.arange(n), m), "template": np.tile(np.arange(m), n)})


def table(rng: np.random.Generator, n: int, m: int, sd: tuple[float, ...] = (1.0, 0.5, 0.7)) -> np.ndarray:
    a, b, c = (rng.normal(0, s, shape) for s, shape in zip(sd, ((n, 1), (1, m), (n, m)), strict=True))
    return a + b + c


def student(estimate: Estimate) -> Student:
    assert isinstance(estimate, Student)
    return estimate


def test_crossed_mean_is_statsmodels_analysis_of_variance() -> None:
    n, m = 20, 8
    y = table(RNG(1), n, m)
    design = crossed(n, m)
    frame = pd.DataFrame({"y": y.ravel(), **design.clusters})
    squares = sm.stats.anova_lm(smf.ols("y ~ C(occupation) + C(template)", frame).fit())["mean_sq"].to_numpy()
    variance = (squares[0] + squares[1] - squares[2]) / (n * m)
    free = n - 1, m - 1, (n - 1) * (m - 1)
    uncertain = sum(square**2 / df for square, df in zip(squares, free, strict=True)) / (n * m) ** 2
    found = student(clustered_mean(y.ravel(), design))
    assert found.value == pytest.approx(y.mean())
    assert found.se**2 == pytest.approx(variance)
    assert found.df == pytest.approx(variance**2 / uncertain)


def test_one_factor_of_unequal_clusters_is_near_statsmodels_sandwich() -> None:
    rng = RNG(2)
    codes = np.repeat(np.arange(30), rng.integers(3, 9, 30))
    y = rng.normal(size=30)[codes] + rng.normal(size=len(codes))
    fitted = sm.OLS(y, np.ones(len(y))).fit(cov_type="cluster", cov_kwds={"groups": codes})
    found = student(clustered_mean(y, Design(len(y), {"occupation": codes})))
    assert found.se == pytest.approx(fitted.bse[0], rel=0.02)  # its correction is that of equal clusters
    assert 20 < found.df < 29


def test_incomplete_crossing_leaves_no_additive_effect_in_the_cells() -> None:
    rng, design = RNG(3), crossed(12, 9)
    kept = np.sort(rng.choice(108, 80, replace=False))
    some = Design(80, {name: codes[kept] for name, codes in design.clusters.items()})
    y = table(rng, 12, 9, (2.0, 1.0, 0.0)).ravel()[kept]
    found = sources(y, some)
    assert found is not None
    assert found.cells.df == pytest.approx(80 - 12 - 9 + 1)
    assert found.cells.variance < 1e-12 * sum(of.variance for of in found.factors.values())


def test_a_sparse_crossing_is_statsmodels_two_way_sandwich_with_the_degrees_of_freedom_of_the_fewer_levels() -> None:
    n, rng = 24, RNG(13)
    first = np.arange(n) // 2
    codes = {"sector": first, "wording": (first + np.arange(n) % 2) % 12}  # 24 of 144 combinations
    y = sum(rng.normal(size=12)[of] for of in codes.values()) + rng.normal(size=n)
    groups = np.column_stack([*codes.values()])
    fitted = sm.OLS(y, np.ones(n)).fit(cov_type="cluster", cov_kwds={"groups": groups})
    found = student(clustered_mean(y, Design(n, codes)))
    alone = [student(clustered_mean(y, Design(n, {name: of}))).se for name, of in codes.items()]
    assert fitted.bse[0] > max(alone)
    assert found.se == pytest.approx(fitted.bse[0])
    assert found.df == pytest.approx(11)

    def cubes(levels: int, of: np.ndarray) -> float:
        """The third cumulant of a mean over so many equal levels."""
        return float(levels**2 / ((levels - 1) * (levels - 2)) * (np.bincount(of, (y - y.mean()) / n) ** 3).sum())

    third = sum(cubes(12, of) for of in codes.values()) - cubes(n, np.arange(n))
    assert found.skewness == pytest.approx(third / found.se**3)


def test_levels_of_unequal_size_in_a_sparse_crossing_have_the_degrees_of_freedom_of_their_quadratic_form() -> None:
    sizes = np.array([9, 5, 3, 2, 2, 1, 1, 1])
    codes = {"sector": np.repeat(np.arange(8), sizes), "wording": RNG(7).integers(0, 12, 24)}
    design = Design(24, codes)
    assert design.cells.are_sparse
    centred = np.eye(24) - 1 / 24
    form = centred @ np.equal.outer(codes["sector"], codes["sector"]) @ centred
    assert design.level_weights["sector"].df[0] == pytest.approx(np.trace(form) ** 2 / np.trace(form @ form))


def test_two_strata_are_the_wider_of_welch_and_the_common_variance() -> None:
    rng = RNG(4)
    groups = rng.normal(0.3, 1.0, 8), rng.normal(0.0, 2.5, 20)
    strata = np.repeat([0, 1], (8, 20))
    signs = np.where(strata == 0, 2.0, -2.0)  # half of each mean, with its sign: the difference of the means
    values = signs * np.concatenate(groups)
    found = clustered_mean(values, Design(28, {"occupation": np.arange(28)}, strata, np.array([0.5, 0.5])))
    assert isinstance(found, Wider)
    both = CompareMeans(*map(DescrStatsW, groups))
    for one, usevar in ((found.one, "unequal"), (found.other, "pooled")):
        plain = Student(one.value, student(one).se, student(one).df)
        assert plain.interval(0.95) == pytest.approx(both.tconfint_diff(usevar=usevar))
    assert found.interval(0.95)[0] == min(of.interval(0.95)[0] for of in (found.one, found.other))


def test_hall_bends_the_longer_side_and_p_agrees_with_the_interval() -> None:
    found = Student(1.0, 0.2, 19.0, 0.9)
    t = stats.t.ppf(0.975, 19)
    bend = 2 / 3 * 0.9
    assert found.interval(0.95) == pytest.approx((1 - 0.2 * t, 1 + 0.2 * (0.15 + math.expm1(bend * t) / bend)))
    for confidence in (0.5, 0.95, 0.9999):
        low, high = found.interval(confidence)
        assert found.p_beyond(low, 1) == pytest.approx((1 - confidence) / 2)
        assert found.p_beyond(high, -1) == pytest.approx((1 - confidence) / 2)


@pytest.mark.parametrize(("n", "m", "mean"), [(40, 25, -1.0), (20, 5, -4.0), (40, 1, -4.0)])
def test_probabilities_are_the_textbooks_cox_or_survey_interval(n: int, m: int, mean: float) -> None:
    p = special.expit(mean + table(RNG(5), n, m, (0.7, 0.5 if m > 1 else 0.0, 0.5)))
    found = mean_probability(p.ravel(), crossed(n, m))
    assert isinstance(found, Wider)
    for one, other in ((found.one, textbook.logit_of_mean), (found.other, textbook.cox_on_logits)):
        assert one.interval(0.95) == pytest.approx([float(end[0]) for end in other(p[None], 0.95)], rel=2e-3)
    assert found.value == pytest.approx(p.mean())
    assert found.p_two_sided(found.interval(0.95)[0]) == pytest.approx(0.05)


def test_shares_of_a_few_draws_have_the_survey_interval_alone() -> None:
    p = RNG(5).binomial(10, 0.1, (40, 5)) / 10
    found = mean_probability(p.ravel(), crossed(40, 5))
    assert found.interval(0.95) == pytest.approx([float(e[0]) for e in textbook.logit_of_mean(p[None], 0.95)], rel=2e-3)


def test_shares_are_the_textbooks_wilson() -> None:
    few = mean_share(np.repeat([1.0, 0.0], [7, 9993]), Design(10_000))
    assert few.interval(0.95) == pytest.approx(proportion_confint(7, 10_000, method="wilson"), rel=1e-3)
    y = (table(RNG(6), 30, 12) > 0.8).astype(float)
    low, high = textbook.wilson(y[None], 0.95)
    found = mean_share(y.ravel(), crossed(30, 12))
    assert found.interval(0.95) == pytest.approx((low[0], high[0]), rel=1e-6)
    assert found.p_beyond(low[0], 1) == pytest.approx(found.p_beyond(high[0], -1)) == pytest.approx(0.025)
    nothing = mean_share(np.zeros(200), crossed(20, 10))
    assert nothing.interval(0.95)[0] == 0.0
    assert nothing.p_beyond(0.05, -1) < 0.01
    assert nothing.p_two_sided(0.0) == 1.0


def test_a_difference_of_shares_without_discordant_items_is_as_open_as_a_share() -> None:
    design = crossed(20, 10)
    found = share_difference(np.zeros(200), design)
    high = mean_share(np.zeros(200), design).interval(0.95)[1]
    assert found.interval(0.95) == pytest.approx((-high, high))
    assert found.p_outside(0.02) < 0.025 < found.p_outside(0.01)
    few = share_difference(np.zeros(8), Design(8))
    assert few.p_outside(0.02) > 0.3
    assert isinstance(found, Wider)
    assert isinstance(found.other, ShareDifference)
    low = found.other.interval(0.9)[0]
    assert found.other.p_beyond(low, 1) == pytest.approx(0.05, rel=0.01)


def test_correlation_is_the_jackknife_over_clusters() -> None:
    rng = RNG(7)
    y = rng.normal(size=15)
    x = 0.8 * y + rng.normal(size=15)
    found = student(correlation(Correlated(x, np.arange(15), y), Design(15, {"occupation": np.arange(15)})))
    without = np.array([stats.pearsonr(np.delete(x, i), np.delete(y, i)).statistic for i in range(15)])
    pseudo = 15 * np.arctanh(stats.pearsonr(x, y).statistic) - 14 * np.arctanh(without)
    assert found.value == pytest.approx(stats.pearsonr(x, y).statistic)
    assert found.se == pytest.approx(pseudo.std(ddof=1) / math.sqrt(15))
    assert found.df == 13
    middle, reach = np.arctanh(found.value), stats.t.ppf(0.975, 13) * found.se
    assert found.interval(0.95) == pytest.approx((np.tanh(middle - reach), np.tanh(middle + reach)))


def test_templates_that_follow_the_covariate_differently_widen_a_correlation() -> None:
    rng, n, m = RNG(8), 40, 4
    y, design = rng.normal(size=n), crossed(n, m)
    own, noise = design.clusters["occupation"], rng.normal(0, 0.5, (n, m))
    alike, apart = (np.ravel(y[:, None] * slopes + noise) for slopes in (1.0, np.array([0.1, 0.5, 1.4, 2.0])))
    only = Design(n * m, {"occupation": own})
    ratio = [
        student(correlation(Correlated(x, own, y), design)).se / student(correlation(Correlated(x, own, y), only)).se
        for x in (alike, apart)
    ]
    assert ratio[0] < 1.2
    assert ratio[1] > 1.5
    same = correlation_difference(Correlated(alike, own, y), Correlated(alike, own, y), design)
    assert (same.value, student(same).se) == (0.0, 0.0)


def test_families_are_those_of_statsmodels() -> None:
    p = np.append(RNG(10).uniform(0, 0.2, 12) ** 2, np.nan)
    for is_primary, method in ((True, "holm"), (False, "fdr_bh")):
        found = corrected(p, np.full(13, is_primary), 0.05)
        rejected, adjusted, _, _ = multipletests(p[:-1], 0.05, method)
        assert found.p[:-1] == pytest.approx(adjusted)
        assert math.isnan(found.p[-1])
        np.testing.assert_array_equal(p[:-1] < found.level[:-1], rejected)


def test_equivalence_is_two_one_sided_tests() -> None:
    apart = RNG(11).normal(0.001, 0.05, 80)
    expected = ttost_paired(apart, np.zeros(80), -0.02, 0.02)[0]
    found = student(clustered_mean(apart, Design(80)))
    assert Student(found.value, found.se, found.df).p_outside(0.02) == pytest.approx(expected)
    bounds = Between(Student(-0.01, 0.001, 30.0), Student(0.015, 0.001, 30.0))
    assert bounds.p_outside(0.02) == pytest.approx(stats.t.sf(5, 30))
    assert math.isnan(bounds.value)


def test_three_runs_keep_their_own_t_in_their_part() -> None:
    rng, (run, occupation) = RNG(13), np.indices((3, 40)).reshape(2, -1)
    y = rng.normal(0, 0.1, 3)[run] + rng.normal(0, 1, 40)[occupation] + rng.normal(0, 0.1, 120)
    design = Design(120, {RUN: run, "occupation": occupation})
    of_run, found = sources(y, design).factors[RUN], student(clustered_mean(y, design))  # type: ignore[union-attr]
    least = stats.t.ppf(0.975, 2) ** 2 * of_run.variance + stats.t.ppf(0.975, 39) ** 2 * (found.se**2 - of_run.variance)
    assert 1 <= (stats.t.ppf(0.975, found.df) * found.se) ** 2 / least < 1.1


@pytest.mark.parametrize("levels", [2, 3, 4])
def test_few_levels_decide_by_their_own_degrees_of_freedom(levels: int) -> None:
    rng = RNG(12)
    y = 0.3 + table(rng, 200, levels, (0.1, 0.0, 0.1))
    found = student(clustered_mean(y.ravel(), crossed(200, levels)))
    assert found.df == levels - 1
    if levels == 4:
        assert found.p_two_sided() < 0.01
    one = clustered_mean(y[:, :1].ravel(), Design(200, {"template": np.zeros(200, dtype=np.intp)}))
    assert math.isnan(one.interval(0.95)[0])
    assert math.isnan(one.p_two_sided())


def test_lists_generalise_over_the_occupations_in_them() -> None:
    rng, lists, occupations = RNG(14), 300, 20
    belongs = np.array([rng.permutation(np.arange(occupations) < 5) for _ in range(lists)]).astype(float)
    effects = rng.normal(0, 1, occupations)
    for strength in (0.0, 1.0):
        y = belongs @ effects / 5 * strength + rng.normal(0, 0.5, lists)
        alone = student(clustered_mean(y, Design(lists)))
        found = student(clustered_mean(y, Design(lists, membership=("occupation", belongs))))
        expected = math.sqrt(strength / occupations + 0.25 / lists)  # about the population's mean effect
        assert found.se == pytest.approx(expected, rel=0.4)
        assert (found.se > 1.5 * alone.se) == bool(strength)

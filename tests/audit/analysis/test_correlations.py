"""Correlations over clusters against scipy and by hand, their bounds, and the coverage of their intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from audit.analysis.correlations import (
    correlation,
    correlation_interval,
    correlations,
    extreme_correlation,
    leave_one_out_correlations,
)
from tests.audit.analysis.designs import grid
from tests.audit.analysis.jackknife import few_levels, jackknife_reach, worth


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
    middle = np.arctanh(stats.pearsonr(x, y).statistic)
    below, above = (few_levels(worth(z), 10) * reach for reach in jackknife_reach(z))
    assert correlation_interval(x, y, 0.95) == pytest.approx((np.tanh(middle - below), np.tanh(middle + above)))
    assert np.isnan(correlation_interval(x[:3], y[:3], 0.95)).all()


@pytest.mark.parametrize("seed", range(6))
def test_extreme_correlations_bound_every_x_and_are_reached(seed: int) -> None:
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


def test_constant_rest_without_a_cluster_has_no_correlation() -> None:
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
def test_rest_without_a_far_cluster_is_exact(left: float) -> None:
    rng = np.random.default_rng(20)
    x, y = left * rng.normal(size=20), rng.normal(size=20)
    x[7] = 1.0
    expected = [correlation(np.delete(x, i), np.delete(y, i)) for i in range(20)]
    assert leave_one_out_correlations(x, y) == pytest.approx(np.array(expected), abs=1e-8)


#: Values of few levels: ties, constants and perfect fits are common among them. A fit that misses by 1e-12 is not:
#: whether that is perfect, rounding decides.
COARSE = st.sampled_from([0.0, 0.1, 0.3, 0.55, 0.7, 1.0])


@given(points=st.lists(st.tuples(COARSE, COARSE), min_size=4, max_size=12), data=st.data())
def test_order_of_clusters_does_not_change_the_interval(points: list[tuple[float, float]], data: st.DataObject) -> None:
    x, y = np.array(points).T
    order = np.array(data.draw(st.permutations(range(len(x)))))
    for a, b in ((x, y), (y, x)):
        expected = correlation_interval(a, b, 0.95)
        assert correlation_interval(a[order], b[order], 0.95) == pytest.approx(expected, abs=1e-6, nan_ok=True)


@given(seed=st.integers(0, 10_000), exponent=st.floats(-9, 9))
def test_extreme_correlations_are_scale_free(seed: int, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=12)
    low = rng.uniform(0, 1, 12)
    high = low + rng.uniform(0, 0.5, 12)
    for sign in (-1, 1):
        expected, _ = extreme_correlation(low, high, y, sign)
        assert extreme_correlation(low, high, 10**exponent * y, sign)[0] == pytest.approx(expected, abs=1e-7)


def test_constant_covariate_has_no_extreme_correlation() -> None:
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


def test_correlation_jackknife_matches_hand_computation() -> None:
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
        df = v**2 / (v_rows**2 / worth(of_rows) + v_columns**2 / worth(of_columns) + v_cells**2 / 85)
        return figure(a.mean(axis=1), b.mean(axis=1)), np.sqrt(v), df  # type: ignore[operator]

    design = list(grid(20, 6))
    found = correlations(np.column_stack([a.ravel(), b.ravel()]), share, design)
    z, se, df = expected(
        lambda m, _, kept=slice(None): np.arctanh(r(m, kept)), one_cells_part(a, share, lambda m: np.arctanh(r(m)))
    )
    of_z = found.on_fishers_z()
    assert (of_z.value[0], of_z.se[0], of_z.df[0]) == pytest.approx((z, se, df), rel=1e-6)
    half = stats.t.ppf(0.95, df) * se * few_levels(df, 20)
    interval = correlation_interval(a.ravel(), share, 0.9, design)
    assert interval[0] == pytest.approx(np.tanh(z - half), rel=1e-6)
    assert interval[1] > np.tanh(z + half), "the side of the long tail"
    difference = expected(
        lambda of_a, of_b, kept=slice(None): r(of_b, kept) - r(of_a, kept),
        one_cells_part(b, share, r) - one_cells_part(a, share, r),
    )
    gap = found.differences([(0, 1)])
    assert (gap.value[0], gap.se[0], gap.df[0]) == pytest.approx(difference, rel=1e-6)


def test_nested_factor_changes_no_correlation() -> None:
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
def test_order_and_names_change_no_correlation_interval(seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    occupation, template = grid(6, 3)
    share = rng.integers(0, 4, 6) / 4
    x = np.array(data.draw(st.lists(COARSE, min_size=18, max_size=18)))
    kept = (rng.random(18) > 0.2) | (template == 0)  # holes, but no occupation without items
    order = rng.permutation(np.flatnonzero(kept))
    expected = correlation_interval(x[kept], share, 0.95, [occupation[kept], template[kept]])
    found = correlation_interval(x[order], share, 0.95, [occupation[order], 7 - template[order]])
    assert found == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_constant_rest_without_a_template_has_no_interval() -> None:
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


def test_values_that_differ_by_rounding_have_no_correlation() -> None:
    rng = np.random.default_rng(18)
    y = rng.beta(0.5, 0.5, 40)
    x = np.array([np.full(n, 0.45 / 0.9).mean() * (1 + 2**-52 * (n % 3)) for n in range(1, 41)])
    assert np.ptp(x) > 0
    assert np.isnan(correlation(x, y))
    assert np.isnan(correlation(y, x))
    assert np.isnan(correlation_interval(x, y, 0.95)).all()
    assert np.isfinite(correlation(1e-6 * rng.normal(size=40), y)), "small, but no rounding"


# ------------------------------------------------------------------------------ coverage


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
    assert 0.93 <= hit / reps <= (0.98 if clusters > 40 else 0.99)  # wider: they allow for kinds that were not asked


@pytest.mark.simulation
@pytest.mark.parametrize("templates", [3, 5, 25])
@pytest.mark.parametrize("spread", [0.0, 0.1, 0.2])
def test_correlation_intervals_cover_varying_template_slopes(templates: int, spread: float) -> None:
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
    assert 0.93 - luck <= hit[0] / reps <= 0.99
    if spread == 0.2:
        assert hit[1] / reps < hit[0] / reps - luck, "intervals over occupations alone are shorter"


@pytest.mark.simulation
@pytest.mark.parametrize("templates", [3, 5, 25])
@pytest.mark.parametrize("spread", [0.0, 0.1, 0.2])
def test_equal_correlations_rarely_differ(templates: int, spread: float) -> None:
    rng = np.random.default_rng(26)
    reps = 1000
    wrong = 0
    for _ in range(reps):
        share = rng.uniform(size=40)
        x = np.column_stack([slopes(rng, share, templates, spread).ravel() for _ in range(2)])
        wrong += correlations(x, share, grid(40, templates)).differences([(0, 1)]).p_two_sided()[0] < 0.05
    assert wrong / reps <= 0.07 + 3 * np.sqrt(0.05 * 0.95 / reps)

"""Tails beyond 95 %, at which a suite's many figures are decided."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.correlations import correlations
from audit.analysis.estimators import Strata, ValueKind, clustered_mean, mean_of_kind
from audit.analysis.rows.table import RowTable
from suites.base import MeasureSpec
from tests.audit.analysis.designs import grid
from tests.simulations.decisions import grid as rows_of

CHANGES = ValueKind(-1.0, 1.0, is_change=True)


def _drawn(occupations: int, templates: int, parts: tuple[float, float, float], samples: int) -> tuple[np.ndarray, ...]:
    """Normal effects of occupations, templates and items, as values (items, samples) whose true mean is 0."""
    rng = np.random.default_rng(0)
    a, b = grid(occupations, templates)
    own, of_templates, of_items = (
        sd * rng.normal(size=(n, samples)) for sd, n in zip(parts, (occupations, templates, len(a)), strict=True)
    )
    return 0.02 * (own[a] + of_templates[b] + of_items), a, b


@pytest.mark.parametrize("parts", [(0.0, 1.0, 2.0), (1.0, 1.0, 2.0)])
def test_few_templates_rarely_give_a_tiny_p(parts: tuple[float, float, float]) -> None:
    y, a, b = _drawn(20, 5, parts, 10_000)
    p = mean_of_kind(y, [a, b], CHANGES).p_two_sided()
    assert (p < 0.01).mean() <= 0.015
    assert (p < 0.001).mean() <= 0.002
    assert (p < 0.0001).mean() <= 0.0004


@pytest.mark.parametrize("deviation", [1.0, 2.0])
def test_few_levels_of_a_stratum_rarely_give_a_tiny_p(deviation: float) -> None:
    y = 0.02 * np.random.default_rng(0).normal(size=(40, 20_000))
    y[:5] *= deviation  # five levels carry half of the figure, and its variance is known from these
    strata = Strata((np.arange(40) >= 5).astype(np.intp), np.array([0.5, 0.5]))
    p = mean_of_kind(y, [np.arange(40)], ValueKind(-2.0, 2.0, is_change=True), strata).p_two_sided()
    assert (p < 0.001).mean() <= 0.002
    assert (p < 0.0001).mean() <= 0.0004


def test_strata_of_many_levels_keep_a_short_tail() -> None:
    y = np.random.default_rng(0).normal(size=(240, 1))
    strata = Strata(np.arange(240) // 24, np.full(10, 0.1))
    estimate = clustered_mean(y, [np.arange(240)], strata)
    _, high = estimate.interval(0.9999)
    assert (high - estimate.value) / estimate.se < 1.1 * special.stdtrit(estimate.df, 0.99995)


def test_templates_of_nearly_all_variance_have_a_long_tail() -> None:
    y, a, b = _drawn(100, 5, (1.0, 1.0, 0.2), 40_000)
    p = mean_of_kind(y, [a, b], CHANGES).p_two_sided()
    assert (p < 0.0001).mean() <= 0.0001


def test_tail_of_few_templates_leaves_95_percent_as_is() -> None:
    y, a, b = _drawn(20, 5, (0.0, 1.0, 2.0), 200)
    estimate = clustered_mean(y, [a, b])
    t = special.stdtrit(estimate.df, 0.975)
    low, high = estimate.interval(0.95)
    np.testing.assert_allclose(high - low, 2 * t * estimate.se, rtol=1e-12)
    np.testing.assert_allclose(estimate.p_two_sided(high), 0.05, rtol=1e-9)
    low, high = estimate.interval(0.9999)
    assert (high - low >= 2 * special.stdtrit(estimate.df, 0.99995) * estimate.se * (1 - 1e-12)).all()
    np.testing.assert_allclose(estimate.p_two_sided(high), 1e-4, rtol=1e-6)


def test_one_factor_keeps_students_tail() -> None:
    y, a, _ = _drawn(20, 5, (1.0, 0.0, 1.0), 20)
    estimate = clustered_mean(y, [a])
    _, high = estimate.interval(0.9999)
    np.testing.assert_allclose(high - estimate.value, special.stdtrit(19, 0.99995) * estimate.se, rtol=1e-9)


def test_a_difference_has_the_tail_of_its_mean() -> None:
    y, a, b = _drawn(20, 5, (0.0, 1.0, 2.0), 1)
    before = np.full((20, 5, 1), 0.3)
    tables = [RowTable(rows_of(values)) for values in (before, before + y.reshape(20, 5, 1))]
    spec = MeasureSpec("p", "q0", clusters=("occupation", "template"), kind="probability")
    (difference,) = paired_differences(tables, [spec], [(0, 1)])
    estimate = mean_of_kind(y, [a, b], CHANGES)
    for confidence in (0.9, 0.95, 0.99, 0.999):
        np.testing.assert_allclose(difference.interval(confidence), np.ravel(estimate.interval(confidence)), rtol=1e-6)
    for null in (0.0, 0.01, 0.1):
        np.testing.assert_allclose(difference.p_above(null), estimate.p_above(null)[0], rtol=1e-6)


def test_correlations_over_few_templates_have_that_tail() -> None:
    y, a, b = _drawn(40, 5, (1.0, 0.5, 2.0), 2)
    estimate = correlations(y, np.random.default_rng(1).random(40), [a, b]).differences([(0, 1)])
    assert estimate.far_df is not None
    assert estimate.far_df < 0.8 * estimate.df


def test_correlations_of_few_clusters_rarely_give_a_tiny_p() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(12, 20_000))
    p = correlations(y, rng.random(12)).differences([(i, i + 1) for i in range(0, 20_000, 2)]).p_two_sided()
    assert (p < 0.001).mean() <= 0.0016
    assert (p < 0.0001).mean() <= 0.0005

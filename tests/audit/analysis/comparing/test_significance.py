"""Tests and corrections against statsmodels and by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize, special, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from audit.analysis.comparing.significance import Corrected, false_discovery, holm, mcnemar_exact, p_of_counts_outside


@pytest.mark.parametrize(("only_a", "only_b", "n"), [(0, 1, 200), (3, 9, 150), (0, 0, 80), (40, 45, 1000)])
def test_score_test_takes_the_likeliest_shares(only_a: int, only_b: int, n: int) -> None:
    margin, p = 0.02, []
    for more, less in ((only_b, only_a), (only_a, only_b)):

        def unlikelihood(q: float, more: int = more, less: int = less) -> float:
            terms = ((more, q + margin), (less, q), (n - more - less, 1 - 2 * q - margin))
            return -float(sum(special.xlogy(count, share) for count, share in terms))

        q = optimize.minimize_scalar(unlikelihood, bounds=(0, (1 - margin) / 2), method="bounded").x
        z = (more - less - n * margin) / np.sqrt(n * (2 * q + margin - margin**2))
        p.append(stats.norm.cdf(z))
    assert p_of_counts_outside(only_a, only_b, n, margin) == pytest.approx(max(p), rel=0.01)


def test_mcnemar_agrees_with_statsmodels_for_every_small_table() -> None:
    only_b, only_a = np.meshgrid(np.arange(12), np.arange(12))
    found = mcnemar_exact(only_b, only_a)
    for index in np.ndindex(found.shape):
        expected = mcnemar([[0, only_a[index]], [only_b[index], 0]], exact=True).pvalue
        assert found[index] == pytest.approx(expected)


def test_holm_matches_statsmodels_and_ignores_nan() -> None:
    p = np.array([0.01, np.nan, 0.04, 0.03])
    assert holm(p).p[[0, 2, 3]] == pytest.approx(multipletests(p[[0, 2, 3]], method="holm")[1])
    assert np.isnan(holm(p).p[1])
    assert np.isnan(holm(np.array([np.nan])).p).all()
    many = np.random.default_rng(0).uniform(size=200) ** 4
    assert holm(many).p == pytest.approx(multipletests(many, method="holm")[1])


def test_false_discovery_matches_statsmodels() -> None:
    p = np.array([0.01, np.nan, 0.04, 0.03])
    assert false_discovery(p).p[[0, 2, 3]] == pytest.approx(multipletests(p[[0, 2, 3]], method="fdr_bh")[1])
    assert np.isnan(false_discovery(p).p[1])
    assert false_discovery(np.empty(0)).p.size == 0
    many = np.random.default_rng(0).uniform(size=200) ** 4
    assert false_discovery(many).p == pytest.approx(multipletests(many, method="fdr_bh")[1])


@pytest.mark.parametrize("correct", [holm, false_discovery])
def test_a_test_is_rejected_at_the_level_it_is_given(correct: Callable[..., Corrected]) -> None:
    rng = np.random.default_rng(1)
    for power in (1, 3, 8):
        p = rng.uniform(size=60) ** power
        found = correct(p, 0.05)
        np.testing.assert_array_equal(p < found.level, found.p < 0.05)

"""Tests and corrections against statsmodels and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from audit.analysis.significance import holm, mcnemar_exact, p_of_counts_outside


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
    assert holm(p)[[0, 2, 3]] == pytest.approx(multipletests(p[[0, 2, 3]], method="holm")[1])
    assert np.isnan(holm(p)[1])
    assert np.isnan(holm(np.array([np.nan]))).all()
    many = np.random.default_rng(0).uniform(size=200) ** 4
    assert holm(many) == pytest.approx(multipletests(many, method="holm")[1])

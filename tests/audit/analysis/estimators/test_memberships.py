"""Means of items that belong to several levels each: the jackknife by hand, a mixed model, and what is unknown."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from audit.analysis.estimators import clustered_mean
from audit.analysis.estimators.memberships import with_memberships


def _estimate(values: np.ndarray, belongs: np.ndarray, clusters: list[np.ndarray] | None = None) -> tuple[float, float]:
    estimate = with_memberships(clustered_mean(values, clusters or []), values, clusters or [], belongs)
    return float(estimate.se[0]), float(estimate.df[0])


def test_error_is_that_of_leaving_out_each_level_by_hand() -> None:
    """All pairs of six levels, whose values no sum of levels explains, often enough to leave no noise."""
    pairs = np.array(list(itertools.combinations(range(6), 2)))
    value_of = np.random.default_rng(0).normal(size=(6, 6)) + np.arange(6)[:, None]
    values = value_of[pairs[:, 0], pairs[:, 1]]
    belongs = np.zeros((15, 6))
    belongs[np.arange(15)[:, None], pairs] = 1.0
    without = [values[belongs[:, level] == 0].mean() for level in range(6)]
    by_hand = np.sqrt(5 / 6 * ((np.array(without) - np.mean(without)) ** 2).sum())
    se, df = _estimate(np.repeat(values, 4000), np.repeat(belongs, 4000, axis=0))
    assert df == 5
    assert se == pytest.approx(by_hand, rel=0.02)


def test_items_of_one_level_each_are_clusters() -> None:
    rng = np.random.default_rng(1)
    codes = np.repeat(np.arange(25), 40)
    values = rng.normal(size=25)[codes] + rng.normal(size=1000)
    se, df = _estimate(values, np.eye(25)[codes])
    assert (se, df) == (pytest.approx(float(clustered_mean(values, [codes]).se[0]), rel=0.05), 24)


def test_error_agrees_with_a_mixed_model_of_lists() -> None:
    """statsmodels' REML of y = mean + mean effect of a list's occupations + noise, which is how these were drawn."""
    import statsmodels.api as sm

    rng = np.random.default_rng(2)
    belongs = np.zeros((400, 28))
    for of_list in belongs:
        of_list[rng.choice(28, rng.integers(1, 11), replace=False)] = 1.0
    shares = belongs / belongs.sum(axis=1, keepdims=True)
    values = shares @ rng.normal(0, 1, 28) + rng.normal(0, 0.3, 400)
    exog_vc = sm.regression.mixed_linear_model.VCSpec(["occupation"], [[[f"o{i}" for i in range(28)]]], [[shares]])
    fit = sm.MixedLM(values, np.ones((400, 1)), groups=np.zeros(400), exog_vc=exog_vc).fit(reml=True)
    variance = float(fit.vcomp[0]) * (shares.mean(axis=0) ** 2).sum() + float(fit.scale) / 400
    assert _estimate(values, belongs)[0] == pytest.approx(np.sqrt(variance), rel=0.2)


def test_repeated_draws_of_a_list_are_no_further_lists() -> None:
    rng = np.random.default_rng(3)
    belongs = (rng.random((200, 20)).argsort(axis=1) < 5).astype(float)
    values = rng.normal(size=200)
    repeated = [np.repeat(x, 3, axis=0) for x in (values, belongs, np.arange(200))]
    of_lists = _estimate(values, belongs)[0]
    assert _estimate(repeated[0], repeated[1], [repeated[2]])[0] == pytest.approx(of_lists, rel=1e-6)


@pytest.mark.parametrize("belongs", [np.eye(2)[np.arange(50) % 2], np.ones((50, 8)), np.zeros((50, 0))])
def test_levels_that_lists_do_not_tell_apart_leave_it_unknown(belongs: np.ndarray) -> None:
    assert np.isnan(_estimate(np.random.default_rng(4).normal(size=50), belongs)[0])

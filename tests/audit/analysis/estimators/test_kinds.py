"""Errors by what values are: an allowance for the unseen, skewness, and the logit-normal model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from audit.analysis.estimators import ValueKind, clustered_mean, mean_of_kind
from audit.analysis.estimators.probabilities import widened_by_logit_model
from audit.analysis.estimators.skewness import bent_by_skewness
from tests.audit.analysis.designs import grid

PROBABILITY = ValueKind(0.0, 1.0, is_probability=True)
DIFFERENCE = ValueKind(-1.0, 1.0)
REAL = ValueKind(-np.inf, np.inf)


@pytest.mark.parametrize("kind", [PROBABILITY, DIFFERENCE, ValueKind(0.0, 1.0, is_count=True)])
def test_five_equal_bounded_values_are_no_certainty(kind: ValueKind) -> None:
    low, high = (float(end[0]) for end in mean_of_kind(np.full(5, 0.31), [], kind).interval(0.95))
    assert low < 0.2
    assert high > 0.5
    low, high = (float(end[0]) for end in mean_of_kind(np.full(1000, 0.31), [], kind).interval(0.95))
    assert 0.29 < low < high < 0.33
    assert float(mean_of_kind(np.full(5, 0.31), [], REAL).se[0]) == 0


def test_values_beyond_their_range_count_as_any_number() -> None:
    values = np.array([0.5, 1.5, 1.2])
    found, plain = mean_of_kind(values, [], PROBABILITY), clustered_mean(values, [])
    assert found.interval(0.95) == plain.interval(0.95)


def test_values_that_vary_evenly_keep_students_interval() -> None:
    rng = np.random.default_rng(0)
    a, b = grid(40, 25)
    y = rng.normal(0.5, 0.05, 40)[a] + rng.normal(0, 0.05, 25)[b] + rng.normal(0, 0.05, 1000)
    widths = [float(np.ptp(mean_of_kind(y, [a, b], kind).interval(0.95))) for kind in (REAL, DIFFERENCE, PROBABILITY)]
    assert widths[1] / widths[0] == pytest.approx(1, abs=0.03)
    assert widths[2] / widths[0] == pytest.approx(1, abs=0.05)


def test_third_cumulant_of_items_is_that_of_scipys_skewness() -> None:
    y = np.random.default_rng(1).exponential(size=30)
    found = clustered_mean(y, [])
    assert found.third is not None
    third = stats.kstat(y, 3) / 30**2  # the unbiased third cumulant of a value, and so of a mean of 30
    assert found.third[0] == pytest.approx(third)


def test_skewed_interval_is_halls_transformation_by_hand() -> None:
    y = np.random.default_rng(2).exponential(size=20)
    se, t = y.std(ddof=1) / np.sqrt(20), stats.t.ppf(0.975, 19)
    skewness = stats.kstat(y, 3) / 20**2 / se**3
    kappa = 2 / 3 * skewness
    expected = (
        y.mean() + se * (skewness / 6 - (1 - np.exp(-kappa * t)) / kappa),
        y.mean() + se * (skewness / 6 + (np.exp(kappa * t) - 1) / kappa),
    )
    found = bent_by_skewness(clustered_mean(y, []))
    assert tuple(float(end[0]) for end in found.interval(0.95)) == pytest.approx(expected)
    mirrored = bent_by_skewness(clustered_mean(-y, []))
    assert tuple(float(-end[0]) for end in mirrored.interval(0.95)[::-1]) == pytest.approx(expected)


def test_p_and_interval_of_a_bent_error_agree() -> None:
    y = np.random.default_rng(3).exponential(size=(20, 1)) - 0.8
    found = mean_of_kind(special.expit(y - 3), [], PROBABILITY)
    for confidence in (0.8, 0.95, 0.99):
        low, high = (float(end[0]) for end in found.interval(confidence))
        assert found.p_above(low)[0] == pytest.approx((1 - confidence) / 2)
        assert found.p_below(high)[0] == pytest.approx((1 - confidence) / 2)


def test_logit_model_of_one_factor_is_the_generalised_interval() -> None:
    rng = np.random.default_rng(4)
    logits = rng.normal(-5, 1.5, 20)
    y = special.expit(logits)
    found = widened_by_logit_model(clustered_mean(y, []), y, [])
    # The same interval from random numbers, for the mean of nearly lognormal values (Krishnamoorthy & Mathew 2003).
    chi = rng.chisquare(19, 400_000)
    variance = logits.var(ddof=1) * 19 / chi
    centre = logits.mean() + rng.normal(size=len(chi)) * np.sqrt(variance / 20)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    means = np.concatenate([
        special.expit(c[:, None] + np.sqrt(v)[:, None] * nodes) @ weights / weights.sum()
        for c, v in zip(np.array_split(centre, 20), np.array_split(variance, 20), strict=True)
    ])  # fmt: skip
    assert float(found.interval(0.95)[1][0]) == pytest.approx(np.quantile(means, 0.975), rel=0.05)

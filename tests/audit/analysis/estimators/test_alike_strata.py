"""A small stratum whose levels happen to be alike takes the variance of the others."""

from __future__ import annotations

import numpy as np
import pytest

from audit.analysis.estimators import Strata, ValueKind, clustered_mean, mean_of_kind
from audit.analysis.estimators.alike_strata import allow_for_alike_strata

HALVES = np.array([0.5, 0.5])


def he_or_she(small: int, large: int, templates: int, share: float, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Signed values (occupation, template, draw) of a model that says "she" of a share of both groups: its gap is 0."""
    random = np.random.default_rng(7)
    occupations = np.where(random.random((small + large, 1, draws)) < share, 0.9, -0.9)
    occupations[small:] *= -1
    values = occupations + random.normal(0, 0.02, (small + large, templates, draws))
    return np.clip(values, -1, 1), (np.arange(small + large) >= small).astype(np.intp)


@pytest.mark.parametrize(("small", "large"), [(5, 35), (6, 20), (10, 30)])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_no_gap_is_found_in_a_model_without_one(small: int, large: int, share: float) -> None:
    values, group = he_or_she(small, large, 10, share, draws=300)
    occupation, template = (index.ravel() for index in np.indices(values.shape[:2]))
    estimate = mean_of_kind(
        values.reshape(-1, 300), [occupation, template], ValueKind(-1.0, 1.0), Strata(group[occupation], HALVES)
    )
    low, high = estimate.interval(0.95)
    assert ((low > 0) | (high < 0)).mean() <= 0.03, "before: up to 21 %"


def test_levels_that_are_alike_vary_as_the_others_do() -> None:
    values = np.array([1.0] * 6 + [0.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0, 2.0])[:, None]
    levels, strata = np.arange(14), Strata(np.array([0] * 6 + [1] * 8), HALVES)
    plain = clustered_mean(values, [levels], strata)
    wider = allow_for_alike_strata(plain, values, [levels], strata)
    others = 8 / 7  # the variance of the second stratum, levels of which lie 1 from their mean
    expected = np.sqrt(plain.se[0] ** 2 + 0.25 * others / 6)
    low, high = wider.interval(0.95)
    assert (high - low)[0] / 2 == pytest.approx(wider.t[0] * expected, rel=0.01)


def test_strata_that_vary_alike_stay_as_they_are() -> None:
    random = np.random.default_rng(3)
    values = random.normal(0, 0.3, (28, 500))
    levels, strata = np.arange(28), Strata((np.arange(28) >= 8).astype(np.intp), HALVES)
    plain = clustered_mean(values, [levels], strata)
    low, high = plain.interval(0.95)
    wide_low, wide_high = allow_for_alike_strata(plain, values, [levels], strata).interval(0.95)
    assert np.isclose(wide_high - wide_low, high - low).mean() >= 0.97
    assert (wide_high - wide_low >= high - low - 1e-12).all()


@pytest.mark.parametrize(
    "strata", [Strata.one(12), Strata(np.array([0] + [1] * 11), HALVES), Strata(np.arange(12) % 2, HALVES)]
)
def test_without_levels_to_compare_nothing_changes(strata: Strata) -> None:
    """One stratum; one with a single level; a factor that crosses the strata."""
    values, levels = np.repeat([0.2, 0.4, 0.9], 4)[:, None], np.repeat(np.arange(6), 2)
    plain = clustered_mean(values, [levels], strata)
    same = allow_for_alike_strata(plain, values, [levels], strata)
    np.testing.assert_array_equal(same.interval(0.95), plain.interval(0.95))

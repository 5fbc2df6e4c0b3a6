"""Figures that are estimated together come out as each by itself."""

import numpy as np
import pytest

from audit.analysis.comparing.paired import End
from audit.analysis.estimators import Estimate, Layout, MeanOf, Reach, Strata, ValueKind, mean_of_kind, together

RNG = np.random.default_rng(5)


def request(n, levels, kind, strata=None, k=1):
    clusters = [RNG.permutation(levels)[RNG.integers(0, levels, n)], RNG.integers(0, 5, n)]
    values = RNG.beta(1, 4, (n, k)) if kind.is_probability else RNG.normal(0, 0.2, (n, k)).clip(-1, 1)
    if kind.is_probability and RNG.random() < 0.5:
        values[0] = 1.0  # stands for a missing answer: no part of the logit model
    return MeanOf(values, Layout.of(n, clusters, strata), kind)


def asked(mean_of):
    first = yield mean_of
    second = yield MeanOf(mean_of.columns, Layout.of(len(mean_of.columns), [], None), ValueKind(-1.0, 1.0))
    return first, second


def test_batched_estimates_equal_single_ones():
    probability, difference = ValueKind(0.0, 1.0, is_probability=True), ValueKind(-1.0, 1.0)
    requests = [request(60, 12, kind, k=k) for kind in (probability, difference) for k in (1, 2) for _ in range(30)]
    alike = [MeanOf(RNG.beta(1, 4, (60, 1)), requests[0].layout, probability) for _ in range(40)]
    strata = Strata(np.repeat([0, 1], 30), np.array([0.25, 0.75]))
    requests += [*alike, *(request(60, 9, difference, strata) for _ in range(3)), request(3, 2, difference)]
    found = together(asked(one) for one in requests)
    for (columns, layout, kind), (first, second) in zip(requests, found, strict=True):
        alone = mean_of_kind(columns, layout.clusters, kind, layout.strata)
        for got, expected in ((first, alone), (second, mean_of_kind(columns, [], ValueKind(-1.0, 1.0)))):
            for confidence in (0.9, 0.999):
                assert np.allclose(got.interval(confidence), expected.interval(confidence), rtol=1e-12, equal_nan=True)
            assert np.allclose(got.p_two_sided(0.1), expected.p_two_sided(0.1), rtol=1e-9, equal_nan=True)
            assert (got.n_items, got.n_clusters) == (expected.n_items, expected.n_clusters)


def test_layouts_are_alike_whatever_levels_are_called():
    strata = Strata(np.array([0, 0, 1]), np.array([0.5, 0.5]))
    first = Layout.of(3, [np.array([7, 2, 7])], strata)
    assert first.key == Layout.of(3, [np.array([0, 9, 0])], strata).key
    assert first.key != Layout.of(3, [np.array([0, 9, 9])], strata).key
    assert first.key != Layout.of(3, [np.array([7, 2, 7])], None).key
    assert first.key != Layout.of(3, [np.array([7, 2, 7])], Strata(strata.codes, np.array([0.4, 0.6]))).key


def test_a_computation_that_asks_nothing_keeps_its_place():
    def silent():
        return "nothing"
        yield

    found = together([silent(), asked(request(20, 6, ValueKind(-1.0, 1.0))), silent()])
    assert found[0] == found[2] == "nothing"
    assert found[1][0].n_items == 20


@pytest.mark.parametrize("bend", [0.0, 0.4, 60.0])
@pytest.mark.parametrize("df", [0.2, 3.5, np.inf])
def test_one_number_has_the_interval_of_its_column(bend, df):
    sides = ((0.02, bend), (0.03, 0.0))
    columns = [Reach(*(np.array([number]) for number in side)) for side in sides]
    estimate = Estimate(np.array([0.1]), np.array([0.03]), np.array([df]), 9, 9, None, *columns)
    for confidence in (0.5, 0.95, 1 - 1e-15):
        expected = np.ravel(estimate.interval(confidence))
        assert np.allclose(End(0.1, 0.03, df, *sides).interval(confidence), expected, rtol=1e-14, equal_nan=True)

import numpy as np
import pytest

from suites.base import IdentifiedInterval, Row
from suites.common.groups.design import PAPERS_GROUPS
from suites.debiasing.parts import split_effect


def row_with(gap, diverse):
    values = {"stereotype_gap": IdentifiedInterval.exact(gap), "p_diverse": IdentifiedInterval.exact(diverse)}
    return Row("x", {}, values)


@pytest.mark.parametrize(
    ("before", "after", "via_diverse", "via_balance"),
    [
        ((0.8, 0.0), (0.4, 0.5), -0.4, 0.0),  # all to diverse, the lean stays
        ((0.8, 0.2), (0.4, 0.2), 0.0, -0.4),  # evened out
        ((0.8, 0.0), (0.0, 1.0), -0.8, 0.0),  # everything to diverse
        ((0.0, 1.0), (0.0, 1.0), 0.0, 0.0),
    ],
)
def test_the_parts_of_an_effect(before, after, via_diverse, via_balance):
    parts = split_effect(row_with(*after), row_with(*before), PAPERS_GROUPS)
    assert parts["effect_via_diverse"].value == pytest.approx(via_diverse, abs=1e-12)
    assert parts["effect_via_balance"].value == pytest.approx(via_balance, abs=1e-12)


def test_the_parts_always_add_up_to_the_effect():
    rng = np.random.default_rng(3)
    for _ in range(200):
        d0, d1 = rng.uniform(0, 1, 2)
        g0, g1 = rng.uniform(-1, 1, 2) * (1 - np.array([d0, d1]))
        parts = split_effect(row_with(g1, d1), row_with(g0, d0), PAPERS_GROUPS)
        assert sum(p.value for p in parts.values()) == pytest.approx(g1 - g0, abs=1e-12)

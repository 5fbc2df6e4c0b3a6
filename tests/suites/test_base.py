"""Arithmetic on identified intervals, and the contrast of two rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import ConfigError
from suites.base import IdentifiedInterval, MeasureSpec, Row
from suites.common.gender_figures import contrast

NUMBERS = st.floats(-1e3, 1e3)
WEIGHTS = st.floats(0, 1)


@st.composite
def intervals(draw: st.DrawFn) -> IdentifiedInterval:
    """Exact, only bounded, or with a value within its bounds."""
    low, value, high = sorted(draw(st.tuples(NUMBERS, NUMBERS, NUMBERS)))
    kind = draw(st.sampled_from(["exact", "bounded", "between"]))
    if kind == "exact":
        return IdentifiedInterval.exact(value)
    return IdentifiedInterval(value if kind == "between" else None, low, high)


def within(interval: IdentifiedInterval, weight: float) -> float:
    """A number that the interval allows: its value, or any between its bounds."""
    if interval.low == interval.high:
        return interval.low
    return min(max(interval.low + weight * (interval.high - interval.low), interval.low), interval.high)


def encloses(interval: IdentifiedInterval, number: float) -> bool:
    slack = 1e-9 * max(1.0, abs(number))
    return interval.low - slack <= number <= interval.high + slack


@given(intervals(), intervals(), WEIGHTS, WEIGHTS)
def test_bounds_enclose_every_possible_result(a, b, s, t):
    x, y = within(a, s), within(b, t)
    assert encloses(a - b, x - y)
    assert encloses(IdentifiedInterval.total([a, b]), x + y)
    assert encloses(IdentifiedInterval.mean([a, b]), (x + y) / 2)


@given(intervals(), intervals())
def test_bounds_are_reached_and_a_result_has_a_value_where_all_operands_have_one(a, b):
    assert ((a - b).low, (a - b).high) == (a.low - b.high, a.high - b.low)
    known = a.value is not None and b.value is not None
    assert IdentifiedInterval.total([a, b]).value == (math.fsum([a.value, b.value]) if known else None)
    assert (a - b).value == (a.value - b.value if known else None)
    assert IdentifiedInterval.mean([a, b]).value == (math.fsum([a.value, b.value]) / 2 if known else None)


def test_the_mean_of_drawn_values_has_their_variance():
    one, other, unknown = (IdentifiedInterval(0.5, 0.5, 0.5, variance) for variance in (0.04, 0.08, None))
    assert IdentifiedInterval.mean([one, other]).draw_variance == pytest.approx((0.04 + 0.08) / 4)
    assert IdentifiedInterval.mean([one, unknown]).draw_variance is None


@pytest.mark.parametrize(("value", "low", "high"), [(0.5, 0.6, 0.7), (None, 0.7, 0.6), (None, -math.inf, 0.0)])
def test_an_interval_without_order_or_end_is_refused(value, low, high):
    with pytest.raises(ValueError, match="finite low <= value <= high"):
        IdentifiedInterval(value, low, high)


def row(item: str, missing: str | None = None, **values: float) -> Row:
    return Row(item, {}, {name: IdentifiedInterval.exact(v) for name, v in values.items()}, missing)


def test_a_contrast_subtracts_the_quantities_of_both_rows():
    found = contrast("c", row("a", p=0.75, q=1.0), row("b", p=0.5), {"p": "change", "q": "other"}, {"kind": "change"})
    assert found == Row("c", {"kind": "change"}, {"change": IdentifiedInterval.exact(0.25)}, sources=("a", "b"))


@pytest.mark.parametrize(("first", "second", "reason"), [(None, "refusal", "refusal"), ("timeout", "x", "timeout")])
def test_a_contrast_is_missing_where_either_row_is(first, second, reason):
    found = contrast("c", row("a", first), row("b", second), {"p": "change"}, {})
    assert (found.missing, found.values, found.sources) == (reason, {}, ("a", "b"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "percentage"}, "MeasureSpec.kind = 'percentage': unknown"),
        ({"range": (1.0, 1.0)}, "gap.range"),
        ({"kind": "probability", "range": (-1.0, 1.0)}, "gap.range = (-1.0, 1.0): a probability is from 0 to 1"),
        ({"stratum": "group"}, "gap.weights = None"),
        ({"stratum": "group", "weights": {"a": 0.5, "b": 0.6}}, "gap.weights"),
        ({"stratum": "group", "weights": {"a": 1.0}, "where": {"group": "a"}}, "gap.stratum"),
        ({"stratum": "group", "weights": {"a": 1.0}, "clusters": ("group",)}, "gap.stratum"),
    ],
)
def test_a_spec_that_contradicts_itself_names_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        MeasureSpec("gap", "gap", **fields)
    assert message in str(refused.value)

"""Balanced samples."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.collect import Sample
from audit.collect.sample import plan_looks
from backends.base import GenerateRequest
from backends.errors import ConfigError
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from suites.base import Item


def limit_items(items, strata, limit, seed, together=(), crossed=()):
    return Sample(items, strata, seed, together, crossed).take(limit)


DESIGN = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=80)


def items_of(design):
    return [Item(f"i{i}", GenerateRequest(f"p{i}"), {"a": a, "b": b}) for i, (a, b) in enumerate(design)]


@given(DESIGN, st.integers(1, 90), st.integers(0, 5))
def test_a_limited_run_is_exact_and_balanced(design, limit, seed):
    sizes = Counter(design)
    chosen = [(i.factors["a"], i.factors["b"]) for i in limit_items(items_of(design), ("a", "b"), limit, seed)]
    assert len(chosen) == min(limit, len(design))
    taken = Counter(chosen)
    for one in sizes:
        for other in sizes:
            # Nobody has two more than another who could have had one more.
            assert taken[one] <= taken[other] + 1 or taken[other] == sizes[other]


def test_controls_are_in_every_sample_and_take_of_its_limit():
    suite = MGBR(n=20, conditions=["zero-shot"])
    items = list(suite.items())
    for limit in (6, 11, 40):
        chosen = limit_items(items, suite.strata, limit, 0, suite.sampled_together, ("instance",))
        assert [item.id for item in chosen if item.is_control] == ["zero-shot/control/female", "zero-shot/control/male"]
        assert len(chosen) == 2 + (limit - 2) // 4 * 4
    with pytest.raises(ConfigError, match="and the 2 controls") as refused:
        limit_items(items, suite.strata, 5, 0, suite.sampled_together)
    assert "Give 6" in str(refused.value)


def test_a_limited_run_keeps_order_and_depends_on_the_seed_alone():
    design = [(i % 4, i % 3) for i in range(240)]
    first = [i.id for i in limit_items(items_of(design), ("a",), 24, 1)]
    assert first == [i.id for i in limit_items(items_of(design), ("a",), 24, 1)]
    assert first == sorted(first, key=lambda name: int(name[1:]))
    assert first != [i.id for i in limit_items(items_of(design), ("a",), 24, 2)]


def conditions(pairs, levels):
    return [
        Item(f"{p}/{c}", GenerateRequest("x"), {"pair": p, "condition": c, "kind": p % 2})
        for c in range(levels)
        for p in range(pairs)
    ]


def test_items_that_belong_together_are_kept_or_dropped_together():
    chosen = limit_items(conditions(20, 3), ("kind", "condition"), 20, 0, together=("pair",))
    assert len(chosen) == 18  # six whole pairs of three conditions: a seventh does not fit into 20
    by_pair = Counter(i.factors["pair"] for i in chosen)
    assert set(by_pair.values()) == {3}
    assert Counter(p % 2 for p in by_pair) == {0: 3, 1: 3}


def test_a_limit_that_can_hold_nothing_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        limit_items(conditions(2, 3), (), 0, 0)
    with pytest.raises(ConfigError, match="belong together"):
        limit_items(conditions(2, 3), (), 2, 0, together=("pair",))


@pytest.mark.parametrize("limit", [5, 20, 40])
def test_crossed_factors_go_through_their_levels_together(limit):
    design = [Item(f"{a}/{b}", GenerateRequest("x"), {"a": a, "b": b}) for a in range(20) for b in range(8)]
    chosen = limit_items(design, (), limit, 3, crossed=("a", "b"))
    for factor, levels in (("a", 20), ("b", 8)):
        times = Counter(item.factors[factor] for item in chosen)
        assert len(times) == min(limit, levels)
        assert max(times.values()) - min(times.values()) <= 1


@pytest.mark.parametrize("suite", [OccuGender(), DebiasingPositions(), GenderPair(), MGBR(n=60)], ids=lambda s: s.name)
def test_larger_samples_of_a_suite_hold_smaller_ones(suite):
    items = list(suite.items())
    sample = Sample(items, suite.strata, 1, suite.sampled_together, ("occupation", "template"))
    nested = [{item.id for item in sample.take(limit)} for limit in (120, 333, 700)]
    assert nested[0] < nested[1] < nested[2]


def test_the_looks_of_a_run_share_its_error_and_the_last_has_most():
    errors = [look.error for look in plan_looks([1000, 300])]
    assert sum(errors) == pytest.approx(1)
    assert errors[-1] == max(errors) > errors[0]

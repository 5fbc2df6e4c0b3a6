"""Balanced samples."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.collect.sample import limit_items
from backends.base import GenerateRequest
from backends.errors import ConfigError
from suites.base import Item

DESIGN = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=80)


def items_of(design):
    return [Item(f"i{i}", GenerateRequest(f"p{i}"), {"a": a, "b": b}) for i, (a, b) in enumerate(design)]


@settings(deadline=None)
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


def test_a_limited_run_keeps_order_and_depends_on_the_seed_alone():
    design = [(i % 4, i % 3) for i in range(240)]
    first = [i.id for i in limit_items(items_of(design), ("a",), 24, 1)]
    assert first == [i.id for i in limit_items(items_of(design), ("a",), 24, 1)]
    assert first == sorted(first, key=lambda name: int(name[1:]))
    assert first != [i.id for i in limit_items(items_of(design), ("a",), 24, 2)]


def test_a_larger_limit_keeps_the_items_of_a_smaller_one():
    design = [(i % 4, 0) for i in range(200)]
    small = {i.id for i in limit_items(items_of(design), ("a",), 40, 7)}
    large = {i.id for i in limit_items(items_of(design), ("a",), 80, 7)}
    assert small < large


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

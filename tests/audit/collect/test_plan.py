import tracemalloc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.collect.plan import Plan, estimate, limit_items
from audit.store import Entry, Store, answer_keys
from backends.base import (
    ContinuationScore,
    GenerateRequest,
    RequestCost,
    Sampling,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import ConfigError
from backends.fake import FakeBackend
from suites.base import Item

FP = "fp1-test"


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "audit.db") as opened:
        yield opened


def score(*continuations):
    return ScoreResponse(tuple(ContinuationScore.exact([TokenLogprob(c, 0, len(c), -1.0)]) for c in continuations))


def items(n, continuations=(" a", " b")):
    return lambda: (Item(f"i{i}", ScoreRequest(f"prompt {i}", continuations), {"t": i % 5}) for i in range(n))


async def answer(store, request):
    await store.answers.write([Entry(answer_keys(request, FP), FP, request, score(*request.continuations))])


def test_every_item_is_planned_however_little_work_is_told(store):
    for work in ((), (7,), (7, 8, 9), range(10)):
        chunks = list(Plan("m", FP, items(3), work=work).chunks(store, size=2))
        assert [p.item_id for c in chunks for p in c.requests] == ["i0", "i1", "i2"]
        assert [p.work for c in chunks for p in c.requests] == [*work, 0, 0, 0][:3]
        assert [c.cached for c in chunks] == [0, 0]


async def test_a_plan_holds_only_the_continuations_that_are_missing(store):
    await answer(store, ScoreRequest("prompt 0", (" a", " b")))
    await answer(store, ScoreRequest("prompt 1", (" b",)))
    [chunk] = Plan("m", FP, items(3, (" a", " b", " c"))).chunks(store)
    asked = {p.item_id: p.request.continuations for p in chunk.requests}
    assert asked == {"i0": (" c",), "i1": (" a", " c"), "i2": (" a", " b", " c")}
    assert all(p.keys == answer_keys(p.request, FP) for p in chunk.requests)


async def test_what_is_answered_is_not_asked(store):
    await answer(store, ScoreRequest("prompt 1", (" a", " b")))
    chunks = list(Plan("m", FP, items(5)).chunks(store, size=2))
    assert [(c.items, c.cached) for c in chunks] == [(2, 1), (2, 0), (1, 0)]
    assert [p.item_id for c in chunks for p in c.requests] == ["i0", "i2", "i3", "i4"]


def test_a_plan_of_100_000_items_takes_bounded_memory(store):
    def count(n):
        tracemalloc.start()
        asked = sum(len(c.requests) for c in Plan("m", FP, items(n)).chunks(store))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return asked, peak

    few, peak_few = count(2_000)
    many, peak_many = count(20_000)
    assert (few, many) == (2_000, 20_000)
    assert peak_many < 1.3 * peak_few


# -- limited runs ------------------------------------------------------------------------------

DESIGN = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=80)


def factory(design):
    return lambda: (Item(f"i{i}", GenerateRequest(f"p{i}"), {"a": a, "b": b}) for i, (a, b) in enumerate(design))


@settings(deadline=None)
@given(DESIGN, st.integers(1, 90), st.integers(0, 5))
def test_a_limited_run_is_exact_and_balanced(design, limit, seed):
    sizes = Counter(design)
    chosen = [(i.factors["a"], i.factors["b"]) for i in limit_items(factory(design), ("a", "b"), limit, seed)()]
    assert len(chosen) == min(limit, len(design))
    taken = Counter(chosen)
    for one in sizes:
        for other in sizes:
            # Nobody has two more than another who could have had one more.
            assert taken[one] <= taken[other] + 1 or taken[other] == sizes[other]


def test_a_limited_run_keeps_order_and_depends_on_the_seed_alone():
    design = [(i % 4, i % 3) for i in range(240)]
    first = [i.id for i in limit_items(factory(design), ("a",), 24, 1)()]
    assert first == [i.id for i in limit_items(factory(design), ("a",), 24, 1)()]
    assert first == sorted(first, key=lambda name: int(name[1:]))
    assert first != [i.id for i in limit_items(factory(design), ("a",), 24, 2)()]


def test_a_larger_limit_keeps_the_items_of_a_smaller_one():
    design = [(i % 4, 0) for i in range(200)]
    small = {i.id for i in limit_items(factory(design), ("a",), 40, 7)()}
    large = {i.id for i in limit_items(factory(design), ("a",), 80, 7)()}
    assert small < large


def conditions(pairs, levels):
    return lambda: (
        Item(f"{p}/{c}", GenerateRequest("x"), {"pair": p, "condition": c, "kind": p % 2})
        for c in range(levels)
        for p in range(pairs)
    )


def test_items_that_belong_together_are_kept_or_dropped_together():
    chosen = list(limit_items(conditions(20, 3), ("kind", "condition"), 20, 0, together=("pair",))())
    assert len(chosen) == 18  # six whole pairs of three conditions: a seventh does not fit into 20
    by_pair = Counter(i.factors["pair"] for i in chosen)
    assert set(by_pair.values()) == {3}
    assert Counter(p % 2 for p in by_pair) == {0: 3, 1: 3}


def test_a_limit_that_can_hold_nothing_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        limit_items(conditions(2, 3), (), 0, 0)
    with pytest.raises(ConfigError, match="belong together"):
        limit_items(conditions(2, 3), (), 2, 0, together=("pair",))


# -- a dry run ---------------------------------------------------------------------------------


async def test_an_estimate_counts_what_is_missing(store):
    await answer(store, ScoreRequest("prompt 0", (" a", " b")))
    await answer(store, ScoreRequest("prompt 1", (" a",)))
    found = estimate(Plan("m", FP, items(4)), store, FakeBackend())
    assert (found.items, found.cached, found.requests) == (4, 1, 3)
    assert (found.answers, found.answers_cached) == (5, 3)
    assert (found.prompt_tokens, found.tokens_by) == (6, "counted")  # "prompt 1" is two words to the fake


def test_an_estimate_scales_a_sample_and_says_so(store):
    def long_items():
        return (Item(f"i{i}", GenerateRequest("word " * (i % 7 + 1), Sampling(max_tokens=9)), {}) for i in range(3000))

    found = estimate(Plan("m", FP, long_items), store, FakeBackend())
    truth = sum(i % 7 + 1 for i in range(3000))
    assert found.prompt_tokens == pytest.approx(truth, rel=0.02)
    assert found.tokens_by == "estimated from 200 of 3000 prompts"
    assert found.generated_tokens == 27_000


class Hosted(FakeBackend):
    """A server, which is sent a prompt once for each continuation and generates two tokens each time."""

    def request_cost(self, request):
        return RequestCost(len(request.continuations), 2)


@pytest.mark.parametrize(("backend", "sent", "generated"), [(FakeBackend(), 1, 0), (Hosted(), 3, 6)])
def test_an_estimate_counts_a_prompt_as_often_as_it_is_sent(store, backend, sent, generated):
    def few():
        return iter([Item("i", ScoreRequest("one two three four", (" a", " b", " girl")), {})])

    def many():
        return (Item(f"i{i}", ScoreRequest(f"one two three {i}", (" a", " b", " girl")), {}) for i in range(1000))

    found = estimate(Plan("m", FP, few), store, backend)
    assert (found.requests, found.prompt_tokens, found.generated_tokens) == (1, 4 * sent, generated)
    found = estimate(Plan("m", FP, many), store, backend)
    assert found.prompt_tokens == pytest.approx(1000 * 4 * sent, rel=0.01)
    assert found.generated_tokens == 1000 * generated


def test_an_estimate_without_a_tokenizer_says_so(store):
    class NoTokenizer(FakeBackend):
        def count_tokens(self, prompts):
            return None

    found = estimate(Plan("m", FP, items(8)), store, NoTokenizer())
    assert found.prompt_tokens == 16
    assert "4 characters a token" in found.tokens_by

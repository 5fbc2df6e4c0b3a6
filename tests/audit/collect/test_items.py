"""Items kept compressed, and the work of a request relative to others."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.collect.items import PackedItems, estimate_work
from backends.base import ClassifyRequest, GenerateRequest, Message, Sampling, ScoreRequest
from suites.base import Item


@given(st.lists(st.text(alphabet="ab", max_size=12), max_size=8))
def test_work_leaves_out_what_is_shared_with_the_prompt_before(prompts: list[str]) -> None:
    pairs = list(zip(["", *prompts], prompts, strict=False))
    shared = [len(list(takewhile(lambda both: both[0] == both[1], zip(a, b, strict=False)))) for a, b in pairs]
    expected = [max(1, len(b) - common + len(" yes")) for (_, b), common in zip(pairs, shared, strict=True)]
    assert list(estimate_work(ScoreRequest(prompt, (" yes",)) for prompt in prompts)) == expected


def test_generated_tokens_are_more_work_than_read_ones() -> None:
    short, long = (
        GenerateRequest((Message("user", "Count them."),), Sampling(max_tokens=tokens)) for tokens in (8, 512)
    )
    first, second, third = estimate_work([short, long, ClassifyRequest("Some text.")])
    assert second > 20 * first
    assert third == len("Some text.")


def test_packed_items_come_back_in_order_and_are_made_once() -> None:
    made = 0

    def items() -> Iterator[Item]:
        nonlocal made
        for i in range(1300):
            made += 1
            prompt = f"The same words before {i}" if i % 2 else (Message("user", f"\ud800 {i}"),)
            yield Item(f"i{i}", ScoreRequest(prompt, (" a",)), {"t": i, "flag": i % 3 == 0, "none": None})

    packed = PackedItems(items())
    assert made == len(packed) == 1300
    expected = list(items())
    assert list(packed) == list(packed) == expected
    assert [packed[i] for i in (0, 511, 512, 1299)] == [expected[i] for i in (0, 511, 512, 1299)]
    assert list(packed.work) == list(estimate_work(item.request for item in expected))
    with pytest.raises(IndexError):
        packed[1300]


def test_packed_items_take_a_fraction_of_their_memory() -> None:
    def size(make: Callable[[], object]) -> int:
        tracemalloc.start()
        kept = make()
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert kept
        return taken

    def items() -> Iterator[Item]:
        prompt = "Some words that every prompt of a suite has in common, as a task has. "
        return (Item(f"i{i}", ScoreRequest(f"{prompt}{i}", (" a",)), {"t": i % 5}) for i in range(20_000))

    assert size(lambda: PackedItems(items())) < 0.1 * size(lambda: list(items()))

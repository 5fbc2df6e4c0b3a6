"""Estimates of what a run would ask."""

from __future__ import annotations

import pytest

from audit.estimate import count_requests
from audit.store import Store
from backends.base import (
    GenerateRequest,
    RequestCost,
    Sampling,
    ScoreRequest,
)
from backends.fake import FakeBackend
from suites.base import Item
from tests.audit.collect.plans import FP, answer, items


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "audit.db") as opened:
        yield opened


async def test_an_estimate_counts_what_is_missing(store):
    await answer(store, ScoreRequest("prompt 0", (" a", " b")))
    await answer(store, ScoreRequest("prompt 1", (" a",)))
    found = count_requests(items(4)(), FP, FakeBackend(), store)
    assert (found.items, found.requests) == (4, 3)
    assert found.prompt_tokens(FakeBackend()) == (6, "counted")  # "prompt 1" is two words to the fake


def test_an_estimate_scales_a_sample_and_says_so(store):
    def long_items():
        return (Item(f"i{i}", GenerateRequest("word " * (i % 7 + 1), Sampling(max_tokens=9)), {}) for i in range(3000))

    found = count_requests(long_items(), FP, FakeBackend(), store)
    truth = sum(i % 7 + 1 for i in range(3000))
    tokens, tokens_by = found.prompt_tokens(FakeBackend())
    assert tokens == pytest.approx(truth, rel=0.02)
    assert tokens_by == "estimated from 200 of 3000 prompts"
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

    found = count_requests(few(), FP, backend, store)
    assert (found.requests, found.prompt_tokens(backend)[0], found.generated_tokens) == (1, 4 * sent, generated)
    found = count_requests(many(), FP, backend, store)
    assert found.prompt_tokens(backend)[0] == pytest.approx(1000 * 4 * sent, rel=0.01)
    assert found.generated_tokens == 1000 * generated


def test_an_estimate_without_a_tokenizer_says_so(store):
    class NoTokenizer(FakeBackend):
        def count_tokens(self, prompts):
            return None

    tokens, tokens_by = count_requests(items(8)(), FP, NoTokenizer(), store).prompt_tokens(NoTokenizer())
    assert tokens == 16
    assert "4 characters per token" in tokens_by

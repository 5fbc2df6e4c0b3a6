"""Estimates of what a run would ask."""

from __future__ import annotations

import asyncio

import pytest

from audit import Audit
from audit.prepare.forecast.estimate import RequestCounts, dry_run_audit, estimate_seconds, measure_pace
from audit.store import Store, keyed
from backends import FakeBackend
from backends.base import (
    GenerateRequest,
    GenerateResponse,
    RequestCost,
    Sampling,
    ScoreRequest,
)
from suites.base import Item
from suites.genderpair import GenderPair
from suites.occugender import OccuGender
from tests.audit.store.entries import FP, answer_to
from tests.suites.genderpair.planted import SMALL


def items(n, continuations=(" a", " b")):
    return lambda: (Item(f"i{i}", ScoreRequest(f"prompt {i}", continuations), {}) for i in range(n))


async def answer(store, request):
    await store.answers.write([(keyed(request, FP), answer_to(request))], "run-1")


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "audit.db") as opened:
        yield opened


def test_a_question_that_several_items_share_is_asked_once(store):
    shared = (Item(f"i{i}", ScoreRequest(f"prompt {i // 2}", (" a", " b")), {}) for i in range(6))
    found = RequestCounts(FP, FakeBackend(), store).add(shared)
    assert (found.items, found.requests) == (6, 3)


def test_what_follows_a_shared_question_is_counted_for_each_item(store):
    """Two items may ask the same, and go on differently."""

    class Going(OccuGender):
        def follow_ups(self, item, response):
            yield Item(f"{item.id}#more", ScoreRequest(f"then {item.id}", (" a",)), {})

    shared = [Item(f"i{i}", GenerateRequest("prompt", Sampling()), {}) for i in range(3)]
    found = RequestCounts(FP, FakeBackend(), store).add(shared, Going())
    assert (found.requests, found.shared, found.follow_ups) == (1, 2, 3)


async def test_an_estimate_counts_what_is_missing(store):
    await answer(store, ScoreRequest("prompt 0", (" a", " b")))
    await answer(store, ScoreRequest("prompt 1", (" a",)))
    found = RequestCounts(FP, FakeBackend(), store).add(items(4)())
    assert (found.items, found.requests) == (4, 3)
    assert found.prompt_tokens() == (6, "counted")  # "prompt 1" is two words to the fake


def test_an_estimate_scales_a_sample_and_says_so(store):
    def long_items():
        return (
            Item(f"i{i}", GenerateRequest(f"n{i} " + "word " * (i % 7), Sampling(max_tokens=9)), {})
            for i in range(3000)
        )

    found = RequestCounts(FP, FakeBackend(), store).add(long_items())
    truth = sum(i % 7 + 1 for i in range(3000))
    tokens, tokens_by = found.prompt_tokens()
    assert tokens == pytest.approx(truth, rel=0.02)
    assert tokens_by == "estimated from 200 of 3000 prompts"
    assert found.generated_tokens == 27_000


class Hosted(FakeBackend):
    """A server, which is sent a prompt once for each continuation and generates two tokens each time."""

    def request_cost(self, request):
        return RequestCost(len(request.continuations), 0, 2 * len(request.continuations))

    def cost_basis(self):
        return "counted"


@pytest.mark.parametrize(("backend", "sent", "generated"), [(FakeBackend(), 1, 0), (Hosted(), 3, 6)])
def test_an_estimate_counts_a_prompt_as_often_as_it_is_sent(store, backend, sent, generated):
    def few():
        return iter([Item("i", ScoreRequest("one two three four", (" a", " b", " girl")), {})])

    def many():
        return (Item(f"i{i}", ScoreRequest(f"one two three {i}", (" a", " b", " girl")), {}) for i in range(1000))

    found = RequestCounts(FP, backend, store).add(few())
    assert (found.requests, found.prompt_tokens()[0], found.generated_tokens) == (1, 4 * sent, generated)
    found = RequestCounts(FP, backend, store).add(many())
    assert found.prompt_tokens()[0] == pytest.approx(1000 * 4 * sent, rel=0.01)
    assert found.generated_tokens == 1000 * generated


def a_pair_suite(**options):
    return GenderPair(**{"pairs": SMALL, "toxicity": "profanity", "regard": None, **options})


def test_follow_ups_are_counted_as_a_bound(store):
    suite = a_pair_suite()
    found = RequestCounts(FP, FakeBackend(), store).add(suite.items(), suite)
    # of 36 texts: a preference each, a score each; bare words once for each of six pairs; 120 texts test the scorer
    assert (found.requests, found.follow_ups, found.texts_to_score) == (36, 36 + 6, 36 + 120)
    assert found.requests_by_kind == {"generate": 36, "score": 42}
    rated = a_pair_suite(toxicity=FakeBackend("rater"))  # which reads 40 labelled texts about three identities first
    found = RequestCounts(FP, FakeBackend(), store).add(rated.items(), rated)
    assert (found.requests, found.texts_to_score) == (36, 36 + 120)
    plain = a_pair_suite(fallback="none", toxicity=None)
    found = RequestCounts(FP, FakeBackend(), store).add(plain.items(), plain)
    assert (found.requests, found.follow_ups, found.texts_to_score) == (36, 0, 0)


@pytest.mark.parametrize("toxicity", ["profanity", FakeBackend("rater")], ids=["classifier", "rater"])
def test_a_run_asks_no_more_than_its_estimate_and_then_nothing(tmp_path, toxicity):
    def texts(prompt, seed):  # a third of the texts picks nothing
        return "The man walks." if "rude" in prompt else "He is {lazy}, she is {vain}."

    audit = Audit(
        models={"m": FakeBackend(generate=texts)}, suites=[a_pair_suite(toxicity=toxicity)], db=tmp_path / "a.db"
    )
    before = asyncio.run(dry_run_audit(audit)).models[0]
    model = audit.run_sync().models[0].fingerprint_id
    with Store.open(tmp_path / "a.db", read_only=True) as store:
        (asked,) = [one["answers"] for one in store.stats()["models"] if one["fingerprint_id"] == model]
    after = asyncio.run(dry_run_audit(audit)).models[0]
    assert 36 < asked <= before.requests + before.follow_ups
    assert (after.requests, after.follow_ups, after.texts_to_score, after.seconds) == (0, 0, 0, 0.0)


async def test_each_kind_of_request_has_the_pace_of_its_own_answers(store, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("audit.store.answers.time.time", lambda: clock[0])
    for batch in range(6):
        clock[0] += 2.0
        for place in range(4):  # a batch's answers are stored within microseconds
            clock[0] += 1e-5
            request = ScoreRequest(f"{batch} {place}", (" a", " b"))
            await store.answers.write([(keyed(request, FP), answer_to(request))], "run-1")
    clock[0] += 5000  # nothing was asked
    for batch in range(12):
        clock[0] += 10.0
        request = GenerateRequest(f"{batch}", Sampling(max_tokens=100))
        await store.answers.write([(keyed(request, FP), GenerateResponse("t", "stop", 3, 20))], "run-2")
    paces = measure_pace(store, FP)
    assert {kind: pace.answers for kind, pace in paces.items()} == {"score": 20, "generate": 11}
    assert estimate_seconds({"score": 100, "generate": 10}, paces) == pytest.approx(50 + 100, rel=0.01)


async def test_without_enough_answers_there_is_no_pace(store):
    await answer(store, ScoreRequest("prompt 0", (" a", " b")))
    assert measure_pace(store, FP) == {}
    assert estimate_seconds({"score": 10}, {}) is None
    assert estimate_seconds({}, {}) == 0

"""Plans: what is stored is handed on, what is missing is planned."""

import tracemalloc

import pytest

from audit.collect.plan import Plan, Question
from audit.store import Entry, Store, answer_keys, keyed_request
from backends.base import BackendError, ScoreRequest, ScoreResponse
from suites.base import Item
from tests.audit.collect.plans import FP, answer, items, plan_of, score


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "audit.db") as opened:
        yield opened


def chunks(plan, store, size):
    while True:
        chunk = plan.next_chunk(store, size)
        yield chunk
        if chunk.is_last:
            return


def ids(missing):
    return [planned.question.item.id for planned in missing]


async def test_plan_holds_only_the_missing_continuations(store):
    await answer(store, ScoreRequest("prompt 0", (" a", " b")))
    await answer(store, ScoreRequest("prompt 1", (" b",)))
    chunk = plan_of(items(3, (" a", " b", " c")), FP).next_chunk(store)
    asked = {p.question.item.id: p.part.request.continuations for p in chunk.missing}
    assert asked == {"i0": (" c",), "i1": (" a", " c"), "i2": (" a", " b", " c")}
    assert all(p.part.keys == answer_keys(p.part.request, FP) for p in chunk.missing)


async def test_plan_leaves_out_answered_items(store):
    await answer(store, ScoreRequest("prompt 1", (" a", " b")))
    found = list(chunks(plan_of(items(5), FP, work=(1, 2, 4, 8, 16)), store, 2))
    assert [(c.items, len(c.cached), c.cached_work) for c in found] == [(2, 1, 2), (2, 0, 0), (1, 0, 0)]
    assert [item for c in found for item in ids(c.missing)] == ["i0", "i2", "i3", "i4"]


async def test_deferred_questions_are_looked_up_again(store):
    plan = plan_of(items(3), FP)
    first = plan.next_chunk(store, 2)
    await answer(store, ScoreRequest("prompt 1", (" a", " b")))
    second = plan.next_chunk(store, 2, [planned.question for planned in first.missing])
    assert (ids(second.missing), second.items, len(second.cached)) == (["i0", "i2"], 1, 1)


async def test_restricted_plan_begins_anew_with_the_given_keys(store):
    plan = plan_of(items(5), FP)
    plan.look_up_rest(store)
    keys = answer_keys(ScoreRequest("prompt 3", (" b",)), FP)
    assert ids(plan.restricted_to(keys).next_chunk(store).missing) == ["i3"]


class Recording:
    """A sink: what was said of each item, and one follow-up of each answer of the model's own."""

    def __init__(self):
        self.said = []

    def on_answer(self, question, answer):
        self.said.append((question.item.id, answer))
        if not isinstance(answer, ScoreResponse) or "#" in question.item.id:
            return []
        request = ScoreRequest(f"{question.item.request.prompt} more", (" a",))
        item = Item(f"{question.item.id}#more", request, {})
        return [Question(item, keyed_request(request, "fp1-other"), self)]


async def test_sink_is_given_what_is_stored_and_what_follows_from_it(store):
    failed = BackendError("timeout", "no answer")
    await answer(store, ScoreRequest("prompt 0", (" a", " b")))
    await store.answers.write([Entry(keyed_request(ScoreRequest("prompt 1", (" a", " b")), FP), failed)])
    sink = Recording()
    plan = Plan(FP, lambda: (Question(i, keyed_request(i.request, FP), sink) for i in items(3)()))
    assert ids(plan.next_chunk(store).missing) == ["i1", "i2"]
    assert [item for item, _ in sink.said] == ["i0", "i1", "i2", "i0#more"]
    assert sink.said[0][1] == score(" a", " b")
    assert sink.said[1][1].kind == "timeout"
    assert [answer for _, answer in sink.said[2:]] == [None, None]


async def test_answer_to_a_part_is_delivered_with_the_stored_rest(store):
    await answer(store, ScoreRequest("prompt 0", (" b",)))
    sink, request = Recording(), ScoreRequest("prompt 0", (" a", " b", " c"))
    plan = Plan(FP, lambda: [Question(Item("i", request, {}), keyed_request(request, FP), sink)])
    [planned] = plan.next_chunk(store).missing
    planned.deliver(score(" a", " c"))
    assert sink.said == [("i", None), ("i", score(" a", " b", " c"))]


def test_a_plan_of_100_000_items_takes_bounded_memory(store):
    def count(n):
        tracemalloc.start()
        asked = sum(len(chunk.missing) for chunk in chunks(plan_of(items(n), FP), store, 256))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return asked, peak

    few, peak_few = count(2_000)
    many, peak_many = count(20_000)
    assert (few, many) == (2_000, 20_000)
    assert peak_many < 1.3 * peak_few

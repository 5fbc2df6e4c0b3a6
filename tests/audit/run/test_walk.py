"""The way of a datum: how often a run makes, splits, keys and decodes each of its items."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from audit import Audit
from audit.run import answer_collector
from audit.store import codecs, keys
from audit.store.answers import rows
from backends.base import GenerateRequest
from backends.stand_ins.fake import FakeBackend
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite

N_ITEMS = 1000
#: Times made → items: the first 20 are made twice more before a run, to see that they stay the same.
MADE = {1: N_ITEMS - 20, 3: 20}


class Counted(Suite):
    """One text an item, and perhaps a question about each text."""

    name = "counted"
    strata = ("level",)
    needs = frozenset({"generate"})

    def __init__(self, follows: bool = False) -> None:
        self.made: Counter[str] = Counter()
        self.follows = follows

    def items(self):
        for i in range(N_ITEMS):
            self.made[f"i{i}"] += 1
            yield Item(f"i{i}", GenerateRequest(f"prompt {i}"), {"level": i % 5})

    def follow_ups(self, item, response):
        if self.follows and "#" not in item.id:
            yield Item(f"{item.id}#more", GenerateRequest(f"{item.request.prompt} more"), item.factors)

    def signature(self):
        return {}

    def read(self, item, response):
        return Row(item.id, item.factors, {"length": IdentifiedInterval.exact(float(len(response.text)))})

    def derive(self, rows):
        """What would have followed a missing answer is missing too."""
        lost = [row for row in rows if self.follows and row.missing and "#" not in row.item_id]
        return [*rows, *(replace(row, item_id=f"{row.item_id}#more") for row in lost)]

    def measures(self, rows):
        for level in range(5):
            yield MeasureSpec("length", "length", {"level": level})


@dataclass
class Walk:
    """How often each request was split, each question keyed and each answer decoded."""

    split: Counter[str] = field(default_factory=Counter)
    keyed: Counter[str] = field(default_factory=Counter)
    decoded: Counter[str] = field(default_factory=Counter)


@pytest.fixture
def walk(monkeypatch):
    counts = Walk()
    one_at_a_time = threading.Lock()  # each model's items are keyed in a thread of its own

    def counting(module, name, counter, subject):
        real = getattr(module, name)

        def counted(*args):
            result = real(*args)
            with one_at_a_time:
                counter[subject(args, result)] += 1
            return result

        monkeypatch.setattr(module, name, counted)

    counting(keys, "split_request", counts.split, lambda args, _: args[0].prompt)
    for module in (keys, answer_collector):
        counting(module, "keyed_request", counts.keyed, lambda args, _: args)
    for module in (codecs, rows):
        counting(module, "answer_from_json", counts.decoded, lambda _, answer: answer.text)
    return counts


def run(tmp_path, suite, models=1, limit=None):
    texts = {f"m{i}": FakeBackend(f"m{i}", generate=lambda prompt, _, i=i: f"{i} says {prompt}") for i in range(models)}
    result = Audit(texts, [suite], db=tmp_path / "a.db", out=tmp_path / "out", limit=limit).run_sync()
    assert result.complete
    return result


def test_fresh_run_makes_splits_and_keys_each_item_once(tmp_path, walk):
    suite = Counted()
    run(tmp_path, suite)
    assert Counter(suite.made.values()) == MADE
    assert Counter(walk.split.values()) == Counter(walk.keyed.values()) == {1: N_ITEMS}
    assert not walk.decoded


def test_cached_run_also_decodes_each_answer_once(tmp_path, walk):
    first = run(tmp_path, Counted())
    walk.split.clear()
    walk.keyed.clear()
    suite = Counted()
    second = run(tmp_path, suite)
    assert Counter(suite.made.values()) == MADE
    assert Counter(walk.split.values()) == Counter(walk.keyed.values()) == {1: N_ITEMS}
    assert Counter(walk.decoded.values()) == {1: N_ITEMS}
    assert [e.model_dump() for e in first.examples] == [e.model_dump() for e in second.examples] != []


def test_several_models_share_the_items_of_one_walk(tmp_path, walk):
    suite = Counted()
    run(tmp_path, suite, models=3)
    assert Counter(suite.made.values()) == MADE
    assert Counter(walk.split.values()) == {3: N_ITEMS}
    assert Counter(walk.keyed.values()) == {1: 3 * N_ITEMS}


@pytest.mark.parametrize("cached", [False, True])
def test_limited_run_makes_all_items_once_and_walks_the_sample(tmp_path, walk, cached):
    if cached:
        run(tmp_path, Counted(), limit=100)
        walk.split.clear()
        walk.keyed.clear()
    suite = Counted()
    run(tmp_path, suite, limit=100)
    assert Counter(suite.made.values()) == MADE
    assert Counter(walk.split.values()) == Counter(walk.keyed.values()) == {1: 100}
    assert Counter(walk.decoded.values()) == ({1: 100} if cached else {})


@pytest.mark.parametrize("cached", [False, True])
def test_follow_ups_are_walked_once_too(tmp_path, walk, cached):
    if cached:
        run(tmp_path, Counted(follows=True))
        walk.split.clear()
        walk.keyed.clear()
    suite = Counted(follows=True)
    result = run(tmp_path, suite)
    assert result.data_quality[0].n_items == 2 * N_ITEMS
    assert Counter(suite.made.values()) == MADE
    assert Counter(walk.split.values()) == Counter(walk.keyed.values()) == {1: 2 * N_ITEMS}
    assert Counter(walk.decoded.values()) == ({1: 2 * N_ITEMS} if cached else {})

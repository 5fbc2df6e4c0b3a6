"""Answers come back as they were given, are asked in parts, and are set aside once they cannot be believed."""

from __future__ import annotations

import dataclasses
import random
import struct
import time

import pytest

from audit.store import Partly, Store, Stored, keyed
from audit.store.rows import decode, encode
from backends.base import (
    ClassifyRequest,
    ClassifyResponse,
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Message,
    Sampling,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import BackendError
from tests.audit.store.entries import FP, answer_to, answers_by_key, entry, found, put, question, sql, text_entry


def random_score(draw: random.Random) -> ContinuationScore:
    tokens = tuple(
        TokenLogprob(draw.choice(["a", " b", "\ud800", "é\n"]), i, i + 1, -draw.random(), draw.choice([None, 7]))
        for i in range(draw.randint(0, 3))
    )
    kind = draw.choice(["exact", "zero", "bounded", "sampled", "unseen"])
    if kind == "exact":
        return ContinuationScore.exact(tokens, route="tree")
    if kind == "zero":
        return ContinuationScore(0.0, 0.0, 0.0, tokens=tokens)
    if kind == "bounded":
        return ContinuationScore(None, None, -draw.random(), "bounded", "straddled", tokens, "top_k")
    value = -draw.random()
    low = None if kind == "unseen" else value - 1
    return ContinuationScore(None if kind == "unseen" else value, low, value / 2, "sampled", samples=20)


@pytest.mark.parametrize("seed", range(40))
def test_scores_survive_to_the_last_bit(seed):
    draw = random.Random(seed)
    texts = tuple(f" word {i}" + draw.choice(["", "\ud800"]) for i in range(draw.randint(1, 30)))
    answer = ScoreResponse(tuple(random_score(draw) for _ in texts), draw.randint(0, 2**40))
    request = ScoreRequest("" if draw.random() < 0.3 else (Message("user", "\ud800"),), texts)
    details, run, same = decode(encode(request, 3, answer))
    assert (details, run, same) == (["score", list(texts), False], 3, answer)
    numbers = [[t.logprob for t in s.tokens] + [s.high] for s in same.scores]
    wanted = [[t.logprob for t in s.tokens] + [s.high] for s in answer.scores]
    assert [struct.pack(f"{len(n)}d", *n) for n in numbers] == [struct.pack(f"{len(n)}d", *n) for n in wanted]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (GenerateRequest("p", Sampling(0.7, stop=("\n",)), 3, 2), GenerateResponse("\ud800", "stop", 3, 4, "hm", 2)),
        (ClassifyRequest("text"), ClassifyResponse({"toxic": 0.1, "a": 1e-300})),
        (ScoreRequest("", ("a whole text",), True), answer_to(ScoreRequest("", ("a whole text",), True))),
    ],
)
def test_every_kind_of_answer_comes_back(store, request_, answer):
    key = keyed(request_, FP)
    assert put(store, (key, answer)) == [True]
    (stored,) = store.answers.read([key])
    assert (stored.answer, stored.run) == (answer, "run-1")
    assert abs(stored.at - time.time()) < 60
    assert store.answers.by_keys([key.key])[key.key].request == request_
    assert store.answers.verify() == dataclasses.replace(store.answers.verify(), answers=1, damaged=())


def test_what_differs_in_anything_has_another_key():
    chat = (Message("user", "p"),)
    requests = [
        *(ScoreRequest(p, c) for p in ("p", "p ", chat, "e\u0301", "\u00e9") for c in ((" a",), (" b",), (" a", " b"))),
        ScoreRequest("", ("p",)),
        ScoreRequest("", ("p",), first_given=True),
        *(GenerateRequest("p", Sampling(t, max_tokens=m), s) for t in (0, 1) for m in (1, 2) for s in (0, 1)),
        GenerateRequest("p", repeat=1),
        ClassifyRequest("p"),
    ]  # fmt: skip
    keys = {keyed(request, model, run).key for request in requests for model in (FP, "other") for run in (1, 2)}
    assert len(keys) == 4 * len(requests)
    assert keyed(GenerateRequest("p", Sampling(0)), FP) == keyed(GenerateRequest("p", Sampling(0.0)), FP)


def test_an_added_continuation_asks_only_for_itself(store):
    put(store, entry(1, continuations=(" a", " b")))
    more = keyed(question(1, (" a", " c", " b")), FP)
    (partly,) = store.answers.read([more])
    assert isinstance(partly, Partly)
    left = partly.left(more.request)
    assert left == ScoreRequest("prompt 1", (" c",))
    whole = partly.joined(more.request, answer_to(left))
    assert whole == answer_to(more.request)
    put(store, (more, whole))
    assert found(store, more) == [whole]


def test_the_first_answer_stays(store):
    first, other = entry(1), entry(1, GenerateResponse("x", "stop"))
    changed = (first[0], dataclasses.replace(first[1], prompt_tokens=99))
    assert put(store, first, text_entry(2)) == [True, True]
    assert put(store, changed, text_entry(3)) == [False, True]
    assert found(store, first[0]) == [first[1]]
    assert other[0] == first[0]


def test_a_damaged_row_is_set_aside_and_asked_again(store, path):
    put(store, *(entry(i) for i in range(5)))
    for column, value in (("value", b"x"), ("value", None), ("run", "y"), ("at", 1.0), ("checksum", "a text")):
        key = sql(path, "SELECT id FROM answers ORDER BY id LIMIT 1")[0][0]
        if value is None:
            sql(path, "UPDATE answers SET value = value || x'00' WHERE id = ?", key)
        else:
            sql(path, f"UPDATE answers SET {column} = ? WHERE id = ?", value, key)
        keys = [entry(i)[0] for i in range(5)]
        before = sum(one is None for one in found(store, *keys))
        assert sum(one is None for one in store.answers.read(keys)) == before
    assert sum(one is None for one in found(store, *[entry(i)[0] for i in range(5)])) == 5
    assert store.stats()["quarantine"] == 5
    assert put(store, entry(0)) == [True]


def test_verify_finds_what_no_question_has_met(store, path):
    put(store, *(entry(i) for i in range(3)), text_entry(9))
    sql(path, "UPDATE prompts SET body = '\"another\"' WHERE id = (SELECT text FROM answers ORDER BY id LIMIT 1)")
    sql(path, "UPDATE answers SET fingerprint = 'fp2-other' WHERE id = 2")
    checked = store.answers.verify()
    assert (checked.answers, len(checked.damaged), checked.sound) == (4, 2, False)
    assert store.answers.verify().sound


def test_answers_are_set_aside_by_key_and_since_a_time(store):
    put(store, entry(1), entry(1, continuations=(" a",)), entry(2))
    assert len(store.answers.quarantine([entry(1)[0].key], "why")) == 2  # those to the same prompt may share scores
    assert found(store, entry(1)[0], entry(2)[0]) == [None, entry(2)[1]]
    assert store.answers.quarantine_since(FP, time.time() + 60, "why") == []
    assert store.answers.quarantine_since(FP, 0, "why") == [entry(2)[0].key]


def test_inspect_tells_model_question_answer_and_failure(store):
    import asyncio

    store.know({"model": "m"})
    put(store, entry(1))
    told = store.answers.inspect(entry(1)[0].key)
    assert (told["fingerprint"], told["prompt"], told["checksum"]) == ({"model": "m"}, "prompt 1", "right")
    assert [score["continuation"] for score in told["answer"]["scores"]] == list(question(1).continuations)
    asyncio.run(store.answers.fail(entry(2)[0], BackendError("timeout", "too slow")))
    told = store.answers.inspect(entry(2)[0].key)
    assert (told["answered"], told["failures"][0]["error"]["kind"]) == (False, "timeout")
    assert store.answers.inspect("a2-nonsense") is None


@pytest.mark.parametrize("shards", [1, 4])
def test_a_store_of_several_files_is_the_same(tmp_path, shards):
    with Store.open(tmp_path / "a.db", shards=shards) as store:
        entries = [entry(i) for i in range(40)]
        assert all(put(store, *entries))
        assert found(store, *(key for key, _ in entries)) == [answer for _, answer in entries]
        assert set(answers_by_key(store, [key.key for key, _ in entries])) == {key.key for key, _ in entries}
        assert store.answers.verify().answers == store.stats()["answers"] == 40
        store.backup(tmp_path / "copy.db")
    assert len(list(tmp_path.glob("a.shard-*.db"))) == (0 if shards == 1 else shards)
    with Store.open(tmp_path / "copy.db", read_only=True) as copy:
        assert copy.n_shards == shards
        assert isinstance(copy.answers.read([entry(7)[0]])[0], Stored)

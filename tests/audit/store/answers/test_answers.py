"""Answers: read back exactly, checked at each reading, quarantined when damaged."""

from __future__ import annotations

import pytest

from audit.store import Entry, Store, answer_keys, join_answers, keyed_request
from audit.store.answers.rows import AnswerRow
from audit.store.answers.values import Verification
from audit.store.keys import prompt_id
from backends.base import (
    GenerateRequest,
    GenerateResponse,
    ScoreResponse,
)
from backends.errors import BackendError
from tests.audit.store.entries import FP, answer_to, answers_by_key, entry, put, question, sql, text_entry


def test_answers_read_back_exactly_after_reopening(path):
    written = [entry(i) for i in range(600)]
    with Store.open(path) as store:
        put(store, *written)
    with Store.open(path) as store:
        keys = [k for e in written for k in e.question.keys]
        found = answers_by_key(store, keys)
        assert set(found) == set(keys)
        assert all(join_answers(e.question.request, e.question.keys, found) == e.answer for e in written)
        by_request = store.answers.read(e.question for e in written)
        assert all(by_request.answer(e.question) == e.answer for e in written)


def test_an_unknown_key_is_absent(store):
    assert answers_by_key(store, ["a1-none"]) == {}
    assert store.answers.inspect("a1-none") is None


def test_a_failure_is_stored_but_not_answered(store):
    first = entry(1, BackendError("server", "broken"))
    keys = first.question.keys
    put(store, first)
    put(store, entry(1, BackendError("timeout", "slow", retryable=True)))
    assert store.answers.answered([first.question]) == set(answers_by_key(store, keys)) == set()
    found = store.answers.read([first.question]).answer(first.question)
    assert isinstance(found, BackendError)
    assert found.kind == "timeout"
    assert store.stats()["failures"] == 4  # two attempts at two continuations
    put(store, entry(1))
    assert answers_by_key(store, keys)[keys[0]] == ScoreResponse(answer_to(question(1)).scores[:1], 5)
    assert [f["error"]["kind"] for f in store.answers.inspect(keys[0])["failures"]] == [
        "server",
        "timeout",
    ]


def test_the_first_answer_under_a_key_stays(store):
    request = GenerateRequest("p")
    keys = answer_keys(request, FP)
    for text in ("first", "second"):
        put(store, Entry(keyed_request(request, FP), GenerateResponse(text, "stop")))
    assert answers_by_key(store, keys)[keys[0]].text == "first"


@pytest.mark.parametrize("column", ["body", "detail", "fingerprint", "prompt"])
def test_a_changed_row_is_quarantined_and_asked_again(path, column):
    with Store.open(path) as store:
        put(store, text_entry(1), text_entry(2))
    (key,), (other,) = text_entry(1).question.keys, text_entry(2).question.keys
    [(value,)] = sql(path, f"SELECT {column} FROM answers WHERE key = ?", key)
    changed = value[:-1] + (b"7" if isinstance(value, bytes) else "7")
    assert changed != value
    sql(path, f"UPDATE answers SET {column} = ? WHERE key = ?", changed, key)
    with Store.open(path) as store:
        assert store.answers.answered([text_entry(1).question, text_entry(2).question]) == {other}
        assert set(answers_by_key(store, [key, other])) == {other}
        assert store.answers.inspect(key)["quarantine"][0]["problem"] == "checksum"
        put(store, text_entry(1))
        assert set(answers_by_key(store, [key])) == {key}


def test_reading_finds_a_changed_row(path):
    with Store.open(path) as store:
        put(store, text_entry(1))
    (key,) = text_entry(1).question.keys
    sql(path, "UPDATE answers SET body = ? WHERE key = ?", "no longer bytes", key)
    with Store.open(path, read_only=True) as store:  # cannot set it aside, and must not take it either
        assert answers_by_key(store, [key]) == {}
        assert store.answers.answered([text_entry(1).question]) == set()
    with Store.open(path) as store:
        assert store.answers.read([text_entry(1).question]).answer(text_entry(1).question) is None
        assert store.answers.inspect(key)["quarantine"][0]["problem"] == "checksum"


def test_verify_finds_a_row_with_a_forged_checksum(path):
    """Each key is hashed again from what is stored: an answer moved under another key is seen."""
    with Store.open(path) as store:
        put(store, text_entry(1), text_entry(2))
        assert store.answers.verify() == Verification(2, (), ())
    one, two = text_entry(1).question.keys[0], text_entry(2).question.keys[0]
    [row] = sql(path, "SELECT fingerprint, kind, prompt, detail, body FROM answers WHERE key = ?", two)
    forged = AnswerRow.make(one, *row, at=0.0).checksum
    sql(
        path,
        "UPDATE answers SET fingerprint=?, kind=?, prompt=?, detail=?, body=?, checksum=? WHERE key=?",
        *row,
        forged,
        one,
    )
    with Store.open(path) as store:
        assert store.answers.verify().damaged == (one,)
        assert answers_by_key(store, [one]) == {}
        assert store.answers.verify().sound


def test_verify_finds_a_changed_prompt(path):
    with Store.open(path) as store:
        put(store, text_entry(1))
    sql(path, "UPDATE prompts SET body = ?", b'"another prompt"')
    with Store.open(path) as store:
        assert store.answers.verify().damaged == text_entry(1).question.keys


@pytest.mark.parametrize("make", [entry, text_entry])
@pytest.mark.parametrize("damaged", [b'"another prompt"', b'"cut of', "text"])
def test_a_changed_prompt_is_repaired_by_its_next_answer(path, damaged, make):
    with Store.open(path) as store:
        put(store, make(1), make(2))
        n_answers = store.stats()["answers"]
    key, name = make(1).question.keys[0], prompt_id("prompt 1")
    sql(path, "UPDATE prompts SET body = ? WHERE id = ?", damaged, name)
    with Store.open(path) as store:
        found = store.answers.verify().damaged
        assert [shown[:11] for shown in found] == [key[:11] for key in make(1).question.keys]
        assert store.answers.inspect(key)["quarantine"][0]["problem"] == "found by verify"
        put(store, make(1))
        assert store.answers.verify() == Verification(n_answers, (), ())
        assert store.answers.inspect(key)["prompt"] == "prompt 1"


def test_inspect_shows_model_question_and_answer(store):
    store.fingerprints.resolve({"model": "m"})
    e = entry(3)
    put(store, e)
    found = store.answers.inspect(e.question.keys[1])
    assert found["fingerprint"] == {"model": "m"}
    assert found["prompt"] == "prompt 3"
    assert found["detail"] == " b\x00\ud800"
    assert found["checksum"] == "right"
    assert found["answer"][1][0][0] == e.answer.scores[1].logprob

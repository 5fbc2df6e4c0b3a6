"""Merging: every answer is checked, the first under a key stays, nothing of the other stores changes."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3

import pytest

from audit.store import AnswerPair, Entry, Store, keyed_request
from audit.store.answers.merging import Merged
from audit.store.answers.values import Verification
from backends.base import GenerateResponse
from backends.errors import BackendError, ConfigError
from tests.audit.store.answers.test_packed import scored, stored
from tests.audit.store.data import make_row_store as older
from tests.audit.store.entries import FP, entry, put, sql, text_entry


@pytest.fixture
def other(tmp_path):
    with Store.open(tmp_path / "other.db") as opened:
        yield opened


def test_answers_of_every_form_are_merged_once(store, other):
    other.fingerprints.resolve({"model": "m"})
    entries = [scored("p"), scored("p", ["later"]), text_entry(1), entry(2)]
    put(other, *entries, Entry(text_entry(3).question, BackendError("server", "broken")))
    before = other.path.read_bytes()
    assert store.merge(other) == Merged(30, 30, [])
    assert store.merge(other) == Merged(30, 0, [])
    assert other.path.read_bytes() == before
    for one in entries:
        assert stored(store, one) == one.answer
    assert store.answers.verify() == Verification(30, (), ())
    assert store.stats()["failures"] == 0
    assert store.answers.inspect(text_entry(1).question.keys[0])["fingerprint"] == {"model": "m"}
    times = [[answer.at for answer in opened.answers.latest(FP, 99)] for opened in (store, other)]
    assert times[0] == times[1]


def test_the_first_answer_under_a_key_is_final(store, other):
    put(store, scored("p", "bc"), text_entry(1))
    put(other, scored("p", "abcd", -9.0), scored("p", "e", -9.0), text_entry(1), scored("q", "c"))
    found = store.merge(other)
    assert (found.answers, found.new, found.damaged, found.others) == (7, 4, [], 2)
    assert [round(score.logprob) for score in stored(store, scored("p", "abcde")).scores] == [-9, -1, -1, -9, -9]
    assert store.answers.verify() == Verification(7, (), ())


def test_a_store_with_an_answer_a_row_is_merged(store, path, tmp_path):
    with Store.open(shutil.copy(older.STORE, tmp_path / "older.db"), read_only=True) as source:
        assert store.merge(source) == Merged(164, 164, [])
    assert store.answers.verify() == Verification(164, (), ())
    name = store.fingerprints.resolve(older.FINGERPRINT)
    for request, answer in older.answered():
        assert stored(store, Entry(keyed_request(request, name), answer)) == answer
    assert len(store.second_answers.read(name)) == 1


def test_damaged_rows_are_set_aside_and_named(store, other):
    put(other, scored("p", "ab"), scored("q", "ab"), scored("r", "ab"), text_entry(1), text_entry(2), text_entry(3))
    sql(other.path, "UPDATE packed_scores SET body = zeroblob(9) WHERE id = 1")
    sql(other.path, "UPDATE answers SET body = 'x' WHERE key = ?", text_entry(1).question.keys[0])
    sql(other.path, "UPDATE answers SET key = 'a1-forged' WHERE key = ?", text_entry(2).question.keys[0])
    sql(other.path, "UPDATE prompts SET body = 'x' WHERE body = ?", b'"r"')
    found = store.merge(other)
    assert (found.answers, found.new) == (9, 3)
    begun = [key[:11] for key in (*scored("p", "ab").question.keys, *scored("r", "ab").question.keys)]
    assert sorted(name[:11] for name in found.damaged) == sorted(
        [*begun, "a1-forged", text_entry(1).question.keys[0][:11]]
    )
    assert store.answers.verify() == Verification(3, (), ())
    assert store.stats()["quarantine"] == 6
    store.merge(other)
    assert store.stats()["quarantine"] == 6
    assert other.stats()["quarantine"] == 0


def test_a_pair_that_lacks_its_second_answer_gets_it(store, other):
    question, answer = scored("p", "ab").question, scored("p", "ab").answer
    for opened, second in ((store, None), (other, answer)):
        asyncio.run(opened.second_answers.write(AnswerPair(FP, question.keys, answer, second)))
    store.merge(other)
    assert [pair.second for pair in store.second_answers.read(FP)] == [answer]
    other.merge(store)
    assert [pair.second for pair in other.second_answers.read(FP)] == [answer]


@pytest.fixture
def reading_only(tmp_path, monkeypatch):
    """A store as in another team's folder, where SQLite cannot make the file that it reads a log by."""
    with Store.open(tmp_path / "other.db") as other:
        put(other, entry(1))
    connect = sqlite3.connect

    def refusing(file, **options):
        if str(file).endswith("other.db?mode=ro"):
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return connect(file, **options)

    monkeypatch.setattr(sqlite3, "connect", refusing)
    return tmp_path / "other.db"


def test_a_store_in_a_folder_for_reading_only_is_merged(store, reading_only):
    with Store.open(reading_only, read_only=True) as other:
        assert store.merge(other) == Merged(2, 2, [])


def test_a_log_that_cannot_be_read_is_not_left_out(reading_only):
    reading_only.with_name("other.db-wal").write_bytes(b"answers")
    with pytest.raises(ConfigError, match="cannot be opened"):
        Store.open(reading_only, read_only=True)


def test_answers_that_are_others_here_are_counted(store, other):
    put(store, scored("p", "ab"), scored("q", "ab"), scored("r", "ab", -2.0), text_entry(1), text_entry(2))
    put(other, scored("p", "ab"), scored("q", "ab", -1.5), scored("r", "abc", -2.25), text_entry(1))
    put(other, Entry(text_entry(2).question, GenerateResponse("another", "stop")))
    found = store.merge(other)
    assert (found.answers, found.new, found.others) == (9, 1, 5)
    assert found.apart == pytest.approx(0.5)
    found = other.merge(store)
    assert (found.new, found.others) == (0, 5)


def test_a_pair_counts_only_with_the_answer_that_counts(store, other):
    mine, theirs = scored("p", "ab"), scored("p", "ab", -3.0)
    put(store, mine)
    put(other, theirs, scored("q", "ab"))
    for one in (theirs, scored("q", "ab"), scored("no answer any more", "ab")):
        asyncio.run(other.second_answers.write(AnswerPair(FP, one.question.keys, one.answer, one.answer)))
    store.merge(other)
    kept = {pair.keys for pair in store.second_answers.read(FP)}
    assert kept == {scored(prompt, "ab").question.keys for prompt in ("q", "no answer any more")}


def test_a_store_is_not_merged_into_itself(store):
    with Store.open(store.path, read_only=True) as same, pytest.raises(ConfigError, match="merge into"):
        store.merge(same)

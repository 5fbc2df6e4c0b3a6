"""Packed scores: a row for all continuations of a prompt, found by request and by key, checked at each reading."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import sqlite3

import pytest

from audit import Audit
from audit.store import Entry, Store, answer_keys, join_answers, keyed_request
from audit.store.answers.packed import MOST_ROWS, PackedRow
from audit.store.answers.values import Verification
from backends import FakeBackend
from backends.base import ContinuationScore, GenerateRequest, ScoreRequest, ScoreResponse, TokenLogprob
from backends.errors import BackendError
from tests.audit.store.data import make_row_store as older
from tests.audit.store.entries import FP, answers_by_key, in_child, put, sql, text_entry

WORDS = tuple(f" word {i}" for i in range(26))


def scored(prompt, continuations=WORDS, logprob=-1.0, *, first_given=False):
    """An entry whose every continuation has a log-probability of its own."""
    scores = tuple(
        ContinuationScore.exact([TokenLogprob(c, 0, len(c), logprob - 1 / (7 + i), i)], route="tree")
        for i, c in enumerate(continuations)
    )
    request = ScoreRequest(prompt, tuple(continuations), first_given)
    return Entry(keyed_request(request, FP), ScoreResponse(scores, 9))


def stored(store, entry):
    """What is stored of an entry's request, found by request and by key alone."""
    question = entry.question
    by_request = store.answers.read([question]).answer(question)
    assert by_request == join_answers(question.request, question.keys, answers_by_key(store, question.keys))
    return by_request


def tables(store):
    """Rows of packed scores, and answers that are rows of their own."""
    return tuple(sql(store.path, f"SELECT count(*) FROM {name}")[0][0] for name in ("packed_scores", "answers"))


def test_26_continuations_are_one_row_of_few_bytes(path):
    entries = [scored(f"Q: Picture a nurse in town {i}. What is their gender?\nA:", logprob=-i) for i in range(300)]
    with Store.open(path) as store:
        empty = path.stat().st_size
        put(store, *entries)
        assert tables(store) == (300, 0)
        assert store.stats()["answers"] == 300 * 26
        assert all(stored(store, entry) == entry.answer for entry in entries)
    assert (path.stat().st_size - empty) / 300 < 2500


def test_a_continuation_added_later_is_a_further_row(store):
    put(store, scored("p", "abc"))
    more = scored("p", "abcdef", logprob=-5.0)
    found = store.answers.read([more.question])
    part = more.question.without(found.parts(more.question))
    assert part.request.continuations == ("d", "e", "f")
    assert found.answer(more.question) is None
    put(store, Entry(part, ScoreResponse(more.answer.scores[3:], 9)), scored("p", "g"))
    assert tables(store) == (2, 1)
    together = stored(store, scored("p", "gfabcde"))
    assert [score.tokens[0].text for score in together.scores] == list("gfabcde")
    assert together.scores[2:5] == scored("p", "abc").answer.scores
    assert store.answers.verify() == Verification(7, (), ())


@pytest.mark.parametrize("at_once", [False, True])
def test_the_first_answer_to_each_continuation_stays(store, at_once):
    entries = [scored("p", "b"), scored("p", "abc", -2.0), scored("p", "cd", -3.0), scored("p", "d", -4.0)]
    if at_once:
        put(store, *entries)
    else:
        for entry in entries:
            put(store, entry)
    values = [round(score.logprob) for score in stored(store, scored("p", "abcd")).scores]
    assert values == [-2, -1, -2, -3]
    assert store.answers.verify() == Verification(4, (), ())


def test_many_requests_of_one_prompt_are_found_one_by_one(store):
    """As sentences with nothing before them are: all of the same, empty prompt."""
    pairs = [scored("", (f"one {i}", f"other {i}"), -i, first_given=True) for i in range(40)]
    put(store, *pairs)
    assert tables(store) == (MOST_ROWS, 2 * (40 - MOST_ROWS))
    assert all(stored(store, pair) == pair.answer for pair in pairs)
    assert store.answers.answered([pair.question for pair in pairs]) == {k for p in pairs for k in p.question.keys}
    scored_after_a_start = scored("", ("one 1", "other 1"), -90.0)
    assert stored(store, scored_after_a_start) is None
    put(store, scored_after_a_start)
    assert stored(store, scored_after_a_start) == scored_after_a_start.answer != pairs[1].answer


def test_keys_find_rows_that_another_store_object_wrote(path):
    with Store.open(path) as one, Store.open(path) as two:
        for entry in (scored("p"), scored("q"), scored("p", "xy")):
            put(two, entry)
            assert stored(one, entry) == entry.answer
        assert one.answers.inspect(scored("q").question.keys[3])["detail"] == WORDS[3]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", "zeroblob(40)"),
        ("body", "'text'"),
        ("body", "CAST(substr(body, 1, length(body) - 8) || x'0000000000000000' AS BLOB)"),
        ("fingerprint", "'fp1-other'"),
        ("fingerprint", "CAST(x'667031ff' AS TEXT)"),
        ("prompt", "'p1-other'"),
        ("answers", "25"),
        ("checksum", "x'00'"),
    ],
)
def test_a_changed_packed_row_is_quarantined_and_asked_again(path, column, value):
    damaged, sound = scored("p"), scored("q")
    with Store.open(path) as store:
        put(store, damaged, sound)
    sql(path, f"UPDATE packed_scores SET {column} = {value} WHERE id = 1")
    with Store.open(path, read_only=True) as store:  # cannot set it aside, and must not take it either
        assert store.answers.answered([damaged.question]) == set()
        assert set(answers_by_key(store, damaged.question.keys)) == set()
    with Store.open(path) as store:
        assert stored(store, damaged) is None
        assert stored(store, sound) == sound.answer
        assert tables(store) == (1, 0)
        assert store.stats()["quarantine"] == 26
        for key in damaged.question.keys:
            assert store.answers.inspect(key)["quarantine"][0]["problem"] == "checksum"
        put(store, damaged)
        assert stored(store, damaged) == damaged.answer
        assert store.answers.verify() == Verification(52, (), ())


@pytest.mark.parametrize("column", ["grp", "body"])
def test_verify_finds_a_changed_packed_row(path, column):
    with Store.open(path) as store:
        put(store, scored("p"), scored("q"))
    sql(path, f"UPDATE packed_scores SET {column} = zeroblob(20) WHERE id = 1")
    with Store.open(path) as store:
        found = store.answers.verify()
        assert (found.answers, len(found.damaged)) == (52, 26)
        assert [name[:11] for name in found.damaged] == [key[:11] for key in scored("p").question.keys]
        assert store.answers.inspect(scored("p").question.keys[4])["quarantine"][0]["problem"] == "found by verify"
        assert store.answers.verify() == Verification(26, (), ())


def test_verify_finds_a_packed_row_with_a_forged_checksum(path):
    """Each key is hashed again from what is stored: answers moved to another prompt are seen."""
    moved = dataclasses.replace(scored("q").question, group=scored("p").question.group)
    forged = PackedRow.make(moved, scored("q").answer, at=1.0)
    with Store.open(path) as store:
        put(store, scored("p"), scored("q"))
    columns = "prompt = ?, body = ?, checksum = ?"
    sql(path, f"UPDATE packed_scores SET {columns} WHERE id = 1", forged.prompt, forged.body, forged.checksum)
    with Store.open(path) as store:
        assert len(store.answers.verify().damaged) == 26
        assert stored(store, scored("p")) is None
        assert store.answers.verify() == Verification(26, (), ())


def test_wrong_beginnings_of_keys_are_made_anew_by_verify(path):
    with Store.open(path) as store:
        put(store, scored("p"), scored("q"))
    sql(path, "UPDATE packed_keys SET tags = zeroblob(104) WHERE id = 1")
    sql(path, "DELETE FROM packed_keys WHERE id = 2")
    with Store.open(path) as store:
        assert answers_by_key(store, scored("p").question.keys) == {}
        assert store.answers.read([scored("p").question]).answer(scored("p").question) == scored("p").answer
        assert store.answers.verify() == Verification(52, (), (), 2)
    with Store.open(path) as store:
        assert store.answers.verify() == Verification(52, (), (), 0)
        assert stored(store, scored("p")) == scored("p").answer
        assert stored(store, scored("q")) == scored("q").answer


def test_quarantine_takes_some_answers_of_a_packed_row(path):
    entry = scored("p", "abcde")
    keys = entry.question.keys
    with Store.open(path) as one, Store.open(path) as two:
        put(one, entry)
        assert one.answers.quarantine([keys[1], "a1-none"], "not sure") == [keys[1]]
        assert two.answers.quarantine(keys[3:], "not sure") == list(keys[3:])
        for store in (one, two):
            assert store.answers.answered([entry.question]) == {keys[0], keys[2]} == set(answers_by_key(store, keys))
            assert store.answers.verify() == Verification(2, (), ())
        assert one.stats()["quarantine"] == 3
        assert one.answers.quarantine(keys, "all of it") == [keys[0], keys[2]]
        assert tables(one) == (0, 0)
        put(one, entry)
        assert stored(two, entry) == entry.answer


def test_quarantine_takes_answers_whose_prompt_is_damaged(path):
    with Store.open(path) as store:
        put(store, scored("p", "ab"))
        sql(path, "UPDATE prompts SET body = 'gone'")
        assert store.answers.quarantine(scored("p", "ab").question.keys[:1], "not sure")
        assert store.answers.answered([scored("p", "ab").question]) == set()


def test_a_models_answers_since_a_time_are_quarantined(store):
    put(store, scored("p", "ab"), text_entry(1))
    (at,) = {answer.at for answer in store.answers.latest(FP, 9)}
    put(store, scored("q", "ab"), text_entry(2))
    late = [*scored("q", "ab").question.keys, *text_entry(2).question.keys]
    assert sorted(store.answers.quarantine_since(FP, at, "model changed")) == sorted(late)
    assert store.answers.verify() == Verification(3, (), ())


def test_the_latest_answers_are_one_a_continuation(store):
    for entry in (scored("p", "ab"), text_entry(1), scored("q", "cd")):
        put(store, entry)
    found = [answer.request for answer in store.answers.latest(FP, 4)]
    assert found == [ScoreRequest("p", ("b",)), GenerateRequest("prompt 1"), *(ScoreRequest("q", (c,)) for c in "cd")]
    assert store.answers.latest("fp1-other", 4) == []


def test_a_failure_of_packed_answers_is_none(store):
    entry = scored("p", "ab")
    put(store, Entry(entry.question, BackendError("server", "broken")))
    found = store.answers.read([entry.question])
    assert found.answer(entry.question).kind == "server"
    assert found.parts(entry.question) == {}
    put(store, entry)
    assert stored(store, entry) == entry.answer


# -- stores of earlier versions -----------------------------------------------------------------


@pytest.fixture
def older_store(path):
    return shutil.copy(older.STORE, path)


def test_a_store_with_an_answer_a_row_keeps_all_it_has(older_store):
    before = sql(older_store, "SELECT * FROM answers ORDER BY key")
    with Store.open(older_store) as store:
        name = store.fingerprints.resolve(older.FINGERPRINT)
        for request, answer in older.answered():
            assert stored(store, Entry(keyed_request(request, name), answer)) == answer
        assert store.answers.verify() == Verification(164, (), ())
        failed, doubtful = (keyed_request(request, name) for request in (older.FAILED, older.QUARANTINED))
        assert store.answers.read([failed]).answer(failed).kind == "server"
        assert store.answers.read([doubtful]).answer(doubtful) is None
        assert store.answers.inspect(doubtful.keys[0])["quarantine"][0]["problem"] == "not sure"
        assert len(store.second_answers.read(name)) == 1
        assert store.stats()["answers"] == 164
    assert sql(older_store, "SELECT * FROM answers ORDER BY key") == before


@pytest.mark.parametrize("point", ["before", "after"])
def test_an_older_store_killed_while_it_is_opened_is_whole(older_store, point):
    in_child(
        f"""
        from audit.store.sqlite.migrations import migrations
        step = migrations._migrations[-1]
        real = step.fn
        step.fn = lambda db: ({point!r} == "after" and real(db), os._exit(0))
        Store.open({str(older_store)!r})
        """
    )
    assert sql(older_store, "PRAGMA user_version") == [(7,)]
    with Store.open(older_store) as store:
        assert store.answers.verify() == Verification(164, (), ())
        put(store, scored("p"))
        assert stored(store, scored("p")) == scored("p").answer


def test_a_store_with_an_answer_a_row_is_read_only_too(older_store):
    with Store.open(older_store, read_only=True) as store:
        assert store.answers.verify() == Verification(164, (), ())
        (row, *_) = store.runs.read_rows(store.runs.find("last"), "even", "words")
        assert len(store.answers.read_with_prompts(row.keys)) == 26
        assert store.answers.inspect(row.keys[25])["answered"]
        assert len(store.answers.latest(store.answers.inspect(row.keys[0])["fingerprint_id"], 200)) == 156
        assert store.stats()["answers"] == 164
    assert sql(older_store, "SELECT name FROM sqlite_master WHERE name LIKE 'packed%'") == []


def test_a_store_with_an_answer_a_row_is_not_asked_again(older_store, tmp_path):
    result = asyncio.run(Audit({"even": FakeBackend("even")}, [older.Words()], db=older_store, out=tmp_path).run())
    assert (result.complete, result.models[0].cached, result.models[0].asked) == (True, 6, 0)


def test_a_continuation_added_to_an_older_prompt_is_asked_alone(older_store):
    with Store.open(older_store) as store:
        name = store.fingerprints.resolve(older.FINGERPRINT)
        request, answer = older.answered()[0]
        more = ScoreRequest(request.prompt, (*request.continuations, " x", " y"))
        question = keyed_request(more, name)
        part = question.without(store.answers.read([question]).parts(question))
        assert part.request.continuations == (" x", " y")
        put(store, Entry(question, ScoreResponse((*answer.scores[::-1], *answer.scores[:2]), 7)))  # old ones stay
        assert store.answers.read([question]).answer(question).scores == (*answer.scores, *answer.scores[:2])
        assert store.answers.verify() == Verification(166, (), ())
        assert set(answer_keys(request, name)) <= set(answers_by_key(store, question.keys))


def test_joined_ids_of_a_model_keep_one_answer_a_key(path):
    """A row of one id beside a packed row of the other: all ways of reading give the one that is kept."""
    with Store.open(path) as store:
        earlier = store.fingerprints.resolve({"name": "m", "retired": 1})
        now = store.fingerprints.resolve({"name": "m"})

        def write(fingerprint, prompt, continuations, logprob):
            scores = tuple(ContinuationScore.exact([TokenLogprob(c, 0, 1, logprob)]) for c in continuations)
            request = ScoreRequest(prompt, tuple(continuations))
            put(store, Entry(keyed_request(request, fingerprint), ScoreResponse(scores, 3)))

        write(earlier, "p", "A", -7.0)
        write(now, "p", "AB", -1.0)
        write(now, "q", "AB", -1.0)
        kept = store.fingerprints.resolve({"name": "m"}, frozenset({"retired"}))
        assert kept == now
        alone, both = (keyed_request(ScoreRequest("p", some), kept) for some in (("A",), ("A", "B")))
        found = store.answers.read([alone, both])
        by_key = answers_by_key(store, alone.keys)[alone.keys[0]]
        of_export = store.answers.read_with_prompts(alone.keys)[alone.keys[0]][2]
        first = dataclasses.replace(found.answer(both), scores=found.answer(both).scores[:1])
        assert [found.answer(alone), by_key, of_export] == [first] * 3
        assert first.scores[0].logprob == -1.0


def test_a_row_of_an_earlier_version_beside_a_packed_one(path):
    """It still runs, and writes what it does not see: the packed answer counts, however it is read."""
    entry = scored("p", "ab")
    with Store.open(path) as store:
        put(store, scored("p", "a", logprob=-9.0))
        rows = sql(path, "SELECT * FROM answers")
    path.unlink()
    with Store.open(path) as store:
        put(store, entry)
        sql(path, f"INSERT INTO answers VALUES ({','.join('?' * len(rows[0]))})", *rows[0])
        question = keyed_request(ScoreRequest("p", ("a",)), FP)
        wanted = dataclasses.replace(entry.answer, scores=entry.answer.scores[:1])
        assert store.answers.read([question]).answer(question) == wanted
        assert answers_by_key(store, question.keys) == {question.keys[0]: wanted}
        assert store.answers.read_with_prompts(question.keys)[question.keys[0]][2] == wanted


def test_beginnings_of_keys_of_another_type_are_missing(path):
    first, second = scored("p", "ab"), scored("q", "ab")
    with Store.open(path) as store:
        put(store, first, second)
    sql(path, "UPDATE packed_keys SET tags = CAST(tags AS TEXT) WHERE id = 1")
    with Store.open(path) as store:
        assert answers_by_key(store, [*first.question.keys, *second.question.keys]).keys() == {*second.question.keys}
        store.answers.verify()
    with Store.open(path) as store:
        assert answers_by_key(store, first.question.keys).keys() == {*first.question.keys}


def test_an_index_that_contradicts_its_table_is_rebuilt(path):
    entry = scored("p", "ab")
    with Store.open(path) as store:
        put(store, entry)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema = ON")
        ((was,),) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'idx_packed_scores_grp'").fetchall()
        db.execute("UPDATE sqlite_master SET sql = sql || ' WHERE id > 99' WHERE name = 'idx_packed_scores_grp'")
        db.commit()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("REINDEX idx_packed_scores_grp")  # leaves it empty
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'idx_packed_scores_grp'", (was,))
        db.commit()
    with Store.open(path) as store:
        assert store.answers.read([entry.question]).answer(entry.question) is None
        found = store.answers.verify()
        assert any("rebuilt" in problem for problem in found.file_problems)
        assert store.answers.read([entry.question]).answer(entry.question) == entry.answer
        assert store.answers.verify().sound


def test_fewer_scores_than_continuations_are_refused(store):
    entry = scored("p", "abc")
    short = dataclasses.replace(entry.answer, scores=entry.answer.scores[:2])
    with pytest.raises(ValueError, match="2 scores of 3"):
        put(store, Entry(entry.question, short))

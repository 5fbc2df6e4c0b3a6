"""A store of several files: it gives what a store of one file gives, and is refused if a file is not what it was."""

from __future__ import annotations

import asyncio
import os
import sqlite3

import pytest

from audit.store import Entry, Store, keyed_request
from audit.store.answers.merging import Merged
from audit.store.keys import fingerprint_id
from audit.store.shards import shard_files
from audit.store.sqlite.schema import SCHEMA
from backends.base import ScoreRequest
from backends.errors import BackendError, ConfigError
from tests.audit.store.answers.test_packed import scored
from tests.audit.store.entries import FP, answer_to, answers_by_key, entry, in_child, put, question, sql, text_entry

ENTRIES = [*map(entry, range(40)), *map(text_entry, range(40)), scored("p"), scored("p", ["later"])]
KEYS = [key for one in ENTRIES for key in one.question.keys]


def test_a_store_of_shards_gives_what_one_file_gives(tmp_path):
    found = []
    for name, shards in (("one", 1), ("four", 4)):
        with Store.open(tmp_path / f"{name}.db", shards=shards) as store:
            put(store, *ENTRIES, Entry(text_entry(99).question, BackendError("server", "broken")))
            wanted = [one.question for one in (*ENTRIES, text_entry(99), text_entry(98))]
            read = store.answers.read(wanted)
            latest = store.answers.latest(FP, 30)
            facts = store.answers.inspect(KEYS[3])
            found.append(
                (
                    [repr(read.answer(one)) for one in wanted],
                    store.answers.answered(wanted),
                    answers_by_key(store, KEYS),
                    len(latest),
                    facts["answer"],
                    store.answers.verify().answers,
                    {name: store.stats()[name] for name in ("answers", "failures", "leases")},
                    store.answers.quarantine(KEYS[5:9], "wrong"),
                    len(store.answers.quarantine_since(FP, 0, "wrong")),
                )
            )
    assert found[0] == found[1]


def test_each_shard_holds_its_part_of_the_answers(sharded, path):
    put(sharded, *ENTRIES)
    counts = [sql(file, "SELECT count(*) FROM answers")[0][0] for file in shard_files(path, 4)]
    assert sum(counts) == 41
    assert min(counts) >= 4
    assert sql(path, "SELECT count(*) FROM answers") == [(0,)]


def test_what_a_shard_lost_is_told_and_asked_again(sharded, path):
    put(sharded, *ENTRIES)
    for file in shard_files(path, 4):
        if damaged := sql(file, "SELECT key FROM answers"):
            sql(file, "UPDATE answers SET body = 'x' WHERE key = ?", damaged[0][0])
            break
    assert sharded.answers.verify().damaged == damaged[0]
    wanted = [one.question for one in ENTRIES]
    assert len(sharded.answers.answered(wanted)) == len(KEYS) - 1


def test_a_new_process_finds_the_shards_of_a_store(path):
    with Store.open(path, shards=3) as store:
        put(store, *ENTRIES)
    for options in ({}, {"read_only": True}, {"shards": 3}):
        with Store.open(path, **options) as store:
            assert store.n_shards == 3
            assert len(answers_by_key(store, KEYS)) == len(KEYS)


def test_another_number_of_shards_is_refused(path):
    with Store.open(path, shards=3):
        pass
    with pytest.raises(ConfigError, match="this store has 3"):
        Store.open(path, shards=4)
    with pytest.raises(ConfigError, match="not a number of shards"):
        Store.open(path, shards=0)


def test_a_store_of_one_file_with_answers_is_not_divided(path):
    with Store.open(path) as store:
        put(store, entry(1))
    with pytest.raises(ConfigError, match="one file and holds answers"):
        Store.open(path, shards=2)
    with Store.open(path, shards=1) as store:
        assert store.n_shards == 1


def test_a_missing_shard_is_told_and_not_made_anew(path):
    with Store.open(path, shards=2) as store:
        put(store, *ENTRIES)
    lost = shard_files(path, 2)[1]
    lost.rename(path.with_name("elsewhere"))
    for read_only in (True, False):
        with pytest.raises(ConfigError, match="missing: shard 2 of 2"):
            Store.open(path, read_only=read_only)
    assert not lost.exists()


def test_a_shard_of_another_store_is_refused(path, tmp_path):
    for name in (path, tmp_path / "other.db"):
        with Store.open(name, shards=2) as store:
            put(store, entry(1))
    os.replace(shard_files(tmp_path / "other.db", 2)[0], shard_files(path, 2)[0])
    with pytest.raises(ConfigError, match="is not shard 1 of this store"):
        Store.open(path)


def test_a_shard_alone_is_read_but_not_written(path):
    with Store.open(path, shards=2) as store:
        put(store, *ENTRIES)
    first = shard_files(path, 2)[0]
    with pytest.raises(ConfigError, match="is shard 1 of 2"):
        Store.open(first)
    with Store.open(first, read_only=True) as store:
        assert store.answers.verify().sound


def test_a_store_whose_making_was_interrupted_is_made_again(path, monkeypatch):
    made = in_child(f"""
        from audit.store.shards import files
        make, made = files._make_shard, []
        def stop(*given):
            make(*given)
            made.append(given)
            if len(made) == 2:
                print("made", flush=True)
                os._exit(0)
        files._make_shard = stop
        Store.open({str(path)!r}, shards=4)
    """)
    assert made == "made\n"
    with Store.open(path, shards=4) as store:
        put(store, *ENTRIES)
        assert store.stats()["answers"] == len(KEYS)


async def test_leases_lie_in_the_shard_of_their_answer(path):
    with Store.open(path, shards=4) as one, Store.open(path) as two:
        wanted = [keyed_request(question(i), FP) for i in range(50)]
        first, second = await asyncio.gather(one.leases.take(wanted), two.leases.take(wanted))
        assert [a + b for a, b in zip(first, second, strict=True)] == [1] * 50
        assert all(sql(file, "SELECT count(*) FROM request_leases")[0][0] for file in shard_files(path, 4))
        await asyncio.gather(one.leases.release_all(), two.leases.release_all())
        assert one.stats()["leases"] == 0
        assert await two.leases.take(wanted[:3]) == [True] * 3
        await two.leases.release(wanted[:2])
        assert await one.leases.take(wanted[:3]) == [True, True, False]


def test_a_model_that_sheds_a_field_keeps_its_answers(tmp_path):
    old, new = {"model": "m", "beside": 1}, {"model": "m"}
    with Store.open(tmp_path / "sharded.db", shards=4) as store:
        own = store.fingerprints.resolve(old)
        asked = [ScoreRequest(f"prompt {i}", (" a", " b")) for i in range(30)]
        put(store, *(Entry(keyed_request(request, own), answer_to(request)) for request in asked))
        store.fingerprints.resolve(new)
        one_more = ScoreRequest("only under the new one", (" a", " b"))
        put(store, Entry(keyed_request(one_more, fingerprint_id(new)), answer_to(one_more)))
        kept = store.fingerprints.resolve(new, frozenset({"beside"}))
        wanted = [keyed_request(request, kept) for request in (*asked, one_more)]
        read = store.answers.read(wanted)
        assert [read.answer(one) for one in wanted] == [answer_to(one.request) for one in wanted]
        assert store.fingerprints.resolve(new, frozenset({"beside"})) == kept


@pytest.mark.parametrize(("shards", "into"), [(4, 1), (1, 4), (4, 3)])
def test_stores_merge_whatever_their_shards(shards, into, tmp_path):
    with Store.open(tmp_path / "a.db", shards=shards) as a, Store.open(tmp_path / "b.db", shards=into) as b:
        a.fingerprints.resolve({"model": "m"})
        put(a, *ENTRIES)
        assert b.merge(a) == Merged(len(KEYS), len(KEYS), [])
        assert b.merge(a) == Merged(len(KEYS), 0, [])
        assert answers_by_key(b, KEYS) == answers_by_key(a, KEYS)
        assert b.answers.inspect(KEYS[0])["fingerprint"] == {"model": "m"}


def test_a_backup_has_all_shards_and_overwrites_none(path, tmp_path):
    with Store.open(path, shards=2) as store:
        put(store, *ENTRIES)
        store.backup(tmp_path / "copy.db")
        with Store.open(tmp_path / "copy.db") as copy:
            assert (copy.n_shards, answers_by_key(copy, KEYS)) == (2, answers_by_key(store, KEYS))
        with pytest.raises(ConfigError, match="already exists"):
            store.backup(tmp_path / "copy.db")


def test_shards_of_an_older_schema_are_brought_up_to_date(path):
    with Store.open(path, shards=2) as store:
        put(store, *ENTRIES)
    shard = shard_files(path, 2)[0]
    with sqlite3.connect(shard) as db:
        db.execute("DROP INDEX idx_request_leases_owner")
        db.execute("PRAGMA user_version = 8")
    with Store.open(path) as store:
        assert len(answers_by_key(store, KEYS)) == len(KEYS)
    assert sql(shard, "PRAGMA user_version") == [(SCHEMA,)]

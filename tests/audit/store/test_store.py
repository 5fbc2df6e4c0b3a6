"""Opening, sharing, merging a store; runs and their rows."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from audit.analysis.table import Table
from audit.results import AuditResult
from audit.store import AnswerPair, Store, StoreError, merging, rows
from audit.store import leases as leases_module
from backends.errors import ConfigError
from suites.base import IdentifiedInterval, Row
from tests.audit.store.entries import FP, answer_to, entry, found, put, question, sql, text_entry


def row(name: str, **more) -> Row:
    return Row(name, {"level": True, "text": "x"}, {"q": IdentifiedInterval(None, 0.1, 0.4)}, **more)


# -- the file --------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + bytes(200)])
def test_a_foreign_file_is_refused_and_left(path, content):
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        Store.open(path)
    assert path.read_bytes() == content


def test_a_store_of_another_version_is_refused_with_one_line(path):
    Store.open(path).close()
    for version, age in ((10, "an earlier version"), (999, "a newer")):
        sql(path, f"PRAGMA user_version={version}")
        for read_only in (True, False):
            with pytest.raises(ConfigError, match=age) as refused:
                Store.open(path, read_only=read_only)
            assert "\n" not in str(refused.value)


def test_only_the_owner_reads_it(path):
    Store.open(path).close()
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_a_read_only_store_is_read_and_not_written(path):
    with Store.open(path) as store:
        put(store, entry(1))
    with Store.open(path, read_only=True) as store:
        assert found(store, entry(1)[0]) == [entry(1)[1]]
        with pytest.raises(StoreError, match="reading only"):
            put(store, entry(2))


def test_a_full_disk_says_so(store):
    store._database.submit(lambda db: db.execute("PRAGMA max_page_count=60") and None).result()
    with pytest.raises(StoreError, match="disk is full"):
        put(store, *map(entry, range(2000)))
    assert store.answers.verify().sound


def test_a_missing_shard_is_named(tmp_path):
    Store.open(tmp_path / "a.db", shards=3).close()
    (tmp_path / "a.shard-2-of-3.db").unlink()
    with pytest.raises(ConfigError, match="shard 2 of 3"):
        Store.open(tmp_path / "a.db")
    with pytest.raises(ConfigError, match="is shard 1 of 3"):
        Store.open(tmp_path / "a.shard-1-of-3.db")


# -- two audits --------------------------------------------------------------------------------------


def test_a_question_is_leased_to_one_audit_at_a_time(path):
    async def takes():
        with Store.open(path) as one, Store.open(path) as other:
            keys = [entry(i)[0] for i in range(4)]
            assert await one.leases.take(keys[:2]) == [True, True]
            assert await other.leases.take(keys) == [False, False, True, True]
            await one.leases.release(keys[:1])
            assert await other.leases.take(keys[:2]) == [True, False]
            await one.answers.write([entry(1)], "r")
            await one.leases.release_all()
            return await other.leases.take([keys[1], entry(9)[0], entry(9)[0]])

    assert asyncio.run(takes()) == [False, True, False]  # answered; new; the same twice


def test_leases_of_an_audit_that_died_or_stalled_are_free(path, monkeypatch):
    async def takes():
        with Store.open(path) as one, Store.open(path) as other:
            assert await one.leases.take([entry(1)[0]]) == [True]
            later = time.monotonic() + leases_module.LEASE_SECONDS + 1
            monkeypatch.setattr(leases_module.time, "monotonic", lambda: later)
            return await other.leases.take([entry(1)[0]])

    assert asyncio.run(takes()) == [True]
    pid = os.fork()
    if not pid:
        asyncio.run(Store.open(path).leases.take([entry(2)[0]]))
        os._exit(0)
    os.waitpid(pid, 0)
    with Store.open(path) as store:
        assert asyncio.run(store.leases.take([entry(2)[0]])) == [True]


# -- merging -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shards", "into"), [(1, 1), (3, 1), (1, 2)])
def test_stores_are_merged_once_and_checked(tmp_path, shards, into):
    with Store.open(tmp_path / "a.db", shards=shards) as source, Store.open(tmp_path / "b.db", shards=into) as target:
        put(source, *(entry(i) for i in range(9)), text_entry(1))
        pair = AnswerPair(FP, entry(1)[0].key, question(1), answer_to(question(1)), answer_to(question(1)))
        asyncio.run(source.second_answers.write(pair))
        put(target, entry(0), (entry(2)[0], answer_to(question(333))))
        merged = target.merge(source)
        assert (merged.answers, merged.new, merged.damaged, merged.others) == (10, 8, [], [entry(2)[0].key])
        assert target.merge(source).new == 0
        assert found(target, entry(2)[0]) == [answer_to(question(333))]  # the first one counts
        (again,) = target.second_answers.read(FP)
        assert (again.key, again.second) == (pair.key, pair.second)
        file = next(file.path for file in source.files if file.path.stat().st_size)
        sql(file, "UPDATE answers SET value = x'00' WHERE id = (SELECT min(id) FROM answers)")
        assert len(Store.open(tmp_path / "c.db").merge(source).damaged) == 1
        with pytest.raises(ConfigError, match="the store to merge into"):
            target.merge(target)


@pytest.mark.parametrize("inserts", [1, 3])
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_merge_that_is_killed_is_done_by_the_next_one(tmp_path, monkeypatch, inserts, is_committed):
    with Store.open(tmp_path / "a.db", shards=2) as source:
        put(source, *(entry(i) for i in range(9)))
    monkeypatch.setattr(merging, "_TOGETHER", 2)
    pid = os.fork()
    if not pid:
        insert, calls = rows.insert, []

        def kill(db, some):
            if is_committed and len(calls) == inserts:  # those before are on the disk
                os.kill(os.getpid(), signal.SIGKILL)
            calls.append(some)
            stored = insert(db, some)
            if len(calls) == inserts and not is_committed:
                os.kill(os.getpid(), signal.SIGKILL)
            return stored

        monkeypatch.setattr(rows, "insert", kill)
        with Store.open(tmp_path / "b.db") as target, Store.open(tmp_path / "a.db", read_only=True) as source:
            target.merge(source)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    with Store.open(tmp_path / "b.db") as target, Store.open(tmp_path / "a.db", read_only=True) as source:
        before = target.stats()["answers"]
        assert target.merge(source).new == 9 - before
        assert found(target, *(entry(i)[0] for i in range(9))) == [entry(i)[1] for i in range(9)]
        assert target.answers.verify().sound


# -- runs ----------------------------------------------------------------------------------------------


def test_rows_come_back_with_the_keys_behind_them(store, path):
    table = Table.of([row("a"), row("b", missing="timeout"), row("a-b", sources=("a", "b"))])
    keys = {name: key.prompt + key.part for name, key in (("a", entry(1)[0]), ("b", entry(2)[0]))}
    store.runs.write_table("r", "m", "s", table, keys)
    stored = list(store.runs.read_rows("r", "m", "s"))
    assert [one.row for one in stored] == list(table.rows())
    both = (entry(1)[0].key, entry(2)[0].key)
    assert [one.keys for one in stored] == [both[:1], both[1:], both]
    assert [one.derived for one in stored] == [False, False, True]
    assert [one.row.item_id for one in store.runs.read_rows("r", "m", "s", derived=False)] == ["a", "b"]
    assert list(store.runs.read_rows("r", "m", "other")) == []
    sql(path, "UPDATE row_tables SET keys = x'00'")
    with pytest.raises(StoreError, match="wrong checksum"):
        list(store.runs.read_rows("r", "m", "s"))


def test_a_run_whose_process_ended_was_killed(store, path):
    store.runs.start("r1", "title", "{}")
    assert [run.status for run in store.runs.all()] == ["running"]
    sql(path, "UPDATE runs SET status = replace(status, ':' || ?, ':999999999')", os.getpid())
    assert [run.status for run in store.runs.all()] == ["killed"]
    with pytest.raises(ConfigError, match="no figures: killed"):
        store.runs.find("last")


def test_baselines_keep_their_history(store):
    for name in ("r1", "r2"):
        store.runs.start(name, "t", "{}")
        store._database.write("UPDATE runs SET result = ? WHERE id = ?", (_result(name), name))
    store.runs.save_baseline("released", "r1")
    with pytest.raises(ConfigError, match="already exists"):
        store.runs.save_baseline("released", "r2")
    store.runs.promote_baseline("released", "r2")
    (baseline,) = store.runs.baselines()
    assert (baseline.run_id, baseline.earlier) == ("r2", ("r1",))
    with pytest.raises(ConfigError, match="0 runs match"):
        store.runs.find("nothing")
    with pytest.raises(ConfigError, match="2 runs match"):
        store.runs.find("r")


def _result(run_id: str) -> bytes:
    """A run's result as the store keeps it."""
    lists: dict[str, list] = {name: [] for name in ("models", "suites", "measures", "comparisons", "data_quality")}
    when = {"started": "2026-01-01", "finished": "2026-01-01", "complete": True, "interrupted": False}
    plain = {"run_id": run_id, "title": "t", "seed": 0, "limit": None, "confidence": 0.95, "versions": {}}
    return AuditResult(**plain, **when, **lists).model_dump_json().encode()

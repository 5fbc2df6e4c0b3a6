"""The store: durable, checked, shared by several audits, never taken for something it is not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
import sqlite_utils

from audit.store import store as store_module
from audit.store.codecs import StoredRow
from audit.store.keys import answer_keys, fingerprint_id, join_answers
from audit.store.schema import migrations
from audit.store.store import Entry, Store, StoreError
from backends.base import (
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import BackendError, ConfigError
from suites.base import IdentifiedInterval, Row

FP = fingerprint_id({"model": "m"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.db"


@pytest.fixture
def store(path):
    with Store.open(path) as opened:
        yield opened


def question(i: int, continuations=(" a", " b\x00\ud800")) -> ScoreRequest:
    return ScoreRequest(f"prompt {i}", continuations)


def answer_to(request: ScoreRequest) -> ScoreResponse:
    tokens = [
        TokenLogprob(c, 0, len(c), -1 / (3 + len(request.prompt) + j)) for j, c in enumerate(request.continuations)
    ]
    return ScoreResponse(tuple(ContinuationScore.exact([t], route="test") for t in tokens), 5)


def entry(i: int, answer=None) -> Entry:
    request = question(i)
    return Entry(answer_keys(request, FP), FP, request, answer or answer_to(request))


def put(store: Store, *entries: Entry) -> None:
    asyncio.run(store.write(entries))


def sql(path, statement, *values):
    with sqlite3.connect(path) as db:
        return db.execute(statement, values).fetchall()


# -- answers -----------------------------------------------------------------------------------


def test_what_was_written_reads_back_exactly_in_another_process_life(path):
    written = [entry(i) for i in range(600)]
    with Store.open(path) as store:
        put(store, *written)
    with Store.open(path) as store:
        keys = [k for e in written for k in e.keys]
        found = store.get_many(keys)
        assert store.known(keys) == set(keys) == set(found)
        assert all(join_answers(e.request, e.keys, found) == e.answer for e in written)


def test_an_unknown_key_is_not_there(store):
    assert store.get_many(["a1-none"]) == {}
    assert store.known(["a1-none"]) == set()
    assert store.explain("a1-none") is None


def test_a_failure_is_kept_and_counted_and_does_not_count_as_answered(store):
    first = entry(1, BackendError("server", "broken"))
    put(store, first)
    put(store, entry(1, BackendError("timeout", "slow", retryable=True)))
    assert store.known(first.keys) == set()
    found = store.get_many(first.keys)[first.keys[0]]
    assert isinstance(found, BackendError)
    assert found.kind == "timeout"
    assert store.stats()["failures"] == 4  # two attempts at two continuations
    put(store, entry(1))
    assert store.get_many(first.keys)[first.keys[0]] == ScoreResponse(answer_to(question(1)).scores[:1], 5)
    assert [f["error"]["kind"] for f in store.explain(first.keys[0])["failures"]] == ["server", "timeout"]


def test_the_first_answer_stays(store):
    request = GenerateRequest("p")
    keys = answer_keys(request, FP)
    for text in ("first", "second"):
        put(store, Entry(keys, FP, request, GenerateResponse(text, "stop")))
    assert store.get_many(keys)[keys[0]].text == "first"


def test_an_answer_is_on_the_disk_when_write_returns(path):
    """A process that dies right after the acknowledgement has lost nothing."""
    script = f"""
        import asyncio, os, signal, sys
        sys.path[:0] = [{os.getcwd()!r}, {os.path.dirname(__file__)!r}]
        from test_store import *
        store = Store.open({str(path)!r})
        for i in range(50):
            put(store, entry(i))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=60, check=False)
    assert done.returncode == -9
    with Store.open(path) as store:
        assert len(store.known(k for i in range(50) for k in entry(i).keys)) == 100
        assert store.verify().sound


def test_the_file_is_in_wal_mode_and_flushes_fully(store):
    assert store._reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with store._read() as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


async def test_writing_blocks_no_event_loop(path, no_blocking):
    store = await asyncio.to_thread(Store.open, path)
    await store.write([entry(1)])
    assert await store.lease([("x",)]) == [True]
    await store.renew_leases()
    await store.release_leases()
    await asyncio.to_thread(store.close)


async def test_one_bad_entry_does_not_fail_its_neighbours(store):
    request = GenerateRequest("p")
    bad = Entry(("a", "too many keys"), FP, request, GenerateResponse("t", "stop"))
    results = await asyncio.gather(*(store.write([e]) for e in (entry(1), bad, entry(2))), return_exceptions=True)
    assert [type(r) for r in results] == [type(None), ValueError, type(None)]
    assert len(store.known([*entry(1).keys, *entry(2).keys])) == 4


# -- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["body", "detail", "fingerprint", "prompt"])
def test_a_changed_row_is_set_aside_and_asked_again(path, column):
    with Store.open(path) as store:
        put(store, entry(1), entry(2))
    key = entry(1).keys[0]
    [(value,)] = sql(path, f"SELECT {column} FROM answers WHERE key = ?", key)
    changed = value[:-1] + (b"7" if isinstance(value, bytes) else "7")
    assert changed != value
    sql(path, f"UPDATE answers SET {column} = ? WHERE key = ?", changed, key)
    with Store.open(path) as store:
        assert store.known([*entry(1).keys, *entry(2).keys]) == {entry(1).keys[1], *entry(2).keys}
        found = store.get_many([*entry(1).keys, *entry(2).keys])
        assert key not in found
        assert len(found) == 3
        assert store.explain(key)["quarantine"][0]["problem"] == "checksum"
        put(store, entry(1))
        assert len(store.get_many(entry(1).keys)) == 2


def test_reading_answers_finds_a_changed_row_too(path):
    with Store.open(path) as store:
        put(store, entry(1))
    key = entry(1).keys[0]
    sql(path, "UPDATE answers SET body = ? WHERE key = ?", "no longer bytes", key)
    with Store.open(path, read_only=True) as store:  # cannot set it aside, and must not take it either
        assert store.known(entry(1).keys) == {entry(1).keys[1]}
    with Store.open(path) as store:
        assert list(store.get_many(entry(1).keys)) == [entry(1).keys[1]]
        assert store.explain(key)["quarantine"][0]["problem"] == "checksum"


def test_verify_finds_a_row_whose_checksum_was_made_to_fit(path):
    """Each key is hashed again from what is stored: an answer moved under another key is seen."""
    with Store.open(path) as store:
        put(store, entry(1), entry(2))
        assert store.verify() == store_module.Verification(4, (), ())
    one, two = entry(1).keys[0], entry(2).keys[0]
    [row] = sql(path, "SELECT fingerprint, kind, prompt, detail, body FROM answers WHERE key = ?", two)
    forged = store_module._checksum(one, *row)
    sql(
        path,
        "UPDATE answers SET fingerprint=?, kind=?, prompt=?, detail=?, body=?, checksum=? WHERE key=?",
        *row,
        forged,
        one,
    )
    with Store.open(path) as store:
        assert store.verify().damaged == (one,)
        assert one not in store.known([one])
        assert store.verify().sound


def test_a_changed_prompt_is_found_by_verify(path):
    with Store.open(path) as store:
        put(store, entry(1))
    sql(path, "UPDATE prompts SET body = ?", b'"another prompt"')
    with Store.open(path) as store:
        assert set(store.verify().damaged) == set(entry(1).keys)


@pytest.mark.parametrize("damaged", [b'"another prompt"', b'"cut of', "text"])
def test_a_changed_prompt_is_written_anew_with_its_next_answer(path, damaged):
    with Store.open(path) as store:
        put(store, entry(1), entry(2))
    name = sql(path, "SELECT prompt FROM answers WHERE key = ?", entry(1).keys[0])[0][0]
    sql(path, "UPDATE prompts SET body = ? WHERE id = ?", damaged, name)
    with Store.open(path) as store:
        assert set(store.verify().damaged) == set(entry(1).keys)
        put(store, entry(1))
        assert store.verify() == store_module.Verification(4, (), ())
        assert store.explain(entry(1).keys[0])["prompt"] == "prompt 1"


def test_a_truncated_file_is_refused_and_left(path):
    with Store.open(path) as store:
        put(store, *(entry(i) for i in range(300)))
    before = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(before)
    with pytest.raises(ConfigError, match="damaged"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_damaged_page_is_refused_and_left(path):
    with Store.open(path) as store:
        put(store, *(entry(i) for i in range(300)))
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 3 + 200] = os.urandom(200)  # the header of an inner page
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="damaged"):
        Store.open(path)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("content", [b"PK\x03\x04 not a database at all" * 9, b"SQLite format 3\0", b"x"])
def test_a_file_that_is_no_store_is_refused_and_left(path, content):
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not a store"):
        Store.open(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left(path):
    sql(path, "CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_folder_and_a_missing_file_are_refused(tmp_path, path):
    with pytest.raises(ConfigError, match="folder"):
        Store.open(tmp_path)
    with pytest.raises(ConfigError, match="not there"):
        Store.open(path, read_only=True)
    assert not path.exists()


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    with Store.open(path) as store:
        put(store, entry(1))


# -- no space, no permission -------------------------------------------------------------------


def in_child(body: str) -> str:
    script = f"""
        import sys
        sys.path[:0] = [{os.getcwd()!r}, {os.path.dirname(__file__)!r}]
        from test_store import *
    """
    text = textwrap.dedent(script) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_is_told_and_what_was_stored_stays(path):
    out = in_child(f"""
        import resource
        store = Store.open({str(path)!r})
        put(store, entry(0))
        size = os.path.getsize({str(path)!r} + "-wal")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40_000, size + 40_000))
        kept = 0
        try:
            for kept in range(1, 10_000):
                put(store, entry(kept))
        except StoreError as error:
            print(kept, error.reason)
        os._exit(0)
    """)
    kept, reason = out.split()
    assert reason in ("full", "io")
    with Store.open(path) as store:
        assert len(store.known(k for i in range(int(kept)) for k in entry(i).keys)) == 2 * int(kept)
        assert store.verify().sound


def test_a_full_database_is_told_as_full(store):
    put(store, entry(0))

    def limit(db):
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages + 5}")

    store._submit(limit).result()
    kept = 1
    with contextlib.suppress(StoreError):
        while kept < 1000:
            put(store, entry(kept))
            kept += 1
    assert 1 < kept < 1000
    with pytest.raises(StoreError, match="disk is full") as caught:
        put(store, entry(kept))
    assert caught.value.reason == "full"
    assert len(store.known(k for j in range(kept) for k in entry(j).keys)) == 2 * kept


@pytest.mark.parametrize("folder_writable", [True, False])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(folder_writable):
    """Root may write anything, so a root process gives its rights up first."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # pytest's own folder is closed to other users
        folder = Path(name)
        path = folder / "audit.db"
        Store.open(path).close()
        path.chmod(0o444)
        folder.chmod(0o777 if folder_writable else 0o555)
        pid = os.fork()
        if pid == 0:
            try:
                if os.geteuid() == 0:
                    os.setgid(65534)
                    os.setuid(65534)
                Store.open(path)
                os._exit(1)
            except ConfigError as error:
                os._exit(42 if "write permission" in str(error) else 2)
            except BaseException:
                os._exit(3)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        folder.chmod(0o755)
    assert status == 42


def test_a_store_opened_for_reading_takes_nothing(path):
    with Store.open(path) as store:
        put(store, entry(1))
    with Store.open(path, read_only=True) as store:
        assert len(store.get_many(entry(1).keys)) == 2
        with pytest.raises(StoreError, match="read-only"):
            put(store, entry(2))


def test_a_writer_that_cannot_open_the_file_says_so_to_everybody(path, tmp_path):
    with Store.open(path) as store:
        path.rename(tmp_path / "moved.db")
        for _ in range(2):
            with pytest.raises(StoreError):
                store.start_run("r", "title", "{}")


# -- several at once ---------------------------------------------------------------------------


async def test_two_holders_never_get_the_same_lease(path):
    with Store.open(path) as one, Store.open(path) as two:
        wanted = [(f"k{i}", f"j{i}") for i in range(200)]
        first, second = await asyncio.gather(one.lease(wanted), two.lease(wanted))
        assert [a + b for a, b in zip(first, second, strict=True)] == [1] * 200
        assert await one.lease([("j7", "new")]) == [False]


async def test_a_lease_is_not_given_twice_to_the_same_holder(store):
    assert await store.lease([("a", "b"), ("b", "c"), ("c",)]) == [True, False, True]


async def test_an_answer_ends_its_lease_and_is_not_leased_again(path):
    with Store.open(path) as one, Store.open(path) as two:
        e = entry(1)
        await one.lease([e.keys])
        await one.write([e])
        assert one.stats()["leases"] == 0
        assert await two.lease([e.keys]) == [False]


async def test_a_failure_ends_its_lease_so_that_it_can_be_asked_again(path):
    with Store.open(path) as one, Store.open(path) as two:
        e = entry(1, BackendError("server", "no"))
        await one.lease([e.keys])
        await one.write([e])
        assert await two.lease([e.keys]) == [True]


async def test_closing_gives_all_leases_back(path):
    one = Store.open(path)
    await one.lease([("a",)])
    one.close()
    with Store.open(path) as two:
        assert await two.lease([("a",)]) == [True]


async def test_a_holder_gives_back_its_own_leases_and_no_others(path):
    with Store.open(path) as one, Store.open(path) as two:
        await one.lease([("a", "b"), ("c",)])
        await two.release(["a"])
        assert await two.lease([("a",)]) == [False]
        await one.release(["a", "b"])
        assert await two.lease([("a",), ("b",), ("c",)]) == [True, True, False]


def test_a_killed_holders_leases_are_free_at_once(path):
    in_child(f"""
        store = Store.open({str(path)!r})
        assert asyncio.run(store.lease([("a",)])) == [True]
        os._exit(0)
    """)
    with Store.open(path) as store:
        assert store.stats()["leases"] == 1
        assert asyncio.run(store.lease([("a",)])) == [True]


async def test_a_lease_that_is_not_renewed_ends_and_a_renewed_one_stays(path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(store_module.time, "monotonic", lambda: clock[0])
    with Store.open(path) as one, Store.open(path) as two:
        await one.lease([("a",)])
        clock[0] += store_module.LEASE_SECONDS - 1
        assert await two.lease([("a",)]) == [False]
        await one.renew_leases()
        clock[0] += store_module.LEASE_SECONDS - 1
        assert await two.lease([("a",)]) == [False]
        clock[0] += 2
        assert await two.lease([("a",)]) == [True]


async def test_a_wall_clock_that_jumps_ends_no_lease(path, monkeypatch):
    with Store.open(path) as one, Store.open(path) as two:
        await one.lease([("a",)])
        real = time.time
        for jump in (1e6, -1e6):
            monkeypatch.setattr(store_module.time, "time", lambda jump=jump: real() + jump)
            assert await two.lease([("a",)]) == [False]
            await two.write([entry(int(jump > 0))])
        assert two.verify().sound


def test_two_processes_write_at_once_and_none_is_told_locked(path):
    Store.open(path).close()
    script = f"""
        import sys
        sys.path[:0] = [{os.getcwd()!r}, {os.path.dirname(__file__)!r}]
        from test_store import *
        store = Store.open({str(path)!r})
        start = int(sys.argv[1])
        for i in range(start, start + 400):
            put(store, entry(i))
        store.close()
    """
    children = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(start)], stderr=subprocess.PIPE, text=True)
        for start in (0, 200)  # they overlap
    ]
    for child in children:
        _, err = child.communicate(timeout=100)
        assert child.returncode == 0, err
    with Store.open(path) as store:
        assert store.stats()["answers"] == 2 * 600
        assert store.verify().sound


def test_several_processes_may_make_the_same_new_store(tmp_path):
    code = f"import sys; sys.path[:0] = [{os.getcwd()!r}]; from audit.store.store import Store; sys.stdin.read()\n"
    for trial in range(2):
        opening = code + f"for i in range(5): Store.open({str(tmp_path)!r} + f'/{trial}-{{i}}.db').close()"
        children = [subprocess.Popen([sys.executable, "-c", opening], stdin=subprocess.PIPE) for _ in range(3)]
        time.sleep(0.5)  # all are imported and wait
        for child in children:
            child.stdin.close()
        assert [child.wait(timeout=60) for child in children] == [0, 0, 0]


# -- runs, rows, baselines ---------------------------------------------------------------------


def test_rows_read_back_as_they_were_written(store):
    rows = [
        StoredRow(
            Row(
                f"item {i}",
                {"template": i % 3, "occupation": "nurse \ud800", "none": None, "share": 0.1},
                {}
                if i % 5 == 0
                else {"p": IdentifiedInterval.exact(1 / (3 + i)), "b": IdentifiedInterval(None, 0.25, 0.5)},
                "refusal" if i % 5 == 0 else None,
            ),
            entry(i).keys if i else (),
        )
        for i in range(4500)
    ]
    store.start_run("r1", "title", "{}")
    assert store.write_rows("r1", "m", "s", iter(rows)) == 4500
    store.write_rows("r1", "other", "s", rows[:1])
    assert list(store.read_rows("r1", "m", "s")) == rows
    store.write_rows("r1", "m", "s", rows[:7])
    assert list(store.read_rows("r1", "m", "s")) == rows[:7]
    assert list(store.read_rows("r1", "m", "unknown")) == []


def test_runs_and_results_are_kept(store):
    store.start_run("r1", "one", '{"a": "\ud800"}')
    store.start_run("r2", "two", "{}")
    assert store.result("r1") is None
    store.finish_run("r1", "done", '{"x": 1.5}')
    store.finish_run("r2", "failed: ValueError", None)
    newest, oldest = store.runs()
    assert (newest.id, newest.status, newest.finished is None) == ("r2", "failed: ValueError", False)
    assert (oldest.id, oldest.config, oldest.status) == ("r1", '{"a": "\ud800"}', "done")
    assert store.result("r1") == '{"x": 1.5}'
    assert store.result("r2") is None


def test_a_baseline_is_saved_once_and_then_promoted(store):
    for run in ("r1", "r2", "open"):
        store.start_run(run, "t", "{}")
    store.finish_run("r1", "done", "{}")
    store.finish_run("r2", "done", "{}")
    with pytest.raises(ConfigError, match="not there"):
        store.promote("main", "r1")
    with pytest.raises(ConfigError, match="no result"):
        store.save_baseline("main", "open")
    store.save_baseline("main", "r1")
    with pytest.raises(ConfigError, match="already there"):
        store.save_baseline("main", "r2")
    store.promote("main", "r2")
    [baseline] = store.baselines()
    assert (baseline.name, baseline.run_id, baseline.earlier) == ("main", "r2", ("r1",))


# -- copies and versions -----------------------------------------------------------------------


async def test_a_backup_taken_while_writing_is_sound(path, tmp_path):
    with Store.open(path) as store:
        await store.write([entry(i) for i in range(50)])

        async def write_on():
            for i in range(50, 250):
                await store.write([entry(i)])

        writing = asyncio.create_task(write_on())
        await asyncio.sleep(0.02)
        await asyncio.to_thread(store.backup, tmp_path / "copy.db")
        await writing
        with pytest.raises(ConfigError, match="already there"):
            store.backup(tmp_path / "copy.db")
    with Store.open(tmp_path / "copy.db") as copy:
        assert copy.verify().sound
        assert 100 <= copy.stats()["answers"] <= 500
        assert len(copy.known(k for i in range(50) for k in entry(i).keys)) == 100
    assert sorted(os.listdir(tmp_path)) == ["audit.db", "copy.db"]


@pytest.mark.parametrize("steps", range(1, len(migrations._migrations) + 1))
def test_a_store_of_every_earlier_schema_is_brought_up_to_date(path, steps):
    e = entry(1)
    with Store.open(path) as store:
        put(store, e)
    kept = sql(path, "SELECT * FROM answers"), sql(path, "SELECT * FROM prompts")
    old = path.with_name("old.db")
    db = sqlite_utils.Database(old)
    names = [m.name for m in migrations._migrations]
    migrations.apply(db, stop_before=names[steps] if steps < len(names) else None)
    db.execute(f"PRAGMA application_id={store_module.APPLICATION_ID}")
    for table, rows in zip(("answers", "prompts"), kept, strict=True):
        db.conn.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
    db.conn.commit()
    db.conn.close()
    with Store.open(old) as store:
        assert join_answers(e.request, e.keys, store.get_many(e.keys)) == e.answer
        assert store.verify().sound
        assert asyncio.run(store.lease([("a",)])) == [True]
        store.start_run("r", "t", "{}")
        assert len(store.runs()) == 1


def test_rows_of_the_schema_before_chunks_are_kept(tmp_path):
    old = tmp_path / "old.db"
    db = sqlite_utils.Database(old)
    migrations.apply(db, stop_before="m004_row_chunks")
    db.execute(f"PRAGMA application_id={store_module.APPLICATION_ID}")
    columns = "run, model, suite, item, factors, quantities, missing, keys"
    for run in ("r1", "r2"):
        for i in range(2003):
            quantities = b'{"p": [0.5, 0.5, 0.5], "b": [null, 0.25, 0.5]}' if i else b"{}"
            factors = '{"occupation": "nurse \ud800"}'.encode("utf-8", "surrogatepass")
            row = (run, "m", "s", f"item {i}", factors, quantities, None if i else "refusal", b"k1\nk2" if i else b"")
            db.conn.execute(f"INSERT INTO item_rows ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.conn.commit()
    db.conn.close()
    with Store.open(old) as store:
        rows = list(store.read_rows("r2", "m", "s"))
    factors = {"occupation": "nurse \ud800"}
    assert rows[0] == StoredRow(Row("item 0", factors, {}, "refusal"), ())
    values = {"p": IdentifiedInterval.exact(0.5), "b": IdentifiedInterval(None, 0.25, 0.5)}
    assert rows[1:] == [StoredRow(Row(f"item {i}", factors, values), ("k1", "k2")) for i in range(1, 2003)]


def test_damaged_rows_are_told_and_never_read_as_numbers(store, path):
    store.write_rows(
        "r1", "m", "s", [StoredRow(Row(f"i{i}", {}, {"p": IdentifiedInterval.exact(0.5)}), ()) for i in range(9)]
    )
    with sqlite3.connect(path) as db:
        body = bytearray(db.execute("SELECT body FROM row_chunks").fetchone()[0])
        body[len(body) // 2] ^= 1
        db.execute("UPDATE row_chunks SET body = ?", (bytes(body),))
    with pytest.raises(StoreError, match="rows of run r1"):
        list(store.read_rows("r1", "m", "s"))


def test_the_file_says_how_many_steps_its_schema_has_taken(path):
    Store.open(path).close()
    assert sql(path, "PRAGMA user_version") == [(store_module.SCHEMA,)] == [(len(migrations._migrations),)]
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=0")  # as the first stores have it
    Store.open(path, read_only=True).close()
    Store.open(path).close()
    assert sql(path, "PRAGMA user_version") == [(store_module.SCHEMA,)]


def test_a_store_of_a_newer_version_is_refused(path):
    Store.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={store_module.SCHEMA + 1}")
        db.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('bias-audit', 'm999', '')")
    before = shutil.copy(path, path.with_name("copy"))
    with pytest.raises(ConfigError, match="newer version"):
        Store.open(path)
    assert path.read_bytes() == Path(before).read_bytes()


def test_explain_tells_who_was_asked_what(store):
    store.record_fingerprint({"model": "m"})
    e = entry(3)
    put(store, e)
    told = store.explain(e.keys[1])
    assert told["fingerprint"] == {"model": "m"}
    assert told["prompt"] == "prompt 3"
    assert told["detail"] == " b\x00\ud800"
    assert told["checksum"] == "right"
    assert told["answer"][1][0][0] == e.answer.scores[1].logprob

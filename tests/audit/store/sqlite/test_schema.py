"""Opening: what is not a store is refused and unchanged, older schemas are brought up to date."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import sqlite_utils

from audit.store import Store, StoredRow, join_answers
from audit.store.answers.packed import single_rows
from audit.store.sqlite import schema
from audit.store.sqlite.migrations import migrations
from backends.errors import ConfigError
from suites.base import IdentifiedInterval, Row
from tests.audit.store.entries import answers_by_key, entry, put, sql


def test_the_file_is_in_wal_mode_with_full_flushes(store):
    with store._database.read() as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_truncated_file_is_refused_and_unchanged(path):
    with Store.open(path) as store:
        put(store, *(entry(i) for i in range(300)))
    before = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(before)
    with pytest.raises(ConfigError, match="damaged"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_damaged_page_is_refused_and_unchanged(path):
    with Store.open(path) as store:
        put(store, *(entry(i) for i in range(300)))
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 3 + 200] = os.urandom(200)  # the header of an inner page
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="damaged"):
        Store.open(path)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("content", [b"PK\x03\x04 not a database at all" * 9, b"SQLite format 3\0", b"x"])
def test_a_file_that_is_no_store_is_refused_and_unchanged(path, content):
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not a store"):
        Store.open(path)
    assert path.read_bytes() == content


def test_a_foreign_database_is_refused_and_unchanged(path):
    sql(path, "CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        Store.open(path)
    assert path.read_bytes() == before


def test_what_is_no_store_is_not_called_an_older_one(path):
    sql(path, "CREATE TABLE mine (x)")
    with pytest.raises(ConfigError, match="of another program, not a store of answers"):
        Store.open(path, read_only=True)
    sql(path, "PRAGMA user_version = 8")  # another program counts its versions too
    with pytest.raises(ConfigError, match="of another program, not a store of answers"):
        Store.open(path, read_only=True)
    path.unlink()
    path.touch()
    with pytest.raises(ConfigError, match="is empty: no audit has stored an answer in it"):
        Store.open(path, read_only=True)
    sql(path, "VACUUM")  # a database with a header, and nothing else
    with pytest.raises(ConfigError, match="is empty"):
        Store.open(path, read_only=True)


def test_a_folder_and_a_missing_file_are_refused(tmp_path, path):
    with pytest.raises(ConfigError, match="folder"):
        Store.open(tmp_path)
    with pytest.raises(ConfigError, match="not exist"):
        Store.open(path, read_only=True)
    assert not path.exists()


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    with Store.open(path) as store:
        put(store, entry(1))


@pytest.mark.parametrize("folder_writable", [True, False])
def test_a_file_without_write_permission_is_refused(folder_writable):
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


def test_several_processes_may_create_the_same_store(tmp_path):
    code = f"import sys; sys.path[:0] = [{os.getcwd()!r}]; from audit.store import Store; sys.stdin.read()\n"
    for trial in range(2):
        opening = code + f"for i in range(5): Store.open({str(tmp_path)!r} + f'/{trial}-{{i}}.db').close()"
        children = [subprocess.Popen([sys.executable, "-c", opening], stdin=subprocess.PIPE) for _ in range(3)]
        time.sleep(0.5)  # all are imported and wait
        for child in children:
            child.stdin.close()
        assert [child.wait(timeout=60) for child in children] == [0, 0, 0]


@pytest.mark.parametrize("steps", range(1, len(migrations._migrations) + 1))
def test_every_earlier_schema_is_brought_up_to_date(path, steps):
    e = entry(1)
    with Store.open(path) as store:
        put(store, e)
    kept = single_rows(e.question, e.answer, e.question.keys, at=1.0), sql(path, "SELECT * FROM prompts")
    old = path.with_name("old.db")
    db = sqlite_utils.Database(old)
    names = [m.name for m in migrations._migrations]
    migrations.apply(db, stop_before=names[steps] if steps < len(names) else None)
    db.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
    for table, rows in zip(("answers", "prompts"), kept, strict=True):
        db.conn.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
    db.conn.commit()
    db.conn.close()
    with Store.open(old) as store:
        assert join_answers(e.question.request, e.question.keys, answers_by_key(store, e.question.keys)) == e.answer
        assert store.answers.verify().sound
        assert asyncio.run(store.leases.take([e.question, entry(2).question])) == [False, True]
        store.runs.start("r", "t", "{}")
        assert len(store.runs.all()) == 1


def test_rows_of_the_schema_before_chunks_are_kept(tmp_path):
    old = tmp_path / "old.db"
    db = sqlite_utils.Database(old)
    migrations.apply(db, stop_before="m004_row_chunks")
    db.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
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
        rows = list(store.runs.read_rows("r2", "m", "s"))
    factors = {"occupation": "nurse \ud800"}
    assert rows[0] == StoredRow(Row("item 0", factors, {}, "refusal"), ())
    values = {"p": IdentifiedInterval.exact(0.5), "b": IdentifiedInterval(None, 0.25, 0.5)}
    assert rows[1:] == [StoredRow(Row(f"item {i}", factors, values), ("k1", "k2")) for i in range(1, 2003)]


def test_the_header_counts_the_schemas_steps(path):
    Store.open(path).close()
    assert sql(path, "PRAGMA user_version") == [(schema.SCHEMA,)] == [(len(migrations._migrations),)]
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=0")  # as the first stores have it
    Store.open(path, read_only=True).close()
    Store.open(path).close()
    assert sql(path, "PRAGMA user_version") == [(schema.SCHEMA,)]


def test_a_store_of_a_newer_version_is_refused(path):
    Store.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={schema.SCHEMA + 1}")
        db.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('bias-audit', 'm999', '')")
    before = shutil.copy(path, path.with_name("copy"))
    with pytest.raises(ConfigError, match="newer version"):
        Store.open(path)
    assert path.read_bytes() == Path(before).read_bytes()

"""The writing thread: durable, never blocking the caller's loop, clear about what it cannot write."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import subprocess
import sys
import textwrap

import pytest

from audit.store import Entry, Store, StoreError, keyed_request
from backends.base import (
    GenerateRequest,
    GenerateResponse,
)
from tests.audit.store.entries import FP, answers_by_key, entry, in_child, put


def test_an_answer_is_on_the_disk_when_write_returns(path):
    """A process that dies right after the acknowledgement has lost nothing."""
    script = f"""
        import asyncio, os, signal, sys
        sys.path[:0] = [{os.getcwd()!r}]
        from tests.audit.store.entries import *
        store = Store.open({str(path)!r})
        for i in range(50):
            put(store, entry(i))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=60, check=False)
    assert done.returncode == -9
    with Store.open(path) as store:
        assert len(answers_by_key(store, [k for i in range(50) for k in entry(i).question.keys])) == 100
        assert store.answers.verify().sound


async def test_writing_blocks_no_event_loop(path, no_blocking):
    store = await asyncio.to_thread(Store.open, path)
    await store.answers.write([entry(1)])
    assert await store.leases.take([entry(2).question]) == [True]
    await store.leases.renew()
    await store.leases.release_all()
    await asyncio.to_thread(store.close)


async def test_one_bad_entry_does_not_fail_its_neighbours(store):
    request = GenerateRequest("p")
    question = dataclasses.replace(keyed_request(request, FP), keys=("a", "too many keys"))
    bad = Entry(question, GenerateResponse("t", "stop"))
    results = await asyncio.gather(
        *(store.answers.write([e]) for e in (entry(1), bad, entry(2))), return_exceptions=True
    )
    assert [type(r) for r in results] == [list, ValueError, list]
    assert len(answers_by_key(store, [*entry(1).question.keys, *entry(2).question.keys])) == 4


def test_a_full_disk_is_reported_and_stored_answers_stay(path):
    out = in_child(f"""
        import resource
        from audit.store import StoreError
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
    keys = [key for i in range(int(kept)) for key in entry(i).question.keys]
    with Store.open(path) as store:
        assert len(answers_by_key(store, keys)) == 2 * int(kept)
        assert store.answers.verify().sound


def test_a_full_database_is_reported_as_full(store):
    put(store, entry(0))

    def limit(db):
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages + 5}")

    store._database.submit(limit).result()
    kept = 1
    with contextlib.suppress(StoreError):
        while kept < 1000:
            put(store, entry(kept))
            kept += 1
    assert 1 < kept < 1000
    with pytest.raises(StoreError, match="disk is full") as caught:
        put(store, entry(kept))
    assert caught.value.reason == "full"
    assert len(answers_by_key(store, [k for j in range(kept) for k in entry(j).question.keys])) == 2 * kept


def test_a_read_only_store_takes_nothing(path):
    with Store.open(path) as store:
        put(store, entry(1))
    with Store.open(path, read_only=True) as store:
        assert len(answers_by_key(store, entry(1).question.keys)) == 2
        with pytest.raises(StoreError, match="read-only"):
            put(store, entry(2))


def test_a_writer_without_a_file_fails_every_caller(path, tmp_path):
    with Store.open(path) as store:
        path.rename(tmp_path / "moved.db")
        for _ in range(2):
            with pytest.raises(StoreError):
                store.runs.start("r", "title", "{}")


def test_two_processes_write_at_once_without_lock_errors(path):
    Store.open(path).close()
    script = f"""
        import sys
        sys.path[:0] = [{os.getcwd()!r}]
        from tests.audit.store.entries import *
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
        assert store.answers.verify().sound

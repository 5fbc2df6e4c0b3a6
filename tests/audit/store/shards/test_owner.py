"""The owner of a shard: one at a time writes, and what was done is not done twice, whatever answers are lost."""

from __future__ import annotations

import asyncio
import os
import pickle
import sqlite3
import time
from functools import partial
from pathlib import Path

import pytest

from audit.store import Store, StoreError, keyed_request, leases
from audit.store.answers import packed
from audit.store.answers.writing import encode, insert
from audit.store.clients import new_client
from audit.store.shards import OwnerLostError, OwnerWriter, ShardOwner, owner_writer, shard_files
from audit.store.shards.files import shard_id
from backends.errors import ConfigError
from tests.audit.store.entries import FP, answers_by_key, entry, question, sql

CLIENT = new_client()
A, B = "elsewhere:1:2.0:a", "elsewhere:1:2.0:b"  # clients on other machines


def own(file):
    return ShardOwner(str(file), *shard_id(file))


@pytest.fixture
def file(path):
    with Store.open(path, shards=1 + 1):
        return shard_files(path, 2)[0]


def storing(i):
    return partial(insert, encoded=[encode(entry(i), 1.0)])


def stored(file):
    return sql(file, "SELECT count(*) FROM packed_scores")[0][0]


def test_an_owner_that_was_replaced_writes_nothing(file):
    first = own(file)
    assert first.perform(CLIENT, 1, [storing(1)])[0].result == [2]
    second = own(file)
    assert second.epoch == first.epoch + 1
    with pytest.raises(StoreError, match=f"owner {first.epoch} of this shard was replaced") as told:
        first.perform(CLIENT, 2, [storing(2)])
    assert told.value.reason == "replaced"
    assert stored(file) == 1
    assert second.perform(CLIENT, 2, [storing(2)])[0].result == [2]
    assert stored(file) == 2


def test_a_call_that_is_repeated_is_carried_out_once(file):
    def fail(db):
        db.execute("INSERT INTO failures (key, fingerprint, kind, prompt, detail, error, body, at) "
                   "VALUES ('k', 'f', 'score', 'p', x'', 'server', x'', 1.0)")  # fmt: skip
        return "told"

    first = own(file)
    wanted = [keyed_request(question(5), FP)]
    works = [fail, partial(leases._take, client=A, requests=wanted), storing(1)]
    done = first.perform(CLIENT, 7, works)
    assert [one.result for one in done] == ["told", [True], [2]]
    assert first.perform(CLIENT, 7, works) == done
    assert own(file).perform(CLIENT, 7, works) == done, "also by the next owner"
    assert sql(file, "SELECT count(*) FROM failures") == [(1,)]


def test_a_call_that_comes_late_is_not_carried_out_again(file):
    owner, wanted = own(file), [keyed_request(question(5), FP)]
    take = partial(leases._take, client=A, requests=wanted)
    assert owner.perform(CLIENT, 7, [take])[0].result == [True]
    held = [(wanted[0].group, packed.tags(wanted[0].keys))]
    owner.perform(CLIENT, 8, [partial(leases._release, client=A, held=held)])
    with pytest.raises(StoreError, match="call 7 comes after call 8"):
        owner.perform(CLIENT, 7, [take])  # nobody would know of this lease, and nobody else could ask
    assert sql(file, "SELECT count(*) FROM request_leases") == [(0,)]


def test_work_that_fails_leaves_nothing_and_its_neighbours(file):
    def broken(db):
        db.execute("INSERT INTO prompts VALUES ('p1-half', x'00')")
        raise KeyError("broken")

    done = own(file).perform(CLIENT, 1, [storing(1), broken, storing(2)])
    assert [type(one.error) for one in done] == [type(None), KeyError, type(None)]
    assert stored(file) == 2
    assert sql(file, "SELECT count(*) FROM prompts WHERE id = 'p1-half'") == [(0,)]


def test_a_full_disk_is_told_and_nothing_is_half_stored(file):
    owner = own(file)
    owner._database.submit(lambda db: db.execute("PRAGMA max_page_count = 1").fetchall()).result()

    def fill(db):
        db.execute("INSERT INTO prompts VALUES ('p1-large', zeroblob(10000000))")

    with pytest.raises(StoreError) as told:
        owner.perform(CLIENT, 1, [storing(1), fill])
    assert told.value.reason == "full"
    assert stored(file) == 0


def test_an_owner_of_another_file_is_refused(file, path):
    with pytest.raises(ConfigError, match="is not shard 2"):
        ShardOwner(str(file), *shard_id(shard_files(path, 2)[1]))
    file.rename(path.with_name("elsewhere"))
    with pytest.raises(sqlite3.OperationalError):
        ShardOwner(str(file), *shard_id(shard_files(path, 2)[1]))
    assert not file.exists()


def test_leases_outlast_their_owner_and_its_clock(file, monkeypatch):
    clock = [1e6]
    monkeypatch.setattr(leases.time, "monotonic", lambda: clock[0])
    wanted = [keyed_request(question(5), FP)]
    take = partial(leases._take, requests=wanted)
    assert own(file).perform(A, 1, [partial(take, client=A)])[0].result == [True]
    clock[0] = 5.0  # of another machine
    second = own(file)
    assert second.perform(B, 1, [partial(take, client=B)])[0].result == [False]
    clock[0] += leases.LEASE_SECONDS - 1
    second.perform(A, 2, [partial(leases._renew, client=A)])
    clock[0] += 2
    assert second.perform(B, 2, [partial(take, client=B)])[0].result == [False]
    clock[0] += leases.LEASE_SECONDS
    assert second.perform(B, 3, [partial(take, client=B)])[0].result == [True]


def run(waiting):
    async def wait():
        return await waiting

    return asyncio.run(wait())


class Unreliable:
    """An owner whose answers are lost now and then, whether it did its work or not."""

    def __init__(self, file, calls):
        self._owner, self._calls = own(file), calls

    def perform(self, *call):
        self._calls.append(call[1])
        if len(self._calls) % 3 == 1:
            raise OwnerLostError("before")
        done = self._owner.perform(*call)
        if len(self._calls) % 3 == 2:
            raise OwnerLostError("after")
        return done

    def forget(self, client):
        self._owner.forget(client)


def test_lost_answers_of_owners_lose_and_double_nothing(path, monkeypatch):
    monkeypatch.setattr(owner_writer, "_FIRST_PAUSE", 0.001)
    calls = []
    with Store.open(path, shards=2) as store:
        store.let_own(lambda file: OwnerWriter(file, lambda: Unreliable(file, calls)))
        wanted = [keyed_request(question(i), FP) for i in range(30)]
        for i, request in enumerate(wanted):
            assert run(store.leases.take([request])) == [True]
            run(store.answers.write([entry(i)]))
        assert len(answers_by_key(store, [key for request in wanted for key in request.keys])) == 60
        assert store.stats()["answers"] == 60
        assert store.stats()["leases"] == 0
    assert len(calls) > 100
    for file in shard_files(path, 2):
        assert sql(file, "SELECT count(*) FROM owner_calls") == [(0,)], "who has closed calls no more"


def test_a_shard_without_an_owner_is_told_in_the_end(path, monkeypatch):
    monkeypatch.setattr(owner_writer, "PATIENCE_SECONDS", 0.2)

    def reach():
        raise OwnerLostError("no node")

    store = Store.open(path, shards=2)
    store.let_own(lambda file: OwnerWriter(file, reach))
    with pytest.raises(StoreError, match="no owner can be reached: no node") as told:
        run(store.answers.write([entry(1)]))
    assert told.value.reason == "lost"
    store.close()


class Ending:
    """An owner that ends after a while of each of its first calls."""

    def __init__(self, file, lost, times):
        self._owner, self._lost, self._times = own(file), lost, times

    def perform(self, *call):
        if len(self._lost) < self._times:
            self._lost.append(call)
            time.sleep(0.15)
            raise OwnerLostError("it ended")
        return self._owner.perform(*call)

    def forget(self, client):
        self._owner.forget(client)


def test_patience_is_with_a_shard_without_an_owner(path, monkeypatch):
    monkeypatch.setattr(owner_writer, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(owner_writer, "_FIRST_PAUSE", 0.001)
    lost = []
    with Store.open(path, shards=2) as store:
        store.let_own(lambda file: OwnerWriter(file, lambda: Ending(file, lost, 4)))
        run(store.answers.write([entry(1)]))
        assert len(lost) == 4, "none was missing for long"
        lost.clear()
        store.let_own(lambda file: OwnerWriter(file, lambda: Ending(file, lost, 100)))
        with pytest.raises(StoreError, match="no owner can be reached: it ended"):
            run(store.answers.write([entry(2)]))
        assert len(lost) == 9
        store.own_itself()


def test_calls_of_clients_that_ended_are_forgotten(file):
    owner, alive = own(file), new_client()
    gone = alive.replace(f":{os.getpid()}:", ":999999999:")
    for client in (alive, gone):
        owner.perform(client, 1, [storing(1)])
    own(file)
    assert sql(file, "SELECT client FROM owner_calls") == [(alive,)]


def test_errors_of_a_store_travel_between_processes():
    error = pickle.loads(pickle.dumps(StoreError(Path("audit.db"), "full", "no space")))
    assert (error.reason, str(error)) == ("full", str(StoreError(Path("audit.db"), "full", "no space")))

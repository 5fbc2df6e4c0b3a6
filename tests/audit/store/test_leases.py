"""Leases: no key is asked twice at once, and none is blocked for ever."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from audit.store import Store, clients, keyed_request, leases
from backends.base import ScoreRequest
from backends.errors import BackendError
from tests.audit.store.entries import FP, entry, in_child, sql


def ask(*continuations, prompt="p"):
    return keyed_request(ScoreRequest(prompt, continuations), FP)


async def test_two_owners_never_get_the_same_lease(path):
    with Store.open(path) as one, Store.open(path) as two:
        wanted = [ask(f"k{i}", f"j{i}") for i in range(100)] + [ask("k", "j", prompt=f"{i}") for i in range(100)]
        first, second = await asyncio.gather(one.leases.take(wanted), two.leases.take(wanted))
        assert [a + b for a, b in zip(first, second, strict=True)] == [1] * 200
        assert await one.leases.take([ask("j7", "new")]) == [False]


async def test_one_owner_never_gets_a_lease_twice(store):
    assert await store.leases.take([ask("a", "b"), ask("b", "c"), ask("c")]) == [True, False, True]


async def test_an_answer_ends_its_lease_and_is_not_leased_again(path):
    with Store.open(path) as one, Store.open(path) as two:
        e = entry(1)
        await one.leases.take([e.question])
        await one.answers.write([e])
        assert one.stats()["leases"] == 0
        assert await two.leases.take([e.question]) == [False]


async def test_a_failure_ends_its_lease_and_is_leased_again(path):
    with Store.open(path) as one, Store.open(path) as two:
        e = entry(1, BackendError("server", "no"))
        await one.leases.take([e.question])
        await one.answers.write([e])
        assert await two.leases.take([e.question]) == [True]


@pytest.mark.parametrize("shards", [1, 2])
async def test_a_late_failure_leaves_anothers_lease(path, shards, monkeypatch):
    """Who stalls loses its lease; then it ended that of who asks meanwhile, and a third one paid as well."""
    failed = entry(1, BackendError("server", "no"))
    clock = [time.monotonic()]
    monkeypatch.setattr(leases.time, "monotonic", lambda: clock[0])
    with Store.open(path, shards=shards) as stalled, Store.open(path) as other, Store.open(path) as third:
        await stalled.leases.take([failed.question])
        clock[0] += leases.LEASE_SECONDS + 1
        assert await other.leases.take([failed.question]) == [True]
        await stalled.answers.write([failed])
        assert await third.leases.take([failed.question]) == [False]


async def test_closing_releases_all_leases(path):
    one = Store.open(path)
    await one.leases.take([ask("a")])
    one.close()
    with Store.open(path) as two:
        assert await two.leases.take([ask("a")]) == [True]


async def test_an_owner_releases_only_its_own_leases(path):
    with Store.open(path) as one, Store.open(path) as two:
        await one.leases.take([ask("a", "b"), ask("c")])
        await two.leases.release([ask("a")])
        assert await two.leases.take([ask("a")]) == [False]
        await one.leases.release([ask("a", "b")])
        assert await two.leases.take([ask("a"), ask("b"), ask("c")]) == [True, True, False]


def test_leases_of_a_killed_process_are_free_at_once(path):
    in_child(f"""
        store = Store.open({str(path)!r})
        assert asyncio.run(store.leases.take([entry(1).question])) == [True]
        os._exit(0)
    """)
    with Store.open(path) as store:
        assert store.stats()["leases"] == 1
        assert asyncio.run(store.leases.take([entry(1).question])) == [True]


def test_a_process_of_another_machine_is_not_taken_for_gone(monkeypatch):
    boot = clients._boot()
    gone = clients.new_client().replace(f":{os.getpid()}:", ":999999999:")
    assert clients.is_gone(gone)
    assert clients.is_gone(gone.removeprefix(f"{boot}/")), "as earlier versions wrote it"
    monkeypatch.setattr(clients, "_boot", lambda: "another")
    assert not clients.is_gone(gone)


async def test_a_lease_ends_unless_it_is_renewed(path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: clock[0])
    with Store.open(path) as one, Store.open(path) as two:
        await one.leases.take([ask("a")])
        clock[0] += leases.LEASE_SECONDS - 1
        assert await two.leases.take([ask("a")]) == [False]
        await one.leases.renew()
        clock[0] += leases.LEASE_SECONDS - 1
        assert await two.leases.take([ask("a")]) == [False]
        clock[0] += 2
        assert await two.leases.take([ask("a")]) == [True]


async def test_a_jump_of_the_wall_clock_ends_no_lease(path, monkeypatch):
    with Store.open(path) as one, Store.open(path) as two:
        await one.leases.take([ask("a")])
        real = time.time
        for jump in (1e6, -1e6):
            monkeypatch.setattr(leases.time, "time", lambda jump=jump: real() + jump)
            assert await two.leases.take([ask("a")]) == [False]
            await two.answers.write([entry(int(jump > 0))])
        assert two.answers.verify().sound


async def test_a_partly_answered_request_is_not_leased(store):
    request = ScoreRequest("prompt 1", (" a", " more"))
    await store.answers.write([entry(1)])
    assert await store.leases.take([keyed_request(request, FP), ask(" more", prompt="prompt 1")]) == [False, True]


async def test_a_lease_of_an_earlier_version_counts_while_it_lives(path):
    with Store.open(path) as one, Store.open(path) as two:
        await one.leases.renew()
        sql(path, "INSERT INTO leases SELECT ?, owner FROM owners", ask("a").keys[0])
        assert await two.leases.take([ask("a", "b"), ask("c")]) == [False, True]
        await one.leases.release_all()
        assert await two.leases.take([ask("a", "b")]) == [True]


def test_a_living_client_outlives_a_clock_that_is_set(monkeypatch):
    class Psutil6:
        """It reckons a process's start from the boot time that was read last."""

        Error, STATUS_ZOMBIE, boot, read = OSError, "zombie", 1000.0, 1000.0

        def boot_time(self):
            self.read = self.boot
            return self.read

        def Process(self, pid):
            return self

        def status(self):
            return "sleeping"

        def create_time(self):
            return self.read + 5.0

    psutil = Psutil6()
    monkeypatch.setattr(clients, "psutil", psutil)
    client = clients.new_client()
    psutil.boot += 30  # the clock was set
    assert not clients.is_gone(client)

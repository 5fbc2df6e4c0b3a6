"""Leases: no key is asked twice at once, and none is blocked for ever."""

from __future__ import annotations

import asyncio
import time

from audit.store import Store, leases
from backends.errors import BackendError
from tests.audit.store.entries import entry, in_child


async def test_two_owners_never_get_the_same_lease(path):
    with Store.open(path) as one, Store.open(path) as two:
        wanted = [(f"k{i}", f"j{i}") for i in range(200)]
        first, second = await asyncio.gather(one.leases.take(wanted), two.leases.take(wanted))
        assert [a + b for a, b in zip(first, second, strict=True)] == [1] * 200
        assert await one.leases.take([("j7", "new")]) == [False]


async def test_one_owner_never_gets_a_lease_twice(store):
    assert await store.leases.take([("a", "b"), ("b", "c"), ("c",)]) == [True, False, True]


async def test_an_answer_ends_its_lease_and_is_not_leased_again(path):
    with Store.open(path) as one, Store.open(path) as two:
        e = entry(1)
        await one.leases.take([e.question.keys])
        await one.answers.write([e])
        assert one.stats()["leases"] == 0
        assert await two.leases.take([e.question.keys]) == [False]


async def test_a_failure_ends_its_lease_and_is_leased_again(path):
    with Store.open(path) as one, Store.open(path) as two:
        e = entry(1, BackendError("server", "no"))
        await one.leases.take([e.question.keys])
        await one.answers.write([e])
        assert await two.leases.take([e.question.keys]) == [True]


async def test_closing_releases_all_leases(path):
    one = Store.open(path)
    await one.leases.take([("a",)])
    one.close()
    with Store.open(path) as two:
        assert await two.leases.take([("a",)]) == [True]


async def test_an_owner_releases_only_its_own_leases(path):
    with Store.open(path) as one, Store.open(path) as two:
        await one.leases.take([("a", "b"), ("c",)])
        await two.leases.release(["a"])
        assert await two.leases.take([("a",)]) == [False]
        await one.leases.release(["a", "b"])
        assert await two.leases.take([("a",), ("b",), ("c",)]) == [True, True, False]


def test_leases_of_a_killed_process_are_free_at_once(path):
    in_child(f"""
        store = Store.open({str(path)!r})
        assert asyncio.run(store.leases.take([("a",)])) == [True]
        os._exit(0)
    """)
    with Store.open(path) as store:
        assert store.stats()["leases"] == 1
        assert asyncio.run(store.leases.take([("a",)])) == [True]


async def test_a_lease_ends_unless_it_is_renewed(path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: clock[0])
    with Store.open(path) as one, Store.open(path) as two:
        await one.leases.take([("a",)])
        clock[0] += leases.LEASE_SECONDS - 1
        assert await two.leases.take([("a",)]) == [False]
        await one.leases.renew()
        clock[0] += leases.LEASE_SECONDS - 1
        assert await two.leases.take([("a",)]) == [False]
        clock[0] += 2
        assert await two.leases.take([("a",)]) == [True]


async def test_a_jump_of_the_wall_clock_ends_no_lease(path, monkeypatch):
    with Store.open(path) as one, Store.open(path) as two:
        await one.leases.take([("a",)])
        real = time.time
        for jump in (1e6, -1e6):
            monkeypatch.setattr(leases.time, "time", lambda jump=jump: real() + jump)
            assert await two.leases.take([("a",)]) == [False]
            await two.answers.write([entry(int(jump > 0))])
        assert two.answers.verify().sound

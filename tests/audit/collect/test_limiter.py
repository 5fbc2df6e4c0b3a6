"""How fast a server is asked, and when it is asked no more."""

from __future__ import annotations

import asyncio

import pytest

from audit.collect import limiter as limiter_module
from audit.collect.limiter import FIRST_WINDOW, CircuitBreaker, Halted, Limiter
from backends.errors import BackendError


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(limiter_module, "_now", lambda: now[0])
    return now


def never():
    return asyncio.get_running_loop().create_future()


async def admitted(limiter: Limiter) -> float | None:
    """The turn, if there is one at once."""
    try:
        return await asyncio.wait_for(limiter.enter(never()), 0.001)
    except TimeoutError:
        return None


async def test_few_requests_are_sent_first_and_one_more_for_each_answer(clock):
    limiter = Limiter(most=6)
    turns = [await limiter.enter(never()) for _ in range(FIRST_WINDOW)]
    assert await admitted(limiter) is None
    for turn in turns:
        limiter.leave(turn)
    assert sum([await admitted(limiter) is not None for _ in range(10)]) == 6, "at most as many as are allowed"


async def test_a_refusal_holds_every_request_as_long_as_it_asks_then_at_the_rate_that_was_accepted(clock):
    limiter = Limiter(most=4)
    turns = [await limiter.enter(never()) for _ in range(4)]
    clock[0] += 1
    for turn in turns[1:]:
        limiter.leave(turn)
    limiter.leave(turns[0], BackendError("rate_limited", "slow down", retry_after=5.0))
    clock[0] += 4.9
    assert await admitted(limiter) is None
    clock[0] += 0.2
    assert await admitted(limiter) is not None
    assert await admitted(limiter) is None, "not all at once"
    assert limiter.rate == pytest.approx(3 * 0.95)


async def test_a_burst_of_refusals_counts_once(clock):
    limiter = Limiter(most=8, start=8)
    turns = [await limiter.enter(never()) for _ in range(8)]
    clock[0] += 1
    for turn in turns[4:]:
        limiter.leave(turn)
    for turn in turns[:4]:
        limiter.leave(turn, BackendError("rate_limited", "slow down"))
    assert limiter.rate == pytest.approx(4 * 0.95)


async def test_a_halted_wait_takes_no_turn(clock):
    limiter, halted = Limiter(most=1), never()
    turn = await limiter.enter(never())
    stopped = asyncio.create_task(limiter.enter(halted))
    await asyncio.sleep(0)
    halted.set_result(None)
    limiter.leave(turn, BackendError("server", "busy", retry_after=100.0))
    with pytest.raises(Halted):
        await stopped
    clock[0] += 101
    assert await admitted(limiter) is not None


@pytest.mark.parametrize(("kind", "allowed"), [("auth", 5), ("server", 20)])
def test_failures_of_one_kind_in_a_row_end_the_asking(kind, allowed):
    breaker, error = CircuitBreaker(), BackendError(kind, "no")
    for _ in range(2):  # an answer, or another failure, begins anew
        assert [breaker.update(error) for _ in range(allowed - 1)] == [None] * (allowed - 1)
        assert breaker.update(None) is None
    assert [breaker.update(error) for _ in range(allowed)][-1].startswith(f"{allowed} requests in a row failed")


def test_a_request_that_is_wrong_in_itself_ends_nothing():
    breaker = CircuitBreaker()
    assert {breaker.update(BackendError("bad_request", "no")) for _ in range(100)} == {None}

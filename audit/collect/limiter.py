"""How fast a server may be asked, learned from its answers; and when to stop asking it.

A `Limiter` belongs to one endpoint and key, and is shared by all jobs that use them. It limits the requests in flight
(additive growth, halved when the server refuses: additive increase, multiplicative decrease) and, once the server has
refused for its rate, the requests a second: just below what it accepted, and a little more each second from there. A
wait that the server asks for (Retry-After) holds every request. A few refusals that ask for no wait are tolerated.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque

from backends.errors import LONGEST_ASKED_PAUSE, BackendError

FIRST_WINDOW = 4  # requests in flight: few, so that a server that refuses everything receives only a handful
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0
TOLERATED_SHARE = 0.05  # of refusals among the latest requests
SMOOTHING_REQUESTS = 32  # over which that share is smoothed
RATE_AFTER_CUT = 0.95  # share of the accepted rate that remains
GROWTH_PER_SECOND = 0.05  # of the rate
SHORTEST_MEASUREMENT_SECONDS = 0.5  # a rate is measured over no less
LOWEST_RATE_PER_SECOND = 0.2


class Halted(Exception):
    """A wait ended because its job sends nothing any more."""


class Limiter:
    """Admits requests to one endpoint. To be used from a single event loop, whose clock it uses.

    Parameters
    ----------
    most : int
        Maximum number of requests in flight.
    start : int
        Requests in flight at first.
    """

    def __init__(self, most: int, start: int = FIRST_WINDOW) -> None:
        self.most, self.window = most, float(min(start, most))
        self.rate: float | None = None
        self.in_flight = 0
        self._doubling = True  # the window, until the first cut
        self._share = 0.0  # of refusals
        self._pause = FIRST_PAUSE_SECONDS
        self._paused_until = self._next_at = self._last_cut = -math.inf
        self._since, self._accepted = math.inf, 0  # since the last cut
        self._waiting: deque[asyncio.Future[float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, halted: asyncio.Future[None], again: bool = False) -> float:
        """Wait for a turn, which `leave` must be given back; retries (``again``) go first.

        Raises
        ------
        Halted
            If the future is done before.
        """
        if halted.done():
            raise Halted
        if not self._waiting and self._admits():
            return self._admit()
        turn: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if again else self._waiting.append)(turn)
        self._wake()
        try:
            await asyncio.wait((turn, halted), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._give_up(turn)
            raise
        if halted.done():
            self._give_up(turn)
            raise Halted
        return turn.result()

    def leave(self, at: float, error: BackendError | None = None) -> None:
        """Give a turn back, with the error if the request failed."""
        now = _now()
        self.in_flight -= 1
        asked = usable_wait(error)
        if error is None:
            self._grow(at, now)
        elif error.kind == "rate_limited":
            self._refuse(at, now, asked or 0.0)
        elif asked is not None:
            self._paused_until = max(self._paused_until, now + asked)
        self._wake()

    def _grow(self, at: float, now: float) -> None:
        self._accepted += 1
        self._share -= self._share / SMOOTHING_REQUESTS
        if at > self._last_cut:
            self._pause = FIRST_PAUSE_SECONDS
        self.window = min(self.most, self.window + (1.0 if self._doubling else 1.0 / self.window))
        if self.rate is not None:
            self.rate += GROWTH_PER_SECOND  # of the rate a second: an answer comes every 1 / rate seconds

    def _refuse(self, at: float, now: float, wait: float) -> None:
        """Take note of a 429 that asks for a wait, in seconds. Those sent before the last cut are part of its burst."""
        self._paused_until = max(self._paused_until, now + wait)
        self._share += (1 - self._share) / SMOOTHING_REQUESTS
        if at <= self._last_cut or (not wait and self._accepted and self._share <= TOLERATED_SHARE):
            return
        elapsed = max(now - self._since, SHORTEST_MEASUREMENT_SECONDS)
        measured = self._accepted / elapsed * RATE_AFTER_CUT
        if self.rate is not None:
            measured = min(measured, self.rate)
        self.rate = max(measured, LOWEST_RATE_PER_SECOND)
        self.window, self._doubling = max(1.0, self.window / 2), False
        if not wait:
            self._paused_until = max(self._paused_until, now + self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._since = self._last_cut = now
        self._accepted, self._share = 0, 0.0

    def _admits(self) -> bool:
        return self.in_flight < int(self.window) and _now() >= max(self._paused_until, self._next_at)

    def _admit(self) -> float:
        now = _now()
        self._since = min(self._since, now)
        if self.rate is not None:
            self._next_at = max(self._next_at, now) + 1 / self.rate
        self.in_flight += 1
        return now

    def _give_up(self, turn: asyncio.Future[float]) -> None:
        if turn.done() and not turn.cancelled():  # granted but not used
            self.in_flight -= 1
        turn.cancel()
        self._wake()

    def _wake(self) -> None:
        while self._waiting and (self._waiting[0].done() or self._admits()):
            turn = self._waiting.popleft()
            if not turn.done():  # else it was given up
                turn.set_result(self._admit())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self.in_flight < int(self.window):
            # No request in flight is certain to return and wake us, so a timer has to.
            wait = max(self._paused_until, self._next_at) - _now()
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._wake)


def _now() -> float:
    """The event loop's monotonic clock."""
    return asyncio.get_running_loop().time()


def usable_wait(error: BackendError | None) -> float | None:
    """The wait in seconds that the server asks for, if it is acceptable; else None."""
    wait = None if error is None else error.retry_after
    return wait if wait is not None and 0 <= wait <= LONGEST_ASKED_PAUSE else None


class CircuitBreaker:
    """Counts consecutive final failures of the same kind, of different requests."""

    #: No request to this endpoint and model can succeed.
    AT_ONCE = ("auth", "quota", "not_found")
    #: One may be due to the request itself; many in a row are not.
    IN_A_ROW = ("server", "connection", "timeout", "rate_limited", "malformed", "inconsistent", "internal")

    def __init__(self) -> None:
        self._kind, self._count = "", 0
        self._is_answering = False

    def update(self, error: BackendError | None) -> str | None:
        """Count one finished request; ``error`` is None if it was answered. Returns why to stop, or None."""
        if error is None:
            self._kind, self._count, self._is_answering = "", 0, True
            return None
        if error.unloaded and not self._is_answering:  # on a cluster another actor may have loaded it
            return f"it could not be loaded: {error.message}"
        self._count = self._count + 1 if error.kind == self._kind else 1
        self._kind = error.kind
        allowed = 5 if error.kind in self.AT_ONCE else 20 if error.kind in self.IN_A_ROW else None
        if allowed is None or self._count < allowed:
            return None
        return f"{self._count} requests in a row failed the same way: {error}"

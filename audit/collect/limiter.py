"""How fast a server may be asked, learned from its answers; and when to stop asking it.

A `Limiter` belongs to one endpoint and key, and is shared by all jobs that use them. Few requests are in flight at
first, and one more with each answer. Once the server has refused for its rate, it limits the requests a second: just
below what was accepted, and a little more each second from there. A wait that the server asks for (Retry-After) holds
every request.
"""

from __future__ import annotations

import asyncio
import math

from backends.errors import LONGEST_ASKED_PAUSE, BackendError

FIRST_WINDOW = 4  # requests in flight: few, so that a server that refuses everything receives only a handful
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0
RATE_AFTER_CUT = 0.95  # share of the accepted rate that remains
GROWTH_PER_SECOND = 0.05  # of the rate
SHORTEST_MEASUREMENT_SECONDS = 0.5  # a rate is measured over no less
LOWEST_RATE_PER_SECOND = 0.2


class Halted(Exception):
    """A wait ended because its job sends nothing any more."""


class Limiter:
    """Admits requests to one endpoint: at most ``most`` in flight, and ``start`` at first.

    To be used from a single event loop, whose clock it uses.
    """

    def __init__(self, most: int, start: int = FIRST_WINDOW) -> None:
        self.most, self.window = most, min(start, most)
        self.rate: float | None = None
        self._free, self._entry = asyncio.Semaphore(self.window), asyncio.Lock()
        self._pause = FIRST_PAUSE_SECONDS
        self._closed_until = self._last_cut = -math.inf
        self._since, self._accepted = math.inf, 0  # since the last cut
        self._refusing_since = math.inf  # it has sent nothing but 429

    async def enter(self, halted: asyncio.Future[None]) -> float:
        """Wait for a turn, which `leave` must be given back.

        Raises
        ------
        Halted
            If the future is done before.
        """
        await self._free.acquire()
        try:
            async with self._entry:  # the others wait behind
                while not halted.done() and (wait := self._closed_until - _now()) > 0:
                    await asyncio.wait((halted,), timeout=wait)
                if halted.done():
                    raise Halted
                now = _now()
                if self.rate is not None:
                    self._closed_until = now + 1 / self.rate
        except BaseException:
            self._free.release()
            raise
        self._since = min(self._since, now)
        return now

    def leave(self, at: float, error: BackendError | None = None) -> None:
        """Give a turn back, with the error if the request failed."""
        asked = usable_wait(error)
        is_refused = error is not None and error.kind == "rate_limited"
        self._refusing_since = min(self._refusing_since, _now()) if is_refused else math.inf
        if error is None:
            self._grow(at)
        elif is_refused:
            self._refuse(at, asked or 0.0)
        elif asked is not None:
            self._close(asked)
        self._free.release()

    @property
    def refused_for(self) -> float:
        """Seconds since the server began to send nothing but 429; below 0 if it does not."""
        return _now() - self._refusing_since

    def _grow(self, at: float) -> None:
        self._accepted += 1
        if at > self._last_cut:
            self._pause = FIRST_PAUSE_SECONDS
        if self.window < self.most:
            self.window += 1
            self._free.release()
        if self.rate is not None:
            self.rate += GROWTH_PER_SECOND  # of the rate a second: an answer comes every 1 / rate seconds

    def _refuse(self, at: float, wait: float) -> None:
        """Take note of a 429 that asks for a wait, in seconds. Those sent before the last cut are part of its burst."""
        self._close(wait)
        if at <= self._last_cut:
            return
        now = _now()
        if self._accepted:  # else nothing is known of the rate, and a pause is all that helps
            measured = self._accepted / max(now - self._since, SHORTEST_MEASUREMENT_SECONDS) * RATE_AFTER_CUT
            self.rate = max(min(measured, self.rate or math.inf), LOWEST_RATE_PER_SECOND)
        if not wait:
            self._close(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._since = self._last_cut = now
        self._accepted = 0

    def _close(self, seconds: float) -> None:
        self._closed_until = max(self._closed_until, _now() + seconds)


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

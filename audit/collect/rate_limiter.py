"""Learns from a server's responses how fast it may be asked.

A `Limiter` belongs to one endpoint and key, and is shared by all jobs that use them. It has two limits, since servers
have two kinds:

window  requests in flight. Doubles every round trip at first, and grows additively later; halved by the first burst
        of 429, cut by a tenth by later ones (multiplicative decrease).
rate    requests per second, unknown until the first burst. A server's token bucket is empty after a refusal, so its
        rate is the number of requests accepted between two bursts, divided by the time. A cut sets the rate just below
        that. From there it grows slowly; if the server accepts a quarter more than was measured, it has changed, and
        its rate is searched for again by doubling.

A single 429 costs little, so a few per hundred are tolerated: the rate stays where they begin, and occasional refusals
that do not depend on the rate do not slow it down. If more are refused however slow the requests, their share is
tolerated and the rate is searched for again. A 429 with a wait (Retry-After) delays every request, so it cuts at once,
and the longer the wait, the slower the rate grows afterwards. The server's bucket may or may not fill during the wait,
so the rate is then measured between the waits.

A burst of 429 is one event: requests sent before the last cut do not cut again. A 5xx says nothing about speed; it only
delays growth by a round trip. A Retry-After holds every request, and replaces its backoff.

A `CircuitBreaker` detects when different requests fail the same way for good, and says why to stop.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass

from backends.errors import LONGEST_ASKED_PAUSE, BackendError

FIRST_WINDOW = 4  # requests
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0
BURST_SECONDS = 0.5  # refusals within this time are one burst
REFUSALS_BEFORE_PAUSE = 3  # in a row: the cause is then not our rate, but a temporary condition
SMOOTHING_REQUESTS = 64  # requests over which the share of refusals is smoothed
TOLERATED_SHARE = 0.08  # share of refusals that causes no cut, as long as they demand no wait
#: Share of the best rate: if requests are still refused this far below it, the rate is not the reason.
FUTILE_RATE_SHARE = 1 / 16
TOLERANCE_FACTOR = 1.25  # the share tolerated from then on, as a multiple of the observed one
RATE_AFTER_CUT = 0.98  # share of the measured rate that remains after a cut
CREEP_PER_SECOND = 0.05  # growth of the rate per second, less while some are refused
CREEP_SLOWDOWN_PER_SECOND = 20.0  # seconds of slower creeping for each second that a refusal makes all requests wait
SEARCH_PER_SECOND = 2.8  # growth per second while the server's rate is unknown: doubles four times a second
CHANGED_RATE_FACTOR = 1.25  # multiple of the measured rate: if nothing is refused there, the server has changed
AGREEING_RATE_SHARE = 0.7  # a measured rate is trusted if it is at least this share of the refused one
CATCH_UP_SECONDS = 0.25  # requests worth this time may be sent at once after an idle phase of ours
SHORTEST_MEASUREMENT_SECONDS = 0.05  # a rate is measured over no less
LOWEST_RATE_PER_SECOND = 1.0  # the rate is never set lower
MIN_MEASURED_ANSWERS = 10  # a rate measured from fewer answers is not trusted
MAX_ANSWER_TIMES = 512  # answers whose times are kept


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to send one request: when it was given, and which limits it exhausted."""

    at: float
    window_full: bool
    paced: bool


class Limiter:
    """Admits requests to one endpoint. To be used from a single event loop, whose clock it uses.

    Parameters
    ----------
    most : int
        Maximum number of requests in flight.
    start : int
        Requests in flight at first: few, so that a server that refuses everything receives only a handful.
    """

    def __init__(self, most: int, start: int = FIRST_WINDOW) -> None:
        self.most = most
        self.window = float(min(start, most))
        self.rate: float | None = None
        self.in_flight = 0
        self._doubling = True  # the window, until the first cut
        self._searching = False  # the rate, after it
        self._measured = math.inf  # the rate after the last cut
        self._well_measured = False  # whether that measurement can be trusted
        self._cost = 0.0  # seconds that all requests had to wait after the last cut's refusal
        self._share = 0.0  # share of refusals among the latest requests
        self._tolerated = TOLERATED_SHARE
        self._refused = 0  # since the last cut
        self._best = 0.0  # the highest rate ever measured
        self._saved_up = 0  # the size of the server's bucket: the requests accepted before its first refusal
        self._credit = 0.0  # requests that the rate allows now
        self._credited = 0.0
        self._hold = 0  # answers still to come before anything grows
        self._refusals = 0  # in a row, without an answer in between
        self._pause = FIRST_PAUSE_SECONDS
        self._paused_until = -math.inf
        self._paused_seconds = 0.0  # since the last cut
        self._first = math.inf
        self._last_cut = self._last_pause = -math.inf
        self._accepted = 0  # since the last cut
        self._answers: deque[float] = deque(maxlen=MAX_ANSWER_TIMES)  # times of the latest answers
        self._waiting: deque[asyncio.Future[Ticket]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    # -- asking ----------------------------------------------------------------------------

    async def enter(self, again: bool = False) -> Ticket:
        """Wait for a turn; retries (``again``) go first. Each ticket must be returned by `leave`."""
        if not self._waiting and (ticket := self._admit()):
            return ticket
        turn: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if again else self._waiting.append)(turn)
        self._wake()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # granted but not used
                self.in_flight -= 1
            self._wake()  # which also drops a cancelled turn
            raise

    def leave(self, ticket: Ticket, error: BackendError | None = None) -> None:
        """Return a ticket, with the error if the request failed."""
        now = _now()
        self.in_flight -= 1
        asked = usable_wait(error)
        paused = max(self._paused_until, now)
        if error is None:
            self._grow(ticket, now)
        elif error.kind == "rate_limited":
            self._refuse(ticket, now, asked or 0.0)
            if asked:  # a wait of 0 means nothing: many servers round down
                self._paused_until = now + asked
        else:
            if error.kind in ("server", "timeout", "connection"):
                self._hold = int(self.window)
            if asked is not None:
                self._paused_until = max(self._paused_until, now + asked)
        self._paused_seconds += max(0.0, self._paused_until - paused)
        self._wake()

    # -- learning --------------------------------------------------------------------------

    def _grow(self, ticket: Ticket, now: float) -> None:
        self._accepted += 1
        self._answers.append(now)
        self._share -= self._share / SMOOTHING_REQUESTS
        if ticket.at > max(self._last_cut, self._last_pause):
            self._refusals, self._pause = 0, FIRST_PAUSE_SECONDS
        if self._hold:
            self._hold -= 1
            return
        if ticket.window_full:
            self.window = min(self.most, self.window + (1.0 if self._doubling else 1.0 / math.sqrt(self.window)))
        if ticket.paced and self.rate is not None:
            self.rate *= 1 + self._growth() / self.rate  # an answer comes every 1 / rate seconds
            if self.rate > CHANGED_RATE_FACTOR * self._measured:
                self._searching = True

    def _growth(self) -> float:
        """Relative growth of the rate per second."""
        if self._searching:
            return SEARCH_PER_SECOND if self._share <= self._tolerated else 0.0
        calm = max(0.0, 1.0 - self._share / self._tolerated)
        return CREEP_PER_SECOND * calm / (1 + (CREEP_SLOWDOWN_PER_SECOND * self._cost if self._well_measured else 0.0))

    def _refuse(self, ticket: Ticket, now: float, cost: float) -> None:
        """Handle a 429 that makes all requests wait for ``cost`` seconds."""
        if ticket.at <= max(self._last_cut, self._last_pause):
            return  # part of a burst that has been handled
        self._share += (1 - self._share) / SMOOTHING_REQUESTS
        self._refused += 1
        self._refusals += 1
        streak = self._refusals == REFUSALS_BEFORE_PAUSE and self._tolerated == TOLERATED_SHARE
        too_many = cost > 0 or self._share > self._tolerated or streak
        if too_many and self._accepted and now - self._last_cut >= BURST_SECONDS:
            self._cut(now, cost)
        if self._refusals >= REFUSALS_BEFORE_PAUSE:  # whatever the rate: wait, and longer each time
            self._paused_until = max(self._paused_until, now + self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            self._last_pause = now
            self.window = max(1.0, self.window / 2)

    def _cut(self, now: float, cost: float) -> None:
        self._cost = cost
        if self.rate is None:
            self._saved_up = self._accepted
            self.rate = self._accepted / max(1.0, now - self._first)
            self._searching, self._share = True, 0.0
        else:
            taken = self._taken(now)
            self._best = max(self._best, taken)
            self.rate = min(self.rate, taken) * RATE_AFTER_CUT
            share = self._refused / (self._accepted + self._refused)
            self._searching = cost == 0 and self.rate < FUTILE_RATE_SHARE * self._best and TOLERATED_SHARE < share < 0.5
            if self._searching:
                self._tolerated = TOLERANCE_FACTOR * share
            self._share = min(self._share, self._tolerated / 2)
        self.rate = self._measured = max(self.rate, LOWEST_RATE_PER_SECOND)
        self.window = max(1.0, (self.in_flight + 1) / 2 if self._doubling else 0.9 * self.window)
        self._doubling = False
        self._credit, self._credited = 0.0, now
        self._last_cut = now
        self._accepted = self._refused = 0
        self._paused_seconds = 0.0

    def _taken(self, now: float) -> float:
        """Requests per second that the server accepted since the last cut."""
        assert self.rate is not None
        since = now - self._last_cut
        rate = self._accepted / since  # a lower bound: its bucket may have been full while we paused
        for place, at in enumerate(self._answers):
            if at > self._last_cut and now - at >= SHORTEST_MEASUREMENT_SECONDS:
                rate = max(rate, (len(self._answers) - place - self._saved_up) / (now - at))
        busy = self._accepted >= MIN_MEASURED_ANSWERS and self._paused_seconds < 0.1 * since
        self._well_measured = busy or rate > AGREEING_RATE_SHARE * self.rate
        return (
            rate
            if self._well_measured
            else max(rate, self._accepted / max(since - self._paused_seconds, SHORTEST_MEASUREMENT_SECONDS))
        )

    # -- admitting -------------------------------------------------------------------------

    def _admit(self) -> Ticket | None:
        now = _now()
        if self.in_flight >= int(self.window) or now < self._paused_until:
            return None
        if self.rate is not None:
            unpaused = max(0.0, now - max(self._credited, self._paused_until))
            most = max(1.0, min(self.rate * CATCH_UP_SECONDS, self._saved_up / 2))
            self._credit = min(self._credit + unpaused * self.rate, most)
            self._credited = now
            if self._credit < 1.0 - 1e-9:
                return None
            self._credit -= 1.0
        self._first = min(self._first, now)
        self.in_flight += 1
        return Ticket(now, self.in_flight >= int(self.window), self._credit < 1.0)

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting[0]
            if turn.done():  # cancelled
                self._waiting.popleft()
                continue
            ticket = self._admit()
            if ticket is None:
                break
            self._waiting.popleft()
            turn.set_result(ticket)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self.in_flight < int(self.window):
            # No request in flight is certain to return and wake us, so a timer has to.
            wait = max(0.0, self._paused_until - _now())
            if self.rate is not None:
                wait += max(0.0, 1.0 - self._credit) / self.rate
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._wake()


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

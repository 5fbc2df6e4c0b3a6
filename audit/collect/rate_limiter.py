"""How fast one server may be asked, learned from its answers.

A `Limiter` belongs to one endpoint and key; everything that asks there shares it. It holds two
limits, since servers have two kinds:

window  requests in flight. Doubles a round trip at first (additive increase later), halved by the
        first burst of 429, cut by a tenth by a later one (multiplicative decrease).
rate    requests per second, unknown until the first burst. A server's token bucket is empty after a
        refusal, so the requests accepted between two bursts, divided by the time, are its rate. A cut
        sets the rate just below that. From there it grows slowly; a server that takes a quarter
        more than was measured has changed, and its rate is searched again by doubling.

A 429 alone costs little, so a few in a hundred are tolerated: the rate stays where they begin, and
single refusals that do not depend on the pace do not slow it down. Where more are refused, however
slowly it is asked, their share is tolerated and the rate searched again. A 429 with a wait (Retry-After)
costs every request that wait, so it cuts at once, and the longer the wait, the slower the rate then grows.
The server's bucket may or may not fill during the wait: the rate is then measured between the waits.

A burst of 429 is one event: those that were sent before the last cut do not cut again. A 5xx says
nothing about speed; it only delays growth by a round trip. A Retry-After holds
every request, and replaces their own back-off.

A `CircuitBreaker` sees when different requests fail alike and for good, and says why to stop.
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
REFUSALS_BEFORE_PAUSE = 3  # in a row: the cause is then not our pace, but the moment
SMOOTHING_REQUESTS = 64  # requests over which the share of refusals is smoothed
TOLERATED_SHARE = 0.08  # share of refusals that cuts nothing, while they cost no wait
#: Of the best rate: if some are still refused this far below it, the pace is not the reason.
FUTILE_RATE_SHARE = 1 / 16
TOLERANCE_FACTOR = 1.25  # times their share that is tolerated then
RATE_AFTER_CUT = 0.98  # what a cut leaves of the measured rate
CREEP_PER_SECOND = 0.05  # growth of the rate per second, less while some are refused
CREEP_SLOWDOWN_PER_SECOND = 20.0  # seconds of slower creeping for each second that a refusal makes all requests wait
SEARCH_PER_SECOND = 2.8  # growth per second while the server's rate is unknown: doubles four times a second
CHANGED_RATE_FACTOR = 1.25  # times the measured rate: without a refusal there, the server has changed
AGREEING_RATE_SHARE = 0.7  # a measured rate this near to the one that was refused is believed
CATCH_UP_SECONDS = 0.25  # of the rate may be caught up at once after a standstill of ours
SHORTEST_MEASUREMENT_SECONDS = 0.05  # seconds over which a rate is measured
LOWEST_RATE_PER_SECOND = 1.0  # requests per second that are always tried
MIN_MEASURED_ANSWERS = 10  # answers that make a measured rate
MAX_ANSWER_TIMES = 512  # answers whose time is kept


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to send one request: when it was given, and which limit the next one had to wait for."""

    at: float
    window_full: bool
    paced: bool


class Limiter:
    """Admits requests to one endpoint. Use from one event loop, whose clock it goes by.

    Parameters
    ----------
    most : int
        Never more than this many in flight.
    start : int
        How many in flight at first. Few, so that a server that refuses every request has refused
        only a handful when it is found out.
    """

    def __init__(self, most: int, start: int = FIRST_WINDOW) -> None:
        self.most = most
        self.window = float(min(start, most))
        self.rate: float | None = None
        self.in_flight = 0
        self._doubling = True  # the window, until the first cut
        self._searching = False  # the rate, after it
        self._measured = math.inf  # what the last cut set the rate to
        self._well_measured = False  # whether that measurement can be believed
        self._cost = 0.0  # seconds that the last cut's refusal made all requests wait
        self._share = 0.0  # share of refusals among the latest requests
        self._tolerated = TOLERATED_SHARE
        self._refused = 0  # since the last cut
        self._best = 0.0  # the highest rate that was ever measured
        self._saved_up = 0  # the most that the server takes at once: what it took before its first refusal
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
        """Wait for one's turn; what is asked ``again`` comes first. Each ticket must go back through `leave`."""
        if not self._waiting and (ticket := self._admit()):
            return ticket
        turn: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if again else self._waiting.append)(turn)
        self._wake()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given and is not used
                self.in_flight -= 1
            self._wake()  # which also drops a cancelled turn
            raise

    def leave(self, ticket: Ticket, error: BackendError | None = None) -> None:
        """Say how it went: None for an answer, else what went wrong."""
        now = _now()
        self.in_flight -= 1
        asked = usable_wait(error)
        paused = max(self._paused_until, now)
        if error is None:
            self._grow(ticket, now)
        elif error.kind == "rate_limited":
            self._refuse(ticket, now, asked or 0.0)
            if asked:  # a wait of 0 is not advice: many servers cut a fraction off
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
        """Of the rate, in a second."""
        if self._searching:
            return SEARCH_PER_SECOND if self._share <= self._tolerated else 0.0
        calm = max(0.0, 1.0 - self._share / self._tolerated)
        return CREEP_PER_SECOND * calm / (1 + (CREEP_SLOWDOWN_PER_SECOND * self._cost if self._well_measured else 0.0))

    def _refuse(self, ticket: Ticket, now: float, cost: float) -> None:
        """Take in a 429 that makes all requests wait for ``cost`` seconds."""
        if ticket.at <= max(self._last_cut, self._last_pause):
            return  # it belongs to a burst that was already seen
        self._share += (1 - self._share) / SMOOTHING_REQUESTS
        self._refused += 1
        self._refusals += 1
        streak = self._refusals == REFUSALS_BEFORE_PAUSE and self._tolerated == TOLERATED_SHARE
        too_many = cost > 0 or self._share > self._tolerated or streak
        if too_many and self._accepted and now - self._last_cut >= BURST_SECONDS:
            self._cut(now, cost)
        if self._refusals >= REFUSALS_BEFORE_PAUSE:  # whatever the pace: wait, and longer each time
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
        """Requests per second that the server took since the last cut."""
        assert self.rate is not None
        since = now - self._last_cut
        rate = self._accepted / since  # at least: it may have had nothing left to save up in while we paused
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
            # Nothing in flight need come back to wake us: only time does.
            wait = max(0.0, self._paused_until - _now())
            if self.rate is not None:
                wait += max(0.0, 1.0 - self._credit) / self.rate
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._wake()


def _now() -> float:
    """The running loop's clock, which is monotonic."""
    return asyncio.get_running_loop().time()


def usable_wait(error: BackendError | None) -> float | None:
    """Seconds the server asks to wait, if it is a number that one can wait for; else None."""
    wait = None if error is None else error.retry_after
    return wait if wait is not None and 0 <= wait <= LONGEST_ASKED_PAUSE else None


class CircuitBreaker:
    """Counts failures for good, of different requests, alike, with no answer in between."""

    #: Nothing that is asked of this endpoint and model can work.
    AT_ONCE = ("auth", "quota", "not_found")
    #: May be the single request's fault; many in a row are not.
    IN_A_ROW = ("server", "connection", "timeout", "rate_limited", "malformed", "inconsistent", "internal")

    def __init__(self) -> None:
        self._kind, self._count = "", 0

    def update(self, error: BackendError | None) -> str | None:
        """Count one request's end, None for an answer. Returns why to stop, or None."""
        if error is None:
            self._kind, self._count = "", 0
            return None
        self._count = self._count + 1 if error.kind == self._kind else 1
        self._kind = error.kind
        allowed = 5 if error.kind in self.AT_ONCE else 20 if error.kind in self.IN_A_ROW else None
        if allowed is None or self._count < allowed:
            return None
        return f"{self._count} requests in a row failed alike: {error}"

"""Retries of transient failures where no scheduler makes them, and how long a server asks to wait."""

from __future__ import annotations

import email.utils
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import ParamSpec, TypeVar

import tenacity

from backends.errors import LONGEST_ASKED_PAUSE, BackendError

P = ParamSpec("P")
T = TypeVar("T")

_TRANSIENT = ("rate_limited", "timeout", "connection", "server", "malformed")
_ATTEMPTS = 4
#: A busy server refuses some requests of each question: those say nothing against it, and are limited on their own.
_REFUSED_ATTEMPTS, _REFUSED_SECONDS = 40, 60.0
_LONGEST_PAUSE = 10.0
_LOGGED_FROM_SECONDS = 5.0
_DOWN = re.compile(r"HTTP 50[234]\b")

log = logging.getLogger(__name__)


async def with_retries(ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
    """Await ``ask(*args, **options)``; on a transient failure retry, up to four attempts in all.

    Those that a rate limit refuses are not counted among the four: they go on for a minute of pauses, but
    forty times at most, and four at least.
    The pause is what the server asks for, or short. Raises the last `BackendError`.
    """
    paused, refused = 0.0, 0

    def is_given_up(state: tenacity.RetryCallState) -> bool:
        nonlocal paused, refused
        error = state.outcome.exception() if state.outcome else None
        if not isinstance(error, BackendError) or error.kind != "rate_limited":
            return state.attempt_number - refused >= _ATTEMPTS
        refused += 1
        paused += state.upcoming_sleep
        return refused >= _REFUSED_ATTEMPTS or (refused >= _ATTEMPTS and paused > _REFUSED_SECONDS)

    async for attempt in tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(_is_transient),
        stop=is_given_up,
        wait=_pause,
        before_sleep=_log_long_pause,
        reraise=True,
    ):
        with attempt:
            return await ask(*args, **options)
    raise AssertionError("tenacity either returns or raises")


def is_down(error: BackendError) -> bool:
    """Whether a proxy reports its server as down or restarting. A plain 500 concerns a single request."""
    return error.kind == "server" and _DOWN.match(error.message) is not None


def seconds_to_wait(headers: Mapping[str, str], *, now: Callable[[], float] = time.time) -> float | None:
    """Seconds that a response asks to wait; None if it names no usable time.

    Read in this order: ``retry-after-ms`` and ``x-ms-retry-after-ms`` (milliseconds), then
    ``Retry-After`` as seconds or as an HTTP date (RFC 9110, section 10.2.3). A date in the past
    is 0. Values that are negative, not finite or not a number are ignored.
    """
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        milliseconds = _duration(headers.get(name))
        if milliseconds is not None:
            return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _duration(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _log_long_pause(state: tenacity.RetryCallState) -> None:
    """Log a long pause: nothing else shows that the audit is not hanging."""
    if state.outcome and state.next_action and state.next_action.sleep >= _LOGGED_FROM_SECONDS:
        log.warning("%s: retrying in %.0f s", state.outcome.exception(), state.next_action.sleep)


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, BackendError) or not error.retryable or error.kind not in _TRANSIENT:
        return False
    return error.retry_after is None or error.retry_after <= LONGEST_ASKED_PAUSE


def _pause(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    requested = error.retry_after if isinstance(error, BackendError) else None
    return requested if requested is not None else min(0.2 * 2.0**state.attempt_number, _LONGEST_PAUSE)


def _duration(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None

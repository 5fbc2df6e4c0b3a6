"""Retries where no scheduler makes them, how long a server asks to wait, and requests side by side."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

import tenacity

from backends.errors import LONGEST_ASKED_PAUSE, BackendError

P = ParamSpec("P")
T = TypeVar("T")

_TRANSIENT = ("rate_limited", "timeout", "connection", "server", "malformed")
#: A busy server refuses some requests of each question: those say nothing against it.
_ATTEMPTS, _RATE_LIMITED_ATTEMPTS = 4, 12
_BACKOFF = tenacity.wait_exponential(0.4, max=10.0)

log = logging.getLogger(__name__)


async def with_retries(ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
    """Await ``ask(*args, **options)``; on a transient failure retry, up to four attempts, or twelve if it is busy.

    The pause is what the server asks for, or short. Raises the last `BackendError`.
    """
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(_is_transient),
        stop=_is_given_up,
        wait=_pause,
        before_sleep=tenacity.before_sleep_log(log, logging.INFO),
        reraise=True,
    )

    async def asked() -> T:
        return await ask(*args, **options)

    return await retrying(asked)


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, BackendError) or not error.retryable or error.kind not in _TRANSIENT:
        return False
    return error.retry_after is None or error.retry_after <= LONGEST_ASKED_PAUSE


def _is_given_up(state: tenacity.RetryCallState) -> bool:
    busy = getattr(_error_of(state), "kind", "") == "rate_limited"
    return state.attempt_number >= (_RATE_LIMITED_ATTEMPTS if busy else _ATTEMPTS)


def _pause(state: tenacity.RetryCallState) -> float:
    requested: float | None = getattr(_error_of(state), "retry_after", None)
    return requested if requested is not None else _BACKOFF(state)


def _error_of(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def seconds_to_wait(headers: Mapping[str, str], *, now: Callable[[], float] = time.time) -> float | None:
    """Seconds that a response asks to wait by ``Retry-After``, as a number or an HTTP date (RFC 9110, 10.2.3).

    A date in the past is 0. None without it, and where it is negative, not finite, or neither.
    """
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now())
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


async def together(requests: Iterable[Awaitable[T]]) -> list[T]:
    """All answers, in order. Raises the first failure once all have ended: what was paid for is kept by its caller."""
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers  # type: ignore[return-value]

"""Retries where no scheduler makes them, and requests side by side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
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
    return await retrying(ask, *args, **options)


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, BackendError) or not error.retryable or error.kind not in _TRANSIENT:
        return False
    return (error.retry_after or 0.0) <= LONGEST_ASKED_PAUSE


def _is_given_up(state: tenacity.RetryCallState) -> bool:
    is_busy = _error_of(state).kind == "rate_limited"
    return state.attempt_number >= (_RATE_LIMITED_ATTEMPTS if is_busy else _ATTEMPTS)


def _pause(state: tenacity.RetryCallState) -> float:
    asked = _error_of(state).retry_after
    return _BACKOFF(state) if asked is None else asked


def _error_of(state: tenacity.RetryCallState) -> BackendError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, BackendError)
    return error


async def together(requests: Iterable[Awaitable[T]]) -> list[T]:
    """All answers, in order. Raises the first failure once all have ended: what was paid for is kept by its caller."""
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers  # type: ignore[return-value]

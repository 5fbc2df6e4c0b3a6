"""Waiting for passing troubles, where no scheduler does: in a probe, and when a record is recalled."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import tenacity

from backends.errors import LONGEST_ASKED_PAUSE, BackendError

P = ParamSpec("P")
T = TypeVar("T")

_TRANSIENT = ("rate_limited", "timeout", "connection", "server", "malformed")
_ATTEMPTS = 4
_TOLD_FROM = 5.0
_DOWN = re.compile(r"HTTP 50[234]\b")

log = logging.getLogger(__name__)


async def patiently(ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
    """The answer to a question, asked again a few times after the pause that the server wants, or a short one.

    Raises `BackendError` when the trouble does not pass.
    """
    async for attempt in tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(_passes),
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=_pause,
        before_sleep=_tell,
        reraise=True,
    ):
        with attempt:
            return await ask(*args, **options)
    raise AssertionError("tenacity either returns or raises")


def is_down(error: BackendError) -> bool:
    """Whether it is what a proxy says of a server that is down or restarts. A plain 500 answers one odd question."""
    return error.kind == "server" and _DOWN.match(error.message) is not None


def _tell(state: tenacity.RetryCallState) -> None:
    """A long pause is told: nothing else shows that the audit is not hanging."""
    if state.outcome is not None and state.next_action is not None and state.next_action.sleep >= _TOLD_FROM:
        log.warning("%s: asked again in %.0f s", state.outcome.exception(), state.next_action.sleep)


def _passes(error: BaseException) -> bool:
    if not isinstance(error, BackendError) or not error.retryable or error.kind not in _TRANSIENT:
        return False
    return error.retry_after is None or error.retry_after <= LONGEST_ASKED_PAUSE


def _pause(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, BackendError) else None
    return asked if asked is not None else 0.2 * 2.0**state.attempt_number

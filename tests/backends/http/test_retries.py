"""Transient failures are retried, after the pause that a server asks for."""

from __future__ import annotations

import pytest

from backends.errors import LONGEST_ASKED_PAUSE, BackendError, ErrorKind
from backends.http.client import with_retries
from backends.http.errors import seconds_to_wait


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "1e9"}, 1e9),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_a_number_of_seconds_to_wait_is_read_and_all_else_ignored(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert seconds_to_wait(headers, "") == seconds


async def failing(kind: ErrorKind, retry_after: float | None) -> int:
    """How often a question is asked that always fails like this."""
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise BackendError(kind, "not now", retryable=True, retry_after=retry_after)

    with pytest.raises(BackendError, match="not now"):
        await with_retries(ask)
    return asked


async def test_the_requested_pause_is_made_unless_too_long(waits: list[float]) -> None:
    assert await failing("rate_limited", 60) == 12
    assert waits == [60] * 11
    assert await failing("server", LONGEST_ASKED_PAUSE + 1) == 1


@pytest.mark.parametrize(("kind", "asked"), [("malformed", 4), ("connection", 4), ("inconsistent", 1)])
async def test_only_transient_failures_are_retried(kind: ErrorKind, asked: int, waits: list[float]) -> None:
    assert await failing(kind, None) == asked
    assert all(wait < 2 for wait in waits)

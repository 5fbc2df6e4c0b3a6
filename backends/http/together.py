"""Requests that need not wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(requests: Iterable[Awaitable[T]]) -> list[T]:
    """All answers, in order. Raises the first failure once all have ended: what was paid for is kept by its caller."""
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers  # type: ignore[return-value]

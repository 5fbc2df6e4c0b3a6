"""A backend whose work blocks: it runs in its own worker thread, never on the event loop."""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from backends.base import Answer, Backend, Description, OnResponse, Request

R = TypeVar("R")


class _AbandonedError(Exception):
    """The caller no longer waits for the rest of a batch."""


def discard_response(place: int, answer: Answer) -> None:
    """An `OnResponse` that does nothing."""


class LocalBackend(Backend):
    """A backend that computes in this process, in one worker thread."""

    def __init__(self) -> None:
        self._worker: ThreadPoolExecutor | None = None

    @abstractmethod
    def describe_blocking(self) -> Description:
        """`describe`, in the worker thread."""

    @abstractmethod
    def run_blocking(self, batch: Sequence[Request], on_response: OnResponse = discard_response) -> list[Answer]:
        """`run`, in the worker thread, where it also calls ``on_response`` for each answer known early."""

    def close_blocking(self) -> None:
        """`close`, in the worker thread."""
        return

    async def describe(self) -> Description:
        return await self._in_worker(self.describe_blocking)

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        return await self._in_worker(lambda: self.run_blocking(batch))

    async def run_streaming(self, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """As in `backends.base.SupportsStreaming`."""
        loop, abandoned = asyncio.get_running_loop(), threading.Event()

        def on_loop(place: int, answer: Answer) -> None:
            if abandoned.is_set():
                raise _AbandonedError
            loop.call_soon_threadsafe(on_response, place, answer)

        try:
            return await self._in_worker(lambda: self.run_blocking(batch, on_loop))
        except asyncio.CancelledError:
            abandoned.set()  # a thread cannot be stopped from outside; this one ends at its next answer
            raise

    async def close(self) -> None:
        if self._worker is not None:
            await self._in_worker(self.close_blocking)
            self._worker.shutdown(wait=True)
            self._worker = None

    async def _in_worker(self, work: Callable[[], R]) -> R:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix=type(self).__name__)
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

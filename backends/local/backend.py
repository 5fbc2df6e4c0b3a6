"""What backends in this process share: a worker thread, so that nothing blocks the event loop, and option checks."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypeVar

from pydantic import Field

from backends.base import Answer, Backend, Description, OnResponse, Request
from backends.errors import ConfigError, MissingExtra, StoppedError
from backends.options import OnError

R = TypeVar("R")

_POSITIVE = OnError("not a whole number of at least 1", "Leave it out, or give one")
#: A whole number of at least 1, or None for the default.
OptionalCount = Annotated[Annotated[int, Field(ge=1)] | None, _POSITIVE]


def discard_response(place: int, answer: Answer) -> None:
    """An `OnResponse` that does nothing."""


class LocalBackend(Backend):
    """A backend that computes in this process, in one worker thread."""

    def __init__(self) -> None:
        self._worker: ThreadPoolExecutor | None = None
        self._stops: set[threading.Event] = set()  # one for each call of `run` that has not returned
        # That of the call in the worker thread; none beside calls, since a backend travels to the actors of a cluster.
        self._stop: threading.Event | None = None

    @abstractmethod
    def describe_blocking(self) -> Description:
        """`describe`, in the worker thread."""

    @abstractmethod
    def run_blocking(self, batch: Sequence[Request], on_response: OnResponse = discard_response) -> list[Answer]:
        """`run`, in the worker thread, where it also calls ``on_response`` for each answer known early.

        Where `is_stopped`, it begins nothing more and answers the rest with `StoppedError`.
        """

    def close_blocking(self) -> None:
        """`close`, in the worker thread."""
        return

    async def describe(self) -> Description:
        return await self._in_worker(self.describe_blocking)

    def is_stopped(self) -> bool:
        """Whether the call in the worker thread is to end. Asked there, between two steps."""
        return self._stop is not None and self._stop.is_set()

    def stop_computing(self) -> None:
        """As in `backends.base.SupportsStopping`."""
        for stop in self._stops:
            stop.set()

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        return await self._call(batch, lambda: self.run_blocking(batch))

    async def run_streaming(self, batch: Sequence[Request], on_response: OnResponse) -> list[Answer]:
        """As in `backends.base.SupportsStreaming`."""
        loop, abandoned = asyncio.get_running_loop(), threading.Event()

        def on_loop(place: int, answer: Answer) -> None:
            if not abandoned.is_set():
                loop.call_soon_threadsafe(on_response, place, answer)

        try:
            return await self._call(batch, lambda: self.run_blocking(batch, on_loop))
        except asyncio.CancelledError:
            abandoned.set()  # nobody waits for answers; the thread ends after the pass at hand
            raise

    async def _call(self, batch: Sequence[Request], compute: Callable[[], list[Answer]]) -> list[Answer]:
        """What ``compute`` gives in the worker thread, where other calls may come first."""
        stop = threading.Event()

        def work() -> list[Answer]:
            if stop.is_set():  # while it waited
                return [StoppedError() for _ in batch]
            self._stop = stop
            try:
                return compute()
            finally:
                self._stop = None

        self._stops.add(stop)
        try:
            return await self._in_worker(work)
        except asyncio.CancelledError:
            stop.set()
            raise
        finally:
            self._stops.discard(stop)

    async def close(self) -> None:
        if self._worker is not None:
            await self._in_worker(self.close_blocking)
            self._worker.shutdown(wait=True)
            self._worker = None

    async def _in_worker(self, work: Callable[[], R]) -> R:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix=type(self).__name__)
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)


def need_package(field: str, module: str, extra: str, package: str = "", *, given: object = None) -> None:
    """Raise `MissingExtra` if a package's module is not installed. Does not import it. ``given``: as it has it."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(field, package or module, extra, given=given)


def check_named(field: str, name: str, hint: str) -> None:
    """Raise `ConfigError` for an empty name, which as a path would be the current folder."""
    if not name.strip():
        raise ConfigError(field, name, "empty", hint)


def available_threads() -> int:
    """The cores this process may run on, or fewer if ``OMP_NUM_THREADS`` says so, as numerical libraries have it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # one number for each level of nesting
    return min(cores, int(asked)) if asked.isdecimal() and int(asked) else cores

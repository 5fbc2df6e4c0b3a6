"""Several servers of one model: requests go to the least loaded, each within a limit of its own.

One that fails is skipped for a while, and proven anew before it is asked again: it may be another model by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from backends.errors import LONGEST_ASKED_PAUSE, BackendError
from backends.http.client import HttpClient
from backends.http.errors import UnsentError
from backends.http.retries import is_down
from backends.openai.response_ids import ModelChangedError

#: Seconds for which a failed server is skipped; doubled each time it fails again.
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
#: Names of the limit on tokens, and how a server refuses one.
_LIMITS, _REFUSALS = ("max_tokens", "max_completion_tokens"), ("bad_request", "unsupported")
#: Requests in flight that a server may have at least, however often it refuses for its rate.
_LEAST_WINDOW = 1.0

log = logging.getLogger(__name__)

#: The server that this task's requests go to, and those of tasks that it starts; others go on meanwhile.
_ONLY: ContextVar[Replica | None] = ContextVar("_ONLY", default=None)


class Replica:
    """One server, its limiter, and until when it is skipped.

    Attributes
    ----------
    in_flight : int
        Requests under way.
    window : float
        How many it takes at a time: halved when it refuses for its rate, and grown by its answers.
    unproven : bool
        Whether it failed since it was last shown to serve the same model: it may have come back with another.
    dismissed : bool
        Whether it came back with another model: it is not asked again.
    unverified : int
        Its answers since it was last verified.
    limit : str or None
        Its name of the limit on tokens, if it is not the first server's.
    """

    def __init__(self, client: HttpClient, most: int) -> None:
        self.client = client
        self.in_flight = self.unverified = 0
        self.window = self._most = float(most)
        self.unproven = self.dismissed = False
        self.paused_until, self._pause = 0.0, _FIRST_PAUSE
        self.proving = asyncio.Lock()
        self.limit: str | None = None

    def written(self, payload: dict[str, Any]) -> dict[str, Any]:
        """A payload as this server takes it."""
        if self.limit is None:
            return payload
        return {self.limit if name in _LIMITS else name: value for name, value in payload.items()}

    def renames(self, payload: dict[str, Any], refusal: BackendError) -> bool:
        """Whether a refusal is about the limit's name, so that the other one is sent from now on."""
        sent = next((name for name in _LIMITS if name in payload), None)
        if self.limit or sent is None or refusal.kind not in _REFUSALS:
            return False
        if not re.search(rf"\b{sent}\b", refusal.message):
            return False
        self.limit = next(name for name in _LIMITS if name != sent)
        return True

    def pause(self) -> None:
        """Skip it for a while, and until it is proven anew."""
        self.unproven = True
        self._skip(self._pause)

    def slow_down(self, wait: float | None) -> None:
        """It refused for its rate: skip it for as long as it asks, and send it fewer requests at a time."""
        if self.paused_until <= time.monotonic():
            self.window = max(self.window / 2, _LEAST_WINDOW)
        self._skip(wait if wait is not None and wait <= LONGEST_ASKED_PAUSE else self._pause)

    def _skip(self, seconds: float) -> None:
        now = time.monotonic()
        if self.paused_until <= now:  # of requests that fail together, the first counts
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self.paused_until = max(self.paused_until, now + seconds)

    def resume(self) -> None:
        """It answers again."""
        self.paused_until, self._pause = 0.0, _FIRST_PAUSE
        self.window = min(self.window + 1 / self.window, self._most)

    @property
    def load(self) -> float:
        """Its requests under way, as a share of what it takes."""
        return (self.in_flight + 1) / self.window

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Errors say which server they are of."""
        try:
            yield
        except BackendError as error:
            url = self.client.base_url
            if url not in error.message:
                error.message = f"{error.message} at {url}"
                error.args = BackendError(error.kind, error.message, hint=error.hint).args
            raise


class ReplicaClient(HttpClient):
    """`HttpClient.post` over several servers. A request that one of them cannot answer goes to another at once.

    Attributes
    ----------
    prove : callable
        Asked before a server that failed is used again, with requests pinned to it. Raises `BackendError`
        ``inconsistent`` if it serves another model now.
    """

    def __init__(self, clients: Sequence[HttpClient], most: int) -> None:
        self.replicas = [Replica(client, most) for client in clients]
        self.prove: Callable[[], Awaitable[None]] = _nothing

    @property
    def base_url(self) -> str:  # type: ignore[override]
        """The URL of the first server, or of the one that requests are pinned to."""
        return (_ONLY.get() or self.replicas[0]).client.base_url

    @property
    def requests(self) -> int:  # type: ignore[override]
        """Total over all servers."""
        return sum(replica.client.requests for replica in self.replicas)

    @contextlib.contextmanager
    def pinned(self, replica: Replica) -> Iterator[None]:
        """Send this task's requests to this server alone, as a proof needs."""
        token = _ONLY.set(replica)
        try:
            yield
        finally:
            _ONLY.reset(token)

    async def post(
        self,
        path: str,
        payload: dict[str, Any],
        *,
        accept: Callable[[dict[str, Any]], None] = lambda _: None,
        again: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        if (only := _ONLY.get()) is not None:
            return await self._sent(only, path, payload, accept)
        tried: list[Replica] = []
        refusals: list[BackendError] = []
        while len(tried) < len(self.replicas):
            replica = self._next(tried)
            tried.append(replica)
            try:
                return await self._asked(replica, path, payload, accept)
            except BackendError as error:
                if not _another_may_answer(error):
                    raise
                refusals.append(error)
                if _may_be_charged(error) and len(tried) < len(self.replicas):
                    again()
        # A refusal for the rate tells the run to wait; it waits for the server that is free first.
        slow = [error for error in refusals if error.kind == "rate_limited"]
        raised = min(slow, key=lambda one: one.retry_after or 0.0) if slow else refusals[-1]
        if _may_be_charged(refusals[-1]) and raised is not refusals[-1]:
            again()
        raise raised

    async def _asked(
        self, replica: Replica, path: str, payload: dict[str, Any], accept: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        replica.in_flight += 1
        try:
            await self._proven(replica)
            with self.pinned(replica):  # `accept` is to know who answered
                answer = await self._sent(replica, path, payload, accept)
        except BackendError as error:
            if error.kind in ("connection", "timeout") or is_down(error):
                replica.pause()
            elif error.kind == "rate_limited":
                replica.slow_down(error.retry_after)
            raise
        finally:
            replica.in_flight -= 1
        replica.unverified += 1
        replica.resume()
        return answer

    async def _sent(
        self, replica: Replica, path: str, payload: dict[str, Any], accept: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        """A server's answer, the limit on tokens by the name that it knows; the first one's was probed."""
        try:
            return await replica.client.post(path, replica.written(payload), accept=accept)
        except BackendError as refusal:
            if replica is self.replicas[0] or not replica.renames(payload, refusal):
                raise
            try:
                return await replica.client.post(path, replica.written(payload), accept=accept)
            except BackendError as error:
                if error.kind not in _REFUSALS:
                    raise
                replica.limit = None
                raise refusal from None

    async def _proven(self, replica: Replica) -> None:
        """Prove a server anew if it failed. One that serves another model now is left out from then on.

        Raises `BackendError` ``connection`` if it is not proven, or ``inconsistent`` if it has given answers since it
        was last verified: they may be the other model's.
        """
        if not replica.unproven and not replica.dismissed:
            return
        async with replica.proving:
            if replica.dismissed:
                raise UnsentError("connection", f"the server at {replica.client.base_url} is not asked any more")
            if not replica.unproven:
                return
            replica.paused_until = float("inf")  # others need not wait for the proof
            try:
                with self.pinned(replica):
                    await self.prove()
            except BackendError as error:
                if error.kind == "inconsistent":
                    replica.dismissed = True
                    url = replica.client.base_url
                    log.warning("the server at %s is not asked any more: it came back with another model", url)
                    if replica.unverified:
                        raise ModelChangedError(f"{url} came back with another model") from None
                raise UnsentError("connection", error.message, retryable=True) from None
            finally:
                replica.paused_until = 0.0
            replica.unproven = False

    async def get(self, path: str) -> dict[str, Any]:
        return await (_ONLY.get() or self.replicas[0]).client.get(path)

    async def of_each(self, ask: Callable[[], Awaitable[None]], *, at_the_end: bool) -> None:
        """Await ``ask()`` with requests pinned to each server that is in use.

        One that is down is skipped. ``at_the_end`` its failure is raised: what it answered last cannot be verified.
        """
        failures: list[BackendError] = []
        in_use = [one for one in self.replicas if not one.dismissed and (one.unverified or not one.unproven)]
        for replica in in_use:
            try:
                with self.pinned(replica), replica.named():
                    await ask()
            except BackendError as error:
                if error.kind not in ("connection", "timeout") and not is_down(error):
                    raise
                replica.pause()
                failures.append(error)
            else:
                replica.unverified, replica.unproven = 0, False
        if failures and (at_the_end or len(failures) == len(in_use)):
            raise failures[0]

    async def close(self) -> None:
        """Close the connections to all servers."""
        for replica in self.replicas:
            await replica.client.close()

    def _next(self, tried: Sequence[Replica]) -> Replica:
        """The least loaded server that is not skipped; if all are, the one whose pause ends first."""
        left = [replica for replica in self.replicas if replica not in tried]
        now = time.monotonic()
        up = [replica for replica in left if replica.paused_until <= now and not replica.dismissed]
        if up:
            return min(up, key=lambda one: one.load)
        return min(left, key=lambda one: (one.dismissed, one.paused_until))


def _another_may_answer(error: BackendError) -> bool:
    """Whether another server may answer what one did not: it is down, slow, or its context is shorter."""
    return error.kind in ("connection", "rate_limited", "context_length") or is_down(error)


def _may_be_charged(error: BackendError) -> bool:
    """Whether a server that failed may have done the work."""
    return error.kind == "connection" and not isinstance(error, UnsentError)


async def _nothing() -> None:
    """No proof is asked for."""

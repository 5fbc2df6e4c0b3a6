"""Several servers of one model: requests go to the least loaded, and one that is down is skipped for a while."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from backends.errors import BackendError
from backends.openai.http.client import HttpClient
from backends.openai.http.retries import is_down

#: Seconds for which a failed server is skipped; doubled each time it fails again.
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0


class Replica:
    """One server, its number of requests in flight, and until when it is skipped."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client
        self.in_flight = 0
        self.paused_until, self._pause = 0.0, _FIRST_PAUSE

    def pause(self) -> None:
        """Skip it for a while."""
        self.paused_until = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Errors say which server they are of."""
        try:
            yield
        except BackendError as error:
            url = self.client.base_url
            message = error.message if url in error.message else f"{error.message} at {url}"
            raise BackendError(error.kind, message, retryable=error.retryable, hint=error.hint) from None

    def resume(self) -> None:
        """It answers again."""
        self.paused_until, self._pause = 0.0, _FIRST_PAUSE


class ReplicaClient(HttpClient):
    """`HttpClient.post` over several servers. A request that one of them cannot answer goes to another at once."""

    def __init__(self, clients: Sequence[HttpClient]) -> None:
        self.replicas = [Replica(client) for client in clients]
        self._only: Replica | None = None

    @property
    def base_url(self) -> str:  # type: ignore[override]
        """The URL of the first server."""
        return self.replicas[0].client.base_url

    @property
    def requests(self) -> int:  # type: ignore[override]
        """Total over all servers."""
        return sum(replica.client.requests for replica in self.replicas)

    @contextlib.contextmanager
    def pinned(self, replica: Replica) -> Iterator[None]:
        """Send requests to this server alone, as a probe needs."""
        self._only = replica
        try:
            yield
        finally:
            self._only = None

    async def post(
        self, path: str, payload: dict[str, Any], *, accept: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> dict[str, Any]:
        if self._only is not None:
            return await self._only.client.post(path, payload, accept=accept)
        tried: list[Replica] = []
        while True:
            replica = self._next(tried)
            tried.append(replica)
            replica.in_flight += 1
            try:
                answer = await replica.client.post(path, payload, accept=accept)
            except BackendError as error:
                if error.kind != "connection" and not is_down(error):
                    raise
                replica.pause()
                if len(tried) == len(self.replicas):
                    raise
            else:
                replica.resume()
                return answer
            finally:
                replica.in_flight -= 1

    async def get(self, path: str) -> dict[str, Any]:
        return await (self._only or self.replicas[0]).client.get(path)

    async def close(self) -> None:
        """Close the connections to all servers."""
        for replica in self.replicas:
            await replica.client.close()

    def _next(self, tried: Sequence[Replica]) -> Replica:
        """The least loaded server that is not down; if all are, the one whose pause ends first."""
        left = [replica for replica in self.replicas if replica not in tried]
        now = time.monotonic()
        up = [replica for replica in left if replica.paused_until <= now]
        return min(up, key=lambda one: one.in_flight) if up else min(left, key=lambda one: one.paused_until)

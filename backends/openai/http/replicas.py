"""Several servers of one model: the least loaded is asked, and one that is down is left alone for a while."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from backends.errors import BackendError
from backends.openai.http.client import HttpClient
from backends.openai.http.retries import is_down

#: Seconds for which a server that failed is not asked; doubled each time that it fails again.
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0


class Replica:
    """One server, how many requests are under way there, and until when it is left alone."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client
        self.under_way = 0
        self.out_until, self._pause = 0.0, _FIRST_PAUSE

    def failed(self) -> None:
        """Leave it alone for a while."""
        self.out_until = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def answered(self) -> None:
        """It is back."""
        self.out_until, self._pause = 0.0, _FIRST_PAUSE


class ReplicaClient(HttpClient):
    """Has `HttpClient.post` over several servers. A request that one of them cannot answer goes to another at once."""

    def __init__(self, clients: Sequence[HttpClient]) -> None:
        self.replicas = [Replica(client) for client in clients]
        self._only: Replica | None = None

    @property
    def base_url(self) -> str:  # type: ignore[override]
        """The first server's."""
        return self.replicas[0].client.base_url

    @property
    def requests(self) -> int:  # type: ignore[override]
        """Of all servers."""
        return sum(replica.client.requests for replica in self.replicas)

    @contextlib.contextmanager
    def pinned(self, replica: Replica) -> Iterator[None]:
        """Ask this server alone, as a probe does."""
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
            replica.under_way += 1
            try:
                answer = await replica.client.post(path, payload, accept=accept)
            except BackendError as error:
                if error.kind != "connection" and not is_down(error):
                    raise
                replica.failed()
                if len(tried) == len(self.replicas):
                    raise
            else:
                replica.answered()
                return answer
            finally:
                replica.under_way -= 1

    async def close(self) -> None:
        """Close the connections to all servers."""
        for replica in self.replicas:
            await replica.client.close()

    def _next(self, tried: Sequence[Replica]) -> Replica:
        """The least loaded of those that are not down; where all are, the one that is to be tried next."""
        left = [replica for replica in self.replicas if replica not in tried]
        now = time.monotonic()
        up = [replica for replica in left if replica.out_until <= now]
        return min(up, key=lambda one: one.under_way) if up else min(left, key=lambda one: one.out_until)

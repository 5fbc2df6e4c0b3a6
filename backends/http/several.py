"""One model on several servers: requests go to each in turn, within one limiter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from backends.http.client import HttpClient

#: The server that all requests of this task go to.
_ONLY: ContextVar[HttpClient | None] = ContextVar("_ONLY", default=None)


class SeveralServers(HttpClient):
    """Offers `HttpClient.post` over several servers that were seen to serve one model.

    A request that fails is not passed on, since it may have been charged: whoever retries it gets the next server.
    """

    def __init__(self, clients: Sequence[HttpClient]) -> None:
        self.clients, self.base_url = tuple(clients), clients[0].base_url
        self._asked = 0

    @property
    def requests(self) -> int:  # type: ignore[override]
        """How many were sent to all servers."""
        return sum(client.requests for client in self.clients)

    @contextlib.contextmanager
    def only(self, client: HttpClient) -> Iterator[None]:
        """All requests of this task go to one server."""
        token = _ONLY.set(client)
        try:
            yield
        finally:
            _ONLY.reset(token)

    async def post(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        self._asked += 1
        client = _ONLY.get() or self.clients[self._asked % len(self.clients)]
        return await client.post(path, payload)

    async def close(self) -> None:
        for client in self.clients:
            await client.close()

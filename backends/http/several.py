"""One model on several servers: a request goes to the least busy; a server that fails is verified before it is used."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from backends.errors import BackendError
from backends.http.client import Accept, HttpClient
from backends.http.retries import is_down

#: Seconds for which a server that failed is skipped.
_PAUSE = 10.0
#: The server that this task's requests go to, and those of tasks that it starts.
_ONLY: ContextVar[_Server | None] = ContextVar("_ONLY", default=None)


class _Server:
    """One server: how busy it is, and until when it is skipped.

    ``verified``: whether it was shown to serve the same model since it last failed. ``dismissed``: it does not.
    """

    def __init__(self, client: HttpClient) -> None:
        self.client, self.busy, self.skipped_until = client, 0, 0.0
        self.verified = self.dismissed = False
        self.verifying = asyncio.Lock()


class SeveralServers(HttpClient):
    """Offers `HttpClient.post` over several servers, within one limiter: each takes as many requests at a time.

    ``verify`` says why the server that the task is pinned to does not serve the model; empty: it does. It is asked
    before a server's first request, and before its first after a failure. A failed request is not passed on to another
    server, since it may have been charged: whoever retries it gets one that works.
    """

    def __init__(self, clients: Sequence[HttpClient], verify: Callable[[], Awaitable[str]]) -> None:
        self._servers = [_Server(client) for client in clients]
        self._servers[0].verified = True  # what it serves is the model
        self._verify = verify
        self.base_url = clients[0].base_url

    @property
    def requests(self) -> int:  # type: ignore[override]
        """How many were sent to all servers."""
        return sum(server.client.requests for server in self._servers)

    @contextlib.contextmanager
    def first_alone(self) -> Iterator[None]:
        """All requests of this task go to the first server."""
        with _pinned(self._servers[0]):
            yield

    async def verify_all(self) -> None:
        """Raise `BackendError` if one of the servers serves another model, or cannot be asked."""
        for server in self._servers:
            await self._prove(server)
            if server.dismissed:
                hint = "Leave it out of urls, or audit it as a model of its own"
                problem = f"{server.client.base_url} does not serve the model of {self.base_url}"
                raise BackendError("inconsistent", problem, hint=hint)

    async def post(self, path: str, payload: dict[str, Any], *, accept: Accept = lambda _: None) -> dict[str, Any]:
        async with self._chosen() as client:
            return await client.post(path, payload, accept=accept)

    async def get(self, path: str) -> dict[str, Any]:
        async with self._chosen() as client:
            return await client.get(path)

    async def upload(self, path: str, name: str, content: bytes, fields: Mapping[str, str]) -> dict[str, Any]:
        raise BackendError("unsupported", "files belong to one server")

    async def download(self, path: str, longest: int) -> bytes:
        raise BackendError("unsupported", "files belong to one server")

    async def close(self) -> None:
        for server in self._servers:
            await server.client.close()

    @contextlib.asynccontextmanager
    async def _chosen(self) -> AsyncIterator[HttpClient]:
        server = _ONLY.get() or await self._free_server()
        server.busy += 1
        try:
            yield server.client
        except BackendError as error:
            if error.kind in ("connection", "timeout") or is_down(error):
                server.verified, server.skipped_until = False, time.monotonic() + _PAUSE
            elif error.kind == "rate_limited":
                server.skipped_until = time.monotonic() + min(error.retry_after or 1.0, _PAUSE)
            raise
        finally:
            server.busy -= 1

    async def _free_server(self) -> _Server:
        """The least busy server that works; the one that is skipped for the shortest time if none does."""
        while True:
            left = [server for server in self._servers if not server.dismissed]
            if not left:
                raise BackendError("inconsistent", "none of the servers serves the audited model any more")
            now = time.monotonic()
            server = min(left, key=lambda one: (max(one.skipped_until - now, 0.0), one.busy))
            try:
                await self._prove(server)
            except BackendError:
                if not any(one.verified for one in left):
                    raise
            if server.verified:
                return server

    async def _prove(self, server: _Server) -> None:
        async with server.verifying:
            if server.verified or server.dismissed:
                return
            with _pinned(server):
                server.dismissed = bool(await self._verify())
            server.verified = not server.dismissed


@contextlib.contextmanager
def _pinned(server: _Server) -> Iterator[None]:
    token = _ONLY.set(server)
    try:
        yield
    finally:
        _ONLY.reset(token)

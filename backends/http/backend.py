"""The base of a backend over HTTP: a client, its key and limits, and what its requests cost.

A service is a class with an `answer`: it writes the request for the service, sends it by `HttpBackend.post`, and reads
the reply. `tests/backends/http/contract.py` tests one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import httpx

from backends.base import Answer, Backend, Request, Response
from backends.errors import BackendError
from backends.http.client import HttpClient
from backends.http.options import HttpOptions
from backends.http.usage import Usage


class HttpBackend(Backend):
    """A model behind a service over HTTP.

    Attributes
    ----------
    options : HttpOptions
    client : HttpClient
    usage : Usage
        Requests, tokens and cost so far.
    """

    #: What sends its requests.
    client_type: ClassVar[type[HttpClient]] = HttpClient

    def __init__(self, options: HttpOptions) -> None:
        self.options = options
        self.model, self.base_url = options.model, options.servers[0]
        self.max_in_flight = options.max_in_flight * len(options.servers)
        self.usage = Usage(options.prices, options.max_cost)
        self.client = self.client_type(options)

    @property
    def endpoint(self) -> str:  # type: ignore[override]
        """Host and key identity, to which a server's rate limits apply."""
        return f"{httpx.URL(self.base_url).netloc.decode()} key {self.options.key.identity()}"

    def check(self) -> None:
        """Raise `ConfigError` for a key or limit that cannot work. Sends nothing."""
        self.options.check()

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        return [await self._answer(request) for request in batch]

    async def _answer(self, request: Request) -> Answer:
        try:
            return await self.answer(request)
        except BackendError as error:
            return error

    @abstractmethod
    async def answer(self, request: Request) -> Response:
        """The answer to one request. Raises `BackendError`."""

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON reply to ``body``, paid within ``max_cost``. Raises `BackendError`.

        ``body`` and the reply's ``usage`` are counted in OpenAI's terms (`Usage`).
        """
        return await self.usage.paid(body, lambda: self.client.post(path, body))

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()

    def spent(self) -> float | None:
        return self.usage.cost

    def highest_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        prices = self.options.prices
        return None if prices is None else prices.cost(prompt_tokens, completion_tokens)

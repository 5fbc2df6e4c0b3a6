"""Scores of a server by capabilities that a test names, whatever a look would choose."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from backends.base import ContinuationScore, ScoreRequest
from backends.http.client import HttpClient
from backends.http.usage import Usage
from backends.openai.api import ServerApi
from backends.openai.capabilities import ServerCapabilities
from backends.openai.options import OpenAIOptions
from backends.openai.scoring import RemoteTokenizer, score

Score = Callable[[ScoreRequest], Awaitable[tuple[ContinuationScore, ...]]]


def api_of(
    base_url: str, found: ServerCapabilities, *, model: str = "m", connections: int = 8, usage: Usage | None = None
) -> ServerApi:
    """An API that sends requests as ``found`` says."""
    options = OpenAIOptions.checked(base_url=base_url, model=model, api_key_env=None, max_in_flight=connections - 1)
    api = ServerApi(HttpClient(options), options, usage or Usage())
    api.configure(found)
    return api


@contextlib.asynccontextmanager
async def direct_routes(
    base_url: str, model: str, found: ServerCapabilities, *, connections: int = 8
) -> AsyncIterator[Score]:
    api = api_of(base_url, found, model=model, connections=connections)
    tokenizer = RemoteTokenizer(api.client, model, found.family) if found.family else None

    async def ask(request: ScoreRequest) -> tuple[ContinuationScore, ...]:
        return (await score(api, request, tokenizer)).scores

    try:
        yield ask
    finally:
        await api.client.close()

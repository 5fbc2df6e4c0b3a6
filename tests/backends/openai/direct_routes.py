"""Scores of a server by capabilities that a test names, whatever a look would choose."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from backends.base import ContinuationScore, ScoreRequest
from backends.http.client import HttpClient
from backends.http.keys import Credential
from backends.http.usage import Usage
from backends.openai.capabilities import ServerCapabilities
from backends.openai.options import OpenAIOptions
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring import RemoteTokenizer, score

Score = Callable[[ScoreRequest], Awaitable[tuple[ContinuationScore, ...]]]


def api_of(client: HttpClient, found: ServerCapabilities, **options: Any) -> ServerApi:
    """An API that sends requests as ``found`` says."""
    known = {"base_url": client.base_url, "model": "m", "api_key_env": None}
    api = ServerApi(client, OpenAIOptions.checked(**{**known, **options}), Usage())
    api.configure(found)
    return api


@contextlib.asynccontextmanager
async def direct_routes(
    base_url: str, model: str, found: ServerCapabilities, *, connections: int = 8
) -> AsyncIterator[Score]:
    client = HttpClient(base_url, Credential(), timeout=120, max_connections=connections)
    api = api_of(client, found, model=model)
    tokenizer = RemoteTokenizer(client, model, found.family) if found.family else None

    async def ask(request: ScoreRequest) -> tuple[ContinuationScore, ...]:
        return (await score(api, request, tokenizer)).scores

    try:
        yield ask
    finally:
        await client.close()

"""Routes to a server by capabilities that a test names, whatever the probe would choose."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from backends.http.client import HttpClient
from backends.http.keys import ApiKeys
from backends.http.usage import Usage
from backends.openai.capabilities import ServerCapabilities
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.routes import Routes
from backends.openai.scoring.tokenizer import RemoteTokenizer


@contextlib.asynccontextmanager
async def direct_routes(
    base_url: str, model: str, capabilities: ServerCapabilities, samples: int | None = None
) -> AsyncIterator[Routes]:
    client = HttpClient(base_url, ApiKeys((), None), timeout=120, max_connections=8)
    api = ServerApi(client, model, Usage())
    api.configure(capabilities)
    family = capabilities.family
    try:
        yield Routes(api, capabilities, RemoteTokenizer(client, model, family) if family else None, samples)
    finally:
        await client.close()

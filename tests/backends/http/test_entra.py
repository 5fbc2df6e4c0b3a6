"""Tokens of Entra, by the real azure-identity: an App Service's managed identity, whose endpoint is on loopback.

https://learn.microsoft.com/azure/app-service/overview-managed-identity: ``GET $IDENTITY_ENDPOINT?resource=…`` with the
header ``X-IDENTITY-HEADER`` gives ``access_token`` and ``expires_on``.
"""

from __future__ import annotations

import http.server
import json
import logging
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, GenerateResponse, Message, Sampling
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import DEPRECATED, MODEL, StrictServer, refusal, varied


class Identity(http.server.BaseHTTPRequestHandler):
    """Gives tokens that are numbered, for the one resource that models on Azure have."""

    given: list[str]
    lifetime = 3600

    def do_GET(self) -> None:
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        right = self.headers["X-IDENTITY-HEADER"] == "of-this-app"
        right = right and asked["resource"] == ["https://cognitiveservices.azure.com"]
        self.given.append(f"entra-{len(self.given)}")
        body = {"access_token": self.given[-1], "expires_on": str(int(time.time()) + self.lifetime)}
        content = json.dumps({**body, "resource": asked["resource"][0], "token_type": "Bearer"}).encode()
        self.send_response(200 if right else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Identity]]:
    handler = type("OneIdentity", (Identity,), {"given": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{server.server_port}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "of-this-app")
    yield handler
    server.shutdown()
    server.server_close()


class OnAzure(StrictServer):
    """Answers who carries a token of the identity above."""

    identity: type[Identity]

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        tokens = [f"authorization: bearer {token}" for token in self.identity.given]
        if not any(token in self.headers[-1].lower() for token in tokens):
            return refusal(401, "Access denied due to invalid token.")
        return super().reply(path, sent)


async def test_azures_own_library_gives_the_tokens(tmp_path: Path, identity: type[Identity]) -> None:
    server = OnAzure(DEPRECATED, varied)
    server.identity = identity
    async with server.running():
        backend = OpenAIBackend(server.base_url, model=MODEL, token="azure", probe_folder=tmp_path)
        backend.check()
        await backend.describe()
        answer, *_ = await backend.run([GenerateRequest((Message("user", "Hi"),), Sampling(max_tokens=16))])
        sent = len(server.bodies)
        await backend.close()
    assert isinstance(answer, GenerateResponse), answer
    assert len(identity.given) == 1, f"one token for {sent} requests, renewed when it ends"
    assert "entra-0" not in repr(backend) + str(vars(backend))


async def test_who_is_not_signed_in_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> str:
        raise RuntimeError("not signed in")

    import azure.identity

    monkeypatch.setattr(azure.identity, "get_bearer_token_provider", lambda *_: fails)
    backend = OpenAIBackend("http://127.0.0.1:9/v1", model=MODEL, token="azure")
    with pytest.raises(BackendError, match="token='azure' gives no token") as caught:
        await backend.describe()
    await backend.close()
    assert "az login" in caught.value.hint
    logging.getLogger("azure.identity").warning("EnvironmentCredential is not configured")
    assert not caplog.records

"""Tokens by the real libraries of Azure and Google, whose endpoints are on loopback.

- An App Service's managed identity (https://learn.microsoft.com/azure/app-service/overview-managed-identity):
  ``GET $IDENTITY_ENDPOINT?resource=…`` with the header ``X-IDENTITY-HEADER``.
- A service account of Google (https://developers.google.com/identity/protocols/oauth2/service-account): a signed
  request for a token, at the address that its key file names.
"""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth import jwt

from backends.base import GenerateRequest, GenerateResponse, Message, Sampling
from backends.openai import OpenAIBackend
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import DEPRECATED, MODEL, StrictServer, refusal, varied

ASKED = GenerateRequest((Message("user", "Hi"),), Sampling(max_tokens=16))


class Issuer(http.server.BaseHTTPRequestHandler):
    """Gives tokens that are numbered, to the app and the account that it knows."""

    given: list[str]
    certificate: bytes

    def do_GET(self) -> None:
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        assert asked["resource"] == ["https://cognitiveservices.azure.com"]
        assert self.headers["X-IDENTITY-HEADER"] == "of-this-app"
        self._give({"expires_on": str(int(time.time()) + 3600), "resource": asked["resource"][0]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        jwt.decode(dict(urllib.parse.parse_qsl(body))["assertion"], certs=self.certificate)
        self._give({"expires_in": 3600})

    def _give(self, fields: dict[str, Any]) -> None:
        self.given.append(f"token-of-{len(self.given)}")
        content = json.dumps({**fields, "access_token": self.given[-1], "token_type": "Bearer"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the key and the certificate of a service account."""
    folder = tmp_path_factory.mktemp("account")
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=account"]
    subprocess.run([*new, "-keyout", "key", "-out", "certificate"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def issuer(account: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Issuer]]:
    certificate = (account / "certificate").read_bytes()
    handler = type("OneIssuer", (Issuer,), {"given": [], "certificate": certificate})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/token"
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IDENTITY_ENDPOINT", url)
    monkeypatch.setenv("IDENTITY_HEADER", "of-this-app")
    fields = {"type": "service_account", "client_email": "audit@p.iam.gserviceaccount.com", "project_id": "p"}
    fields |= {"private_key_id": "1", "private_key": (account / "key").read_text(), "token_uri": url}
    (account / "account.json").write_text(json.dumps(fields))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account / "account.json"))
    yield handler
    server.shutdown()
    server.server_close()


class OfTokens(StrictServer):
    """Answers who carries the newest token."""

    given: list[str]

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if not self.given or f"authorization: bearer {self.given[-1]}\r" not in self.headers[-1].lower():
            return refusal(401, "Request had invalid authentication credentials.")
        return super().reply(path, sent)


@pytest.mark.parametrize("name", ["azure", "google"])
async def test_the_clouds_own_library_gives_the_tokens(name: str, issuer: type[Issuer], tmp_path: Path) -> None:
    server = OfTokens(DEPRECATED, varied)
    server.given = issuer.given
    async with server.running():
        backend = OpenAIBackend(server.base_url, model=MODEL, token=name, probe_folder=tmp_path)
        backend.check()
        await backend.describe()
        (answer,) = await backend.run([ASKED])
        assert len(issuer.given) == 1, "one for all requests"
        server.given = ["token-of-1"]  # that of before was revoked
        before = server.requests
        (later,) = await backend.run([ASKED])
        sent = server.requests - before
        await backend.close()
    assert isinstance(answer, GenerateResponse), answer
    assert isinstance(later, GenerateResponse), later
    assert (len(issuer.given), sent) == (2, 2)
    assert "token-of" not in repr(backend) + str(vars(backend))

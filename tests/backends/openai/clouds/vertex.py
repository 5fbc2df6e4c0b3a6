"""Google Vertex AI's endpoint for chats, ``…/v1/projects/P/locations/L/endpoints/openapi``, and its tokens.

- Path, parameters and tokens: https://cloud.google.com/vertex-ai/generative-ai/docs/migrate/openai/overview and
  …/auth-and-credentials. Parameters that it does not know are ignored. Tokens end after an hour: then 401, whose text
  names no time (NousResearch/hermes-agent #69096, pydantic/pydantic-ai #1195). Errors are in a list
  (google-gemini/gemini-cli #14811).
- A service account signs a request for a token by its own clock: "Invalid JWT: Token must be a short-lived token (60
  minutes) and in a reasonable timeframe. Check your iat and exp values" (https://developers.google.com/identity/
  protocols/oauth2/service-account).
- 429 "Quota exceeded for aiplatform.googleapis.com/generate_content_requests_per_minute…" names no wait
  (langchain-ai/langchain-google #355, cocoindex-io/cocoindex #1151).
- Gemini's thoughts are hidden, counted against the limit and in ``total_tokens`` alone (vectorize-io/hindsight #3365,
  mozilla-ai/any-llm #1290); where they leave nothing, the answer has no content (stanford-crfm/helm #3804).
- At most 8 candidates a request (https://cloud.google.com/vertex-ai/docs/reference/rest/v1/GenerationConfig).
"""

from __future__ import annotations

import email.utils
import http.server
import json
import random
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.auth import jwt

from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import Answers, Manner, StrictServer

MODEL = "google/gemini-2.5-flash"
_PATH = "/v1/projects/p/locations/us-central1/endpoints/openapi"
_EXPIRED = (
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
    "authentication credential."
)
_BUSY = (
    "Quota exceeded for aiplatform.googleapis.com/generate_content_requests_per_minute_per_project_per_base_model with "
    "base model: gemini-2.5-flash. Please submit a quota increase request."
)
_OF_TIME = (
    "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp "
    "values in the JWT claim."
)
_REASONS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}


class Tokens:
    """Gives tokens to a service account, and knows until when each is valid. ``lifetime`` in seconds."""

    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate
        self.clock: Callable[[], float] = time.time
        self.lifetime, self.said_lifetime = 3600.0, 3600
        self.until: dict[str, float] = {}

    def answer(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Status and body for a signed request."""
        claims = jwt.decode(form["assertion"], verify=False)
        jwt.decode(form["assertion"], certs=self._certificate, clock_skew_in_seconds=10**6)  # the signature
        now = self.clock()
        if claims["iat"] > now + 60 or claims["exp"] < now:
            return 400, {"error": "invalid_grant", "error_description": _OF_TIME}
        token = f"ya29.stand-in-{len(self.until)}-{random.getrandbits(64):x}"
        self.until[token] = now + self.lifetime
        return 200, {"access_token": token, "expires_in": self.said_lifetime, "token_type": "Bearer"}


@contextmanager
def service_account(folder: Path) -> Iterator[tuple[Tokens, Path]]:
    """A key file of a service account whose tokens come from loopback, and what gives them."""
    key, certificate = folder / "account.key", folder / "account.pem"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=account"]
    subprocess.run([*new, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    tokens = Tokens(certificate.read_bytes())

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, said = tokens.answer(dict(urllib.parse.parse_qsl(body)))
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = folder / "account.json"
    fields = {"type": "service_account", "client_email": "audit@p.iam.gserviceaccount.com", "project_id": "p"}
    fields |= {"private_key_id": "1", "private_key": key.read_text()}
    fields |= {"token_uri": f"http://127.0.0.1:{server.server_port}/token"}
    file.write_text(json.dumps(fields))
    try:
        yield tokens, file
    finally:
        server.shutdown()
        server.server_close()


class Vertex(StrictServer):
    """Answers who carries a token that has not ended by the server's clock. ``busy`` is how often it answers 429."""

    def __init__(self, answers: Answers, tokens: Tokens) -> None:
        super().__init__(Manner({}, thinks="hidden"), answers, most_choices=8)
        self.model, self.tokens = MODEL, tokens
        self.busy = 0.0
        self.refused = 0
        self._moods = random.Random(5)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{_PATH}"

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        carried = self.headers[-1].partition("Bearer ")[2].partition("\r")[0]
        if self.tokens.until.get(carried, 0.0) < self.tokens.clock():
            self.refused += 1
            return self._error(401, _EXPIRED)
        if path != f"{_PATH}/chat/completions":
            return self._error(404, "The requested URL was not found on this server.")
        if self._moods.random() < self.busy:
            return self._error(429, _BUSY)
        if sent.get("logprobs"):
            return self._error(400, "Logprobs is not supported for the current model.")
        if sent.get("n", 1) > 8:
            return self._error(400, "candidateCount must be between 1 and 8")
        reply = super().reply("/v1/chat/completions", sent)
        if reply.status != 200:
            return self._unfinished() if "Could not finish" in str(reply.body) else reply
        usage = reply.body["usage"]
        thoughts = usage.pop("completion_tokens_details")["reasoning_tokens"]
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        usage["completion_tokens"] -= thoughts
        return reply

    def _unfinished(self) -> Reply:
        """All tokens went into the thought."""
        choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": None}}
        usage = {"prompt_tokens": 9, "total_tokens": 73}
        return Reply({"id": f"chat-cut-{self.requests}", "model": MODEL, "choices": [choice], "usage": usage})

    def _error(self, status: int, message: str) -> Reply:
        said = {"code": status, "message": message, "status": _REASONS[status]}
        now = email.utils.formatdate(self.tokens.clock(), usegmt=True)
        return Reply([{"error": said}], status, {"Content-Type": "application/json", "Date": now})

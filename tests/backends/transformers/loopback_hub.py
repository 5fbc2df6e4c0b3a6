"""A hub on loopback, and a cache as huggingface_hub lays it out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class LoopbackHub:
    """What the hub answers: its files, or a status with headers for every request. ``asked`` counts requests."""

    files: dict[str, bytes] = field(default_factory=dict)
    commit: str = COMMIT
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def loopback_hub() -> Iterator[LoopbackHub]:
    """A hub with one model, whatever its name, on a free port."""
    hub = LoopbackHub()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(has_body=False)

        def do_GET(self) -> None:
            self._answer(has_body=True)

        def log_message(self, *_: object) -> None:
            return

        def _answer(self, *, has_body: bool) -> None:
            hub.asked.append(f"{self.command} {self.path}")
            asked = self.path.split("/resolve/")[-1].split("/")[0]
            commit = asked if re.fullmatch("[0-9a-f]{40}", asked) else hub.commit
            content = hub.files.get(self.path.rpartition("/")[2])
            if hub.status is not None:
                self._send(hub.status, hub.headers, b"", has_body)
            elif re.search(r"/api/models/.*/tree/[^/?]+\?", self.path):
                listed = [{"type": "file", "path": name, "size": 1, "oid": ""} for name in hub.files]
                self._send(200, {"Content-Type": "application/json"}, json.dumps(listed).encode(), has_body)
            elif "/api/models/" in self.path and "/revision/" in self.path:
                listing = json.dumps({"id": "org/name", "sha": hub.commit}).encode()
                self._send(200, {"Content-Type": "application/json"}, listing, has_body)
            elif content is None or "/resolve/" not in self.path:
                self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b"", has_body)
            else:
                etag = hashlib.sha256(content).hexdigest()
                self._send(200, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}, content, has_body)

        def _send(self, status: int, headers: Mapping[str, str], content: bytes, has_body: bool) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if has_body:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def save_in_cache(folder: Path, cache: Path, repo: str) -> Path:
    """The files of a model's folder as huggingface_hub keeps them (blobs, snapshots, refs); returns the snapshot."""
    kept = cache / f"models--{repo.replace('/', '--')}"
    snapshot = kept / "snapshots" / COMMIT
    for part in (kept / "blobs", kept / "refs", snapshot):
        part.mkdir(parents=True)
    (kept / "refs" / "main").write_text(COMMIT)
    for file in sorted(folder.iterdir()):
        blob = kept / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", blob.name))
    return snapshot


def point_at(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """Let huggingface_hub ask this hub and use this cache, as HF_ENDPOINT and HF_HUB_CACHE would."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", url)
    monkeypatch.setattr("transformers.utils.hub._hf_api", None)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # the tests set it, so that none leaves loopback

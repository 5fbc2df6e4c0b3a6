"""Fetching a pinned file over a real socket, once, and refusing what is not the pinned bytes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backends.errors import ConfigError
from suites.common.data_files import PinnedFile

CONTENT = b'["nurse", "plumber"]\n'


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT at every path except /gone.json, and counts requests."""

    asked = 0

    def do_GET(self) -> None:
        Handler.asked += 1
        self.send_response(404 if "gone" in self.path else 200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(Handler, "asked", 0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def pinned(server: ThreadingHTTPServer, name: str = "words.json", content: bytes = CONTENT) -> PinnedFile:
    return PinnedFile(f"http://127.0.0.1:{server.server_port}/{name}", hashlib.sha256(content).hexdigest())


def test_a_file_is_fetched_once_and_kept(server: ThreadingHTTPServer) -> None:
    first = pinned(server).path(None, field="words")
    assert first.read_bytes() == CONTENT
    assert pinned(server).path(None, field="words") == first
    assert Handler.asked == 1


def test_another_file_than_the_pinned_one_is_refused(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"words .*is not the pinned one"):
            pinned(server, content=b"other").path(None, field="words")
    assert Handler.asked == 2  # it was not kept
    with pytest.raises(ConfigError, match=r"could not be fetched .*Give a folder that holds the file"):
        pinned(server, "gone.json").path(None, field="words")
    (tmp_path / "words.json").write_bytes(CONTENT)
    assert pinned(server).path(tmp_path, field="words") == tmp_path / "words.json"
    (tmp_path / "words.json").write_bytes(CONTENT.replace(b"nurse", b"Nurse"))
    with pytest.raises(ConfigError, match="its sha256 is"):
        pinned(server).path(tmp_path, field="words")
    assert Handler.asked == 3

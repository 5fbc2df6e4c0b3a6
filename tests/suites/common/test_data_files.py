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


class Server(ThreadingHTTPServer):
    """Serves CONTENT at every path except /gone.json, and counts requests."""

    asked = 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked += 1
        self.send_response(404 if "gone" in self.path else 200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def pinned(server: Server, name: str = "words.json", content: bytes = CONTENT) -> PinnedFile:
    return PinnedFile(f"http://127.0.0.1:{server.server_port}/{name}", hashlib.sha256(content).hexdigest())


def test_a_file_is_fetched_once_and_kept(server: Server) -> None:
    first = pinned(server).path(None, field="words")
    assert first.read_bytes() == CONTENT
    assert pinned(server).path(None, field="words") == first
    assert server.asked == 1


def test_a_fetched_file_of_another_hash_is_not_kept(server: Server) -> None:
    wrong = pinned(server, content=b"other")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"words .*is not the pinned one"):
            wrong.path(None, field="words")
    assert server.asked == 2


def test_a_file_that_is_gone_says_what_to_do(server: Server) -> None:
    with pytest.raises(ConfigError, match=r"could not be fetched .*Give a folder that holds the file"):
        pinned(server, "gone.json").path(None, field="words")


def test_a_file_in_a_folder_is_used_without_the_network(server: Server, tmp_path: Path) -> None:
    (tmp_path / "words.json").write_bytes(CONTENT)
    assert pinned(server).path(tmp_path, field="words") == tmp_path / "words.json"
    assert server.asked == 0


def test_a_changed_file_in_a_folder_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "words.json").write_bytes(CONTENT.replace(b"nurse", b"Nurse"))
    with pytest.raises(ConfigError, match="its sha256 is"):
        pinned(server).path(tmp_path, field="words")

"""Published files: fetched once over a real socket, found in a folder, and refused if they are not the pinned bytes."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import suites
from backends.errors import ConfigError
from suites.benchmarks import eec
from suites.common.data_files import PinnedFile, load, published_files
from tests.suites.benchmarks.invented import texts

NAMES = ("CrowSPairs", "WinoQueer", "StereoSet", "WinoBias", "BBQ", "BiasNLI", "BOLD")
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


# -- the published files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_needs_the_published_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no file .*https://raw\.githubusercontent\.com/"):
        getattr(suites, name)(folder=tmp_path)
    for file, text in texts().items():
        (tmp_path / file).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match="not the published"):
        getattr(suites, name)(folder=tmp_path)


def test_a_users_file_that_is_not_utf_8_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / eec.CORPUS.name).write_bytes("Sentence\nRené\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"not UTF-8 .* Save the file as UTF-8"):
        suites.EEC(folder=tmp_path)


def test_every_file_is_pinned_and_has_its_own_name() -> None:
    benchmarks = [name for name in load("published_files").content if name != "source"]
    files = [file for name in benchmarks for file in published_files(name).values()]
    assert all(re.search(r"/[0-9a-f]{40}/", file.url) for file in files)
    assert len({file.name for file in files}) == len(files)
    hashes = [file.sha256 or file.git_blob for file in files]
    assert len(set(hashes)) == len(hashes)
    assert all(re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{40}", found) for found in hashes)


def test_a_file_pinned_by_gits_id_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n", "utf-8")
    file = PinnedFile("https://example.org/a.txt", git_blob="ce013625030ba8dba906f756967f9e9ca394464a")  # by git itself
    assert file.path(tmp_path, field="folder") == tmp_path / "a.txt"
    (tmp_path / "a.txt").write_text("hullo\n", "utf-8")
    with pytest.raises(ConfigError, match="git's id is"):
        file.path(tmp_path, field="folder")

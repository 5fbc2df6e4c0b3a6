"""A Hub on a real socket of this machine: what `datasets` asks of the Hugging Face Hub, for a few data sets."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

#: Path → content of one commit.
Files = Mapping[str, bytes]


class LoopbackHub(ThreadingHTTPServer):
    """Serves data sets, each with its branches and tags.

    Attributes
    ----------
    revisions : mapping
        Name of a data set → branch or tag → its files.
    private : frozenset of str
        Data sets that only the token ``key`` may read; gated ones are in ``gated``.
    asked : list of str
        The requests so far.
    """

    daemon_threads = True

    def __init__(self, revisions: Mapping[str, Mapping[str, Files]], private: frozenset[str], gated: frozenset[str]):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.revisions, self.private, self.gated = revisions, private, gated
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def commit(name: str, files: Files) -> str:
    """The id of a commit, 40 hexadecimal digits."""
    return hashlib.sha1(name.encode() + b"".join(path.encode() + of for path, of in files.items())).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LoopbackHub

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        found = re.fullmatch(
            r"/(?:api/)?datasets/(?P<name>[\w-]+/[\w-]+)(?:/(?P<verb>revision|resolve|tree|paths-info)/(?P<rest>.+))?",
            path,
        )
        if found is None or found["name"] not in self.server.revisions:
            self._refuse(401 if found else 404, "RepoNotFound", "Repository not found")  # the Hub hides private ones
            return
        name = found["name"]
        if name in self.server.private and self.headers.get("Authorization") != "Bearer key":
            self._refuse(401, "RepoNotFound", "Repository not found")
            return
        if name in self.server.gated:
            self._refuse(403, "GatedRepo", "Access to this data set is restricted")
            return
        revision, _, rest = (found["rest"] or "main").partition("/")
        known = self.server.revisions[name]
        by_commit = {commit(name, files): files for files in known.values()}
        files = known.get(revision, by_commit.get(revision))
        if files is None:
            self._refuse(404, "RevisionNotFound", "Invalid rev id")
            return
        self._found(name, files, found["verb"] or "revision", rest, body)

    def _found(self, name: str, files: Files, verb: str, rest: str, body: bytes) -> None:
        sha = commit(name, files)
        listed = [
            {"type": "file", "path": path, "size": len(of), "oid": hashlib.sha1(of).hexdigest()}
            for path, of in files.items()
        ]
        if verb == "revision":
            siblings = [{"rfilename": path} for path in files]
            self._json({"id": name, "sha": sha, "private": False, "tags": [], "siblings": siblings})
        elif verb == "tree":
            self._json([one for one in listed if one["path"].startswith(rest)])
        elif verb == "paths-info":
            given = json.loads(body) if body.startswith(b"{") else parse_qs(body.decode())
            self._json([one for one in listed if one["path"] in given["paths"]])
        elif rest in files:
            headers = {"ETag": f'"{hashlib.sha1(files[rest]).hexdigest()}"', "X-Repo-Commit": sha}
            self._send(200, files[rest], headers)
        else:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": sha})

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        more = {"X-Error-Code": code, "X-Error-Message": message, "Content-Type": "application/json"}
        self._send(status, json.dumps({"error": message}).encode(), {**more, **(headers or {})})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        # Each connection ends with its answer: none outlives a Hub that is shut down.
        for name, value in {**headers, "Content-Length": str(len(content)), "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def loopback_hub(
    revisions: Mapping[str, Mapping[str, Files]], *, private: frozenset[str], gated: frozenset[str]
) -> Iterator[LoopbackHub]:
    """A running Hub."""
    with LoopbackHub(revisions, private, gated) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()

"""Audits that fail in every way with a key that must never be seen again.

The server repeats the key wherever it can. Afterwards every byte that the audit has left behind is
searched for it: output, database, reports, logs, records, tracebacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from audit import Audit
from backends import OpenAIBackend
from backends.base import Capability, GenerateRequest, GenerateResponse, Response
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite

KEY = "sk-canary-4f1d0c7e9b2a4e6fa8c35d71"
KEY_VARIABLE = "CANARY_API_KEY"
QUESTION = "canary question"


def _packet(body: object, status: str = "200 OK", *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = "\r\n".join([f"HTTP/1.1 {status}", *(headers or ("Content-Type: application/json",))])
    return f"{head}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def _right(model: str, **changes: object) -> dict[str, Any]:
    choice = {"index": 0, "text": "Yes.", "finish_reason": "stop", **changes}
    return {"model": model, "choices": [choice], "usage": {"prompt_tokens": 2, "completion_tokens": 2}}


def _refused(status: str, *headers: str, code: str = "planted") -> bytes:
    said = f"Incorrect API key provided: {KEY}. You sent Authorization: Bearer {KEY}"
    return _packet({"error": {"message": said, "type": code, "code": KEY}}, status, *headers)


_AT_ONCE = "Retry-After: 0"
_ESCAPED = json.dumps(_right("in-the-text-escaped")).replace("Yes.", "".join(f"\\u{ord(c):04x}" for c in KEY)).encode()

#: What the server sends instead of an answer, each to a model of that name. The key is in all of them.
REPLIES: Mapping[str, bytes] = {
    **{f"status-{code}": _refused(f"{code} No", _AT_ONCE) for code in (400, 401, 403, 404, 422, 500, 503)},
    "cut-through-the-key": _packet({"error": "x" * 230 + KEY}, "400 No"),
    "redirect": _packet(b"", "302 Found", f"Location: http://127.0.0.1:9/?key={KEY}"),
    "error-with-200": _refused("200 OK", _AT_ONCE),
    "html-with-200": _packet(f"<html>{KEY}</html>".encode(), "200 OK", "Content-Type: text/html"),
    "echoed-headers": _packet(f"GET / HTTP/1.1\nAuthorization: Bearer {KEY}\n".encode()),
    "a-list": _packet([KEY]),
    "truncated": _packet(json.dumps(_right("truncated", text=KEY)).encode()[:-9]),
    "in-the-text": _packet(_right("in-the-text", text=f"Yes, {KEY}")),
    "in-the-text-escaped": _packet(_ESCAPED),
    "in-the-reason": _packet(_right("in-the-reason", finish_reason=KEY)),
    "in-an-object": _packet(_right("in-an-object", text={"said": KEY})),
    "as-the-model": _packet(_right(KEY)),
    "as-the-status-line": f"{KEY} is no HTTP\r\n\r\n".encode(),
    "as-a-broken-header": f"HTTP/1.1 200 OK\r\n{KEY} no colon\r\n\r\n".encode(),
    "reset": f"HTTP/1.1 200 OK\r\nX: {KEY}".encode(),
}
#: These succeed when asked again, so that no time is spent until they are given up.
_ONCE = (
    *("reset", "truncated", "echoed-headers", "a-list", "in-an-object"),
    *("as-the-status-line", "as-a-broken-header", "html-with-200", "error-with-200"),
)


class KeyServer:
    """Answers whatever it is asked, until a question of the audit comes: then as `REPLIES` say.

    ``struck`` holds the models that were answered so, and were asked with the key. The model
    ``refused-from-the-start`` never gets an answer, ``answers-all`` always does.
    """

    def __init__(self) -> None:
        self.port = 0
        self.struck: set[str] = set()
        self._times: dict[str, int] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[KeyServer]:
        """Serve in a thread of its own."""
        ready = threading.Event()
        loop = asyncio.new_event_loop()

        async def begin() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()

        def serve() -> None:
            loop.run_until_complete(begin())
            loop.run_forever()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = re.search(rb"content-length: (\d+)", head, re.I)
                body = json.loads(await reader.readexactly(int(size[1]))) if size else {}
                writer.write(await self._reply(head, body, writer))
                await writer.drain()
        writer.close()

    async def _reply(self, head: bytes, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> bytes:
        model = str(body.get("model"))
        if b"/v1/completions" not in head:
            return _packet({"error": {"message": "no such route"}}, "404 No")
        if model == "refused-from-the-start":
            self._record_key(model, head)
            return _refused("401 No")
        if QUESTION not in str(body.get("prompt")) or model not in REPLIES:
            await asyncio.sleep(0.02 if model == "answers-all" else 0)
            return _packet(_right(model))
        question = f"{model} {body['prompt']}"
        self._times[question] = self._times.get(question, 0) + 1
        if model in _ONCE and self._times[question] > 1:
            return _packet(_right(model))
        self._record_key(model, head)
        if model == "reset":
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return REPLIES[model]

    def _record_key(self, model: str, head: bytes) -> None:
        if f"authorization: bearer {KEY}".encode() in head.lower():
            self.struck.add(model)


class Questions(Suite):
    """A few questions; ``broken`` raises at a server's answer, as a suite with a bug that no rehearsal meets."""

    name = "questions"

    def __init__(self, count: int = 2, *, broken: bool = False) -> None:
        self._count, self._broken = count, broken

    @property
    def needs(self) -> frozenset[Capability]:
        return frozenset({"generate"})

    def items(self) -> Iterator[Item]:
        for number in range(self._count):
            yield Item(f"i{number}", GenerateRequest(f"{QUESTION} {number}"), {"number": number})

    def signature(self) -> Mapping[str, Any]:
        return {"count": self._count}

    def read(self, item: Item, response: Response) -> Row:
        assert isinstance(response, GenerateResponse)
        if self._broken and "made-up" not in response.text:
            raise RuntimeError(f"a bug in a suite, met at {response.text!r}")
        return Row(item.id, item.factors, {"length": IdentifiedInterval.exact(float(len(response.text)))})

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        yield MeasureSpec("length", "length", unit="characters")


def backend(port: int, model: str, **options: Any) -> OpenAIBackend:
    """The real backend, with the key from the environment."""
    url = options.pop("base_url", f"http://127.0.0.1:{port}/v1")
    options = {"api_key_env": KEY_VARIABLE, "timeout": 1.0, "max_in_flight": 2, "probe_folder": "probes", **options}
    return OpenAIBackend(url, model=model, **options)


def audit_of(port: int, models: Sequence[str], suite: Suite | None = None, **options: Any) -> Audit:
    """An audit of models of the server; everything that it writes goes into the current folder."""
    return Audit(
        {model: backend(port, model, **options) for model in models},
        [suite or Questions()],
        db="audit.db",
        out="out",
    )


def command(folder: Path, config: str) -> None:
    """In a process of its own: `audit run` on a config of this text, its output in files."""
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644), number)
    os.environ[KEY_VARIABLE] = KEY
    Path("config.py").write_text(f"from tests.faults.canary import *\n{config}\n")
    from audit.cli import main

    main(["run", "config.py", "-v"])


def places_of_the_key(folder: Path) -> list[str]:
    """Files that hold the key's first half, but for the ones that were given it."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("config.py", "key") and KEY[:16].encode() in path.read_bytes()
    )

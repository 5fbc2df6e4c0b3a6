"""Audits that fail in every way with a key that must never be seen again.

The server repeats the key wherever it can. Afterwards every byte that the audit has left behind is
searched for it: output, database, reports, logs, records, tracebacks.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from audit import Audit
from backends import OpenAIBackend
from backends.base import GenerateRequest, GenerateResponse, Response
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite
from tests.backends.openai.raw_server import RawServer, Reply

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
}
#: These succeed when asked again, so that no time is spent until they are given up.
_ONCE = (
    *("truncated", "echoed-headers", "a-list", "in-an-object"),
    *("as-the-status-line", "as-a-broken-header", "html-with-200", "error-with-200"),
)


class KeyServer(RawServer):
    """Answers whatever it is asked, until a question of the audit comes: then as `REPLIES` say.

    ``struck`` holds the models that were answered so, and were asked with the key. ``answers-all`` is always answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.struck: set[str] = set()
        self._times: Counter[str] = Counter()

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        model = str(sent.get("model"))
        if path != "/v1/completions":
            return Reply({"error": {"message": "no such route"}}, 404)
        self.pause = 0.02 if model == "answers-all" else 0.0
        question = f"{model} {sent['prompt']}"
        self._times[question] += 1
        is_asked = QUESTION in question and model in REPLIES
        if not is_asked or (model in _ONCE and self._times[question] > 1):
            return Reply(_right(model))
        return self._struck(model, REPLIES[model])

    def _struck(self, model: str, packet: bytes) -> Reply:
        if f"authorization: bearer {KEY}" in self.headers[-1].lower():
            self.struck.add(model)
        return Reply({}, packet=packet)


class Questions(Suite):
    """A few questions."""

    name = "questions"

    def __init__(self, count: int = 2) -> None:
        self._count = count

    def items(self) -> Iterator[Item]:
        for number in range(self._count):
            yield Item(f"i{number}", GenerateRequest(f"{QUESTION} {number}"), {"number": number})

    def signature(self) -> Mapping[str, Any]:
        return {"count": self._count}

    def read(self, item: Item, response: Response) -> Row:
        assert isinstance(response, GenerateResponse)
        return Row(item.id, item.factors, {"length": IdentifiedInterval.exact(float(len(response.text)))})

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        yield MeasureSpec("length", "length", unit="characters")


def backend(port: int, model: str, **options: Any) -> OpenAIBackend:
    """The real backend, with the key from the environment."""
    url = options.pop("base_url", f"http://127.0.0.1:{port}/v1")
    options = {"api_key_env": KEY_VARIABLE, "timeout": 100.0, "max_in_flight": 2, "probe_folder": "probes", **options}
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

"""A server that tells one lie: raw asyncio on loopback, and a small known model behind it.

The honest server knows words, numbers and punctuation as tokens; its next-token distribution is a
fixed function of the token before. It serves ``/v1/completions`` with lists, echo, and text
prompts, as OpenAI's own did. A lie changes one answer of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import math
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

MODEL = "honest-1"
_WORD = re.compile(r" ?[A-Za-z]+| ?[0-9]+|[^A-Za-z0-9]", re.S)
WORDS = (
    *(" Male", " Female", " doctor", " nurse", " Wednesday", " Thursday", " Friday", " Saturday", " Tuesday", " is"),
    *(" Paris", " and", " the", " capital", " of", " Italy", " Rome", " France", ",", ".", "\n", ":", " A"),
)


def tokens_of(text: str) -> list[str]:
    return _WORD.findall(text)


def distribution(before: str) -> dict[str, float]:
    """log P(next token | token before), over a closed vocabulary."""
    last = (tokens_of(before) or [""])[-1]
    weights = {w: 1 + hashlib.sha256(f"{last}|{w}".encode()).digest()[0] / 16 for w in WORDS}
    total = math.fsum(weights.values())
    return {w: math.log(x / total) for w, x in weights.items()}


@dataclass
class Reply:
    """What is about to be sent. A lie changes it."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    raw: bytes | None = None
    cut: int | None = None

    @property
    def choice(self) -> dict[str, Any]:
        return self.body["choices"][0]  # type: ignore[no-any-return]

    @property
    def listed(self) -> dict[str, float]:
        return self.choice["logprobs"]["top_logprobs"][-1]  # type: ignore[no-any-return]


Lie = Callable[[dict[str, Any], Reply], None]


class Liar:
    """Honest until ``lie`` is set. ``requests`` counts what arrived."""

    def __init__(self) -> None:
        self.lie: Lie | None = None
        self.requests = 0
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.port = 0
        self._numbers = itertools.count()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Liar]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"content-length: (\d+)", head, re.I)
                sent = json.loads(await reader.readexactly(int(length[1]))) if length else {}
                self.requests += 1
                self.bodies.append(sent)
                self.headers.append(head)
                reply = self.honest(head.split()[1], sent)
                if self.lie is not None and reply.status == 200:
                    self.lie(sent, reply)
                body = reply.raw if reply.raw is not None else json.dumps(reply.body).encode()
                headers = {**reply.headers, "Content-Length": str(len(body))}
                lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
                writer.write(f"HTTP/1.1 {reply.status} Said\r\n{lines}\r\n".encode() + body[: reply.cut])
                await writer.drain()
                if reply.cut is not None:
                    break
        writer.close()

    def honest(self, path: str, sent: dict[str, Any]) -> Reply:
        """The truthful reply to one request."""
        if path != "/v1/completions" or not isinstance(sent.get("prompt"), str):
            return Reply({"error": {"message": "no such route", "code": "not_found"}}, 404)
        if sent["model"] != MODEL:
            return Reply({"error": {"message": "no such model", "code": "model_not_found"}}, 404)
        prompt = sent["prompt"]
        k = min(int(sent.get("logprobs", 0)), 20)
        nexts = sorted(distribution(prompt).items(), key=lambda item: -item[1])
        answer = nexts[0][0]
        tokens, values, tops, offsets = [answer], [nexts[0][1]], [dict(nexts[:k])], [len(prompt)]
        if sent.get("echo"):
            own = tokens_of(prompt)
            starts = [0, *itertools.accumulate(map(len, own))][: len(own)]
            before = ["".join(own[:i]) for i in range(len(own))]
            tokens, offsets = [*own, *tokens], [*starts, *offsets]
            known = [distribution(b).get(t, -15.0) for b, t in zip(before, own, strict=True)]
            values = [None, *known[1:], *values]  # type: ignore[list-item]
            tops = [None, *[{} for _ in own[1:]], *tops]  # type: ignore[list-item]
        choice = {
            "index": 0,
            "text": (prompt if sent.get("echo") else "") + answer,
            "finish_reason": "length",
            "logprobs": {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets},
        }
        count = len(tokens_of(prompt))
        usage = {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
        number = f"cmpl-{next(self._numbers)}"
        return Reply({"id": number, "model": MODEL, "choices": [choice], "usage": usage})

"""The HTTP side of the tests' own servers: raw asyncio on loopback, so that any bytes can be said."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from backends.openai import OpenAIBackend


@dataclass
class Reply:
    """What is about to be sent. A lie changes it. ``packet``: the whole reply, status line and headers included."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    raw: bytes | None = None
    cut: int | None = None
    packet: bytes | None = None

    @property
    def choice(self) -> dict[str, Any]:
        return self.body["choices"][0]  # type: ignore[no-any-return]


class RawServer:
    """Answers each request by `reply`. ``requests`` counts what arrived, ``bodies`` keeps it; a form as its text.

    ``served`` is its model's name, ``pause`` how many seconds an answer takes, ``under_way`` how many requests wait.
    """

    served = "m"

    def __init__(self) -> None:
        self.requests = self.under_way = 0
        self.pause = 0.0
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        raise NotImplementedError

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.close()

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Serve in a thread of its own, for what has an event loop of its own."""
        begun, ended = threading.Event(), threading.Event()

        async def serve() -> None:
            async with self.running():
                begun.set()
                await asyncio.to_thread(ended.wait)

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        assert begun.wait(100)
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    async def answer(self, path: str, sent: dict[str, Any]) -> Reply:
        """What is said to one request, after the pause."""
        self.requests += 1
        self.bodies.append(sent)
        self.under_way += 1
        try:
            if self.pause:
                await asyncio.sleep(self.pause)
            return self.reply(path, sent)
        finally:
            self.under_way -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"content-length: (\d+)", head, re.I)
                body = await reader.readexactly(int(length[1])) if length else b""
                is_form = "content-type: multipart/" in head.lower()
                sent = {"form": body.decode()} if is_form else json.loads(body or b"{}")
                self.headers.append(head)
                reply = await self.answer(head.split()[1], sent)
                if reply.packet is not None:
                    writer.write(reply.packet)
                    await writer.drain()
                    continue
                said = reply.raw if reply.raw is not None else json.dumps(reply.body).encode()
                headers = {**reply.headers, "Content-Length": str(len(said))}
                lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
                writer.write(f"HTTP/1.1 {reply.status} Said\r\n{lines}\r\n".encode() + said[: reply.cut])
                await writer.drain()
                if reply.cut is not None:
                    break
        writer.close()


def backend_of(server: Any, folder: Path, **options: Any) -> OpenAIBackend:
    """A backend of this server without a key, whose look is kept in ``folder``."""
    known = {"base_url": server.base_url, "model": server.served, "api_key_env": None, "probe_folder": folder}
    return OpenAIBackend(**{**known, **options})

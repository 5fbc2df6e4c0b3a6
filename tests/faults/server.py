"""A server with planted faults, on raw asyncio, with a record that is on the disk before it answers.

    python -m tests.faults.server RECORD      prints its port, serves until stdin closes

Each line of the record is ``prompt TAB what``. ``answered`` means that the whole right
answer was sent in time: what a provider would bill and a client could have kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.faults import REFUSED_FOR_GOOD, Fate

HANG_SECONDS = 30.0
LATE_SECONDS = 1.0
DELAY_SECONDS = 0.002


class FaultServer:
    """Serves ``/v1/completions`` and ``/v1/chat/completions``."""

    def __init__(self, record: Path) -> None:
        self._record = os.open(record, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._attempts: Counter[str] = Counter()
        self._last: dict[str, dict[str, object]] = {}
        self._count = 0

    def write_down(self, prompt: str, what: str) -> None:
        """Write a line, and have it on the disk."""
        os.write(self._record, f"{prompt}\t{what}\n".encode())
        os.fsync(self._record)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request after the other."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                sizes = [int(h[15:]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length:")]
                body = json.loads(await reader.readexactly(sizes[0])) if sizes else {}
                if b"/completions" not in head.split(b"\r\n")[0]:
                    await self._send(writer, _ERROR, "404 Not Found")
                    continue
                if not await self._answer(writer, body):
                    break
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, body: dict[str, object]) -> bool:
        """Answer one request; False: the connection is done for."""
        prompt = body.get("prompt") or body["messages"][-1]["content"]  # type: ignore[index]
        if not isinstance(prompt, str):  # several prompts or token ids, which the client tries in its probe
            await self._send(writer, _ERROR, "400 Bad Request")
            return True
        if "|" not in prompt:  # a question of the client's own probe
            await self._send(writer, self._right(prompt, "Yes.", body))
            return True
        attempt = self._attempts[prompt]
        self._attempts[prompt] += 1
        fate = Fate.of(prompt)
        await asyncio.sleep(DELAY_SECONDS)
        if fate.fault in REFUSED_FOR_GOOD:
            self.write_down(prompt, fate.fault)
            status, code = REFUSED_FOR_GOOD[fate.fault]
            await self._send(writer, {"error": {"message": "planted", "type": code, "code": code}}, status)
            return True
        if not fate.strikes(attempt):
            self.write_down(prompt, "answered")
            answer = self._right(prompt, fate.truth, body)
            self._last[prompt.rpartition("|")[0]] = answer  # before it is sent: a copy may overtake its original
            await self._send(writer, answer)
            return True
        return await self._fault(writer, fate, attempt, body)

    async def _fault(self, writer: asyncio.StreamWriter, fate: Fate, attempt: int, body: dict[str, object]) -> bool:
        prompt, fault = fate.prompt, fate.fault
        right = self._right(prompt, fate.truth, body)
        self.write_down(prompt, "answered" if fault == "answered-twice" else fault)
        if fault == "hang":
            await asyncio.sleep(HANG_SECONDS)
            return False
        if fault == "late-answer":
            await asyncio.sleep(LATE_SECONDS)
            await self._send(writer, right)
            return True
        if fault in ("reset", "truncated"):
            data = _packet(right)
            writer.write(data[: len(data) * 2 // 3])
            await writer.drain()
            if fault == "reset":
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if fault == "error-body-200":
            await self._send(writer, {"error": {"message": "something broke", "type": "server_error"}})
        elif fault == "empty-choices":
            await self._send(writer, {**right, "choices": []})
        elif fault.startswith("429"):
            wait = fault.removeprefix("429").removeprefix("-retry-after-")
            await self._send(writer, _ERROR, "429 Too Many Requests", [f"Retry-After: {wait}"] if wait else [])
        elif fault in ("flapping-5xx", "permanent-5xx"):
            await self._send(writer, _ERROR, ("500 Oops", "502 Oops", "503 Oops")[(fate.index + attempt) % 3])
        elif fault == "broken-utf8":
            await self._send(writer, json.dumps(right).encode().replace(fate.truth.encode(), b"\xff\xfe\xc0"))
        elif fault == "other-model":
            await self._send(writer, {**right, "model": "another-model"})
        elif fault == "answered-twice":
            # A second copy follows unasked, and lies in wait for the connection's next request.
            await self._send(writer, right)
            await asyncio.sleep(0.001)
            with contextlib.suppress(ConnectionError):
                await self._send(writer, right)
        elif fault == "answers-swapped":
            # The answer that this client got to another question, with its number: a broken proxy's.
            await self._send(writer, self._last.get(prompt.rpartition("|")[0], right))
        else:
            raise AssertionError(f"no such fault: {fault}")
        return True

    def _right(self, prompt: str, text: str, body: dict[str, object]) -> dict[str, object]:
        self._count += 1
        said = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        tokens = len(prompt.split())
        return {
            "id": f"answer-{self._count}",
            "object": "chat.completion" if "messages" in body else "text_completion",
            "created": 1_700_000_000,
            "model": body.get("model", "lab"),
            "choices": [{"index": 0, "finish_reason": "stop", **said}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 4, "total_tokens": tokens + 4},
        }

    async def _send(
        self, writer: asyncio.StreamWriter, answer: object, status: str = "200 OK", extra: Sequence[str] = ()
    ) -> None:
        writer.write(_packet(answer, status, extra))
        await writer.drain()


_ERROR = {"error": {"message": "planted", "type": "planted"}}


def _packet(answer: object, status: str = "200 OK", extra: Sequence[str] = ()) -> bytes:
    body = json.dumps(answer).encode() if not isinstance(answer, bytes) else answer
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *extra, "", ""]
    return "\r\n".join(lines).encode() + body


async def _main(record: Path) -> None:
    server = FaultServer(record)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=2**24, backlog=1024)
    print(listening.sockets[0].getsockname()[1], flush=True)
    closed = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), closed.set)
    await closed.wait()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))

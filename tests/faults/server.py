"""A server with planted faults, with a record that is on the disk before it answers.

    python -m tests.faults.server RECORD      prints its port, serves until stdin closes

Each line of the record is ``prompt TAB what``. ``answered`` means that the whole right
answer was sent in time: what a provider would bill and a client could have kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.backends.openai.raw_server import RawServer, Reply
from tests.faults.faults import REFUSED_FOR_GOOD, Fate

HANG_SECONDS = 30.0
LATE_SECONDS = 6.0
DELAY_SECONDS = 0.002
_ERROR = {"error": {"message": "planted", "type": "planted"}}


class FaultServer(RawServer):
    """Serves ``/v1/completions`` and ``/v1/chat/completions``."""

    def __init__(self, record: Path) -> None:
        super().__init__()
        self._record = os.open(record, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._attempts: Counter[str] = Counter()
        self._last: dict[str, dict[str, Any]] = {}
        self._count = 0

    def write_down(self, prompt: str, what: str) -> None:
        """Write a line, and have it on the disk."""
        os.write(self._record, f"{prompt}\t{what}\n".encode())
        os.fsync(self._record)

    async def answer(self, path: str, sent: dict[str, Any]) -> Reply:
        if not path.endswith("/completions"):
            return Reply(_ERROR, 404)
        prompt = sent.get("prompt") or sent["messages"][-1]["content"]
        if not isinstance(prompt, str):  # token ids, which the client tries in its look
            return Reply(_ERROR, 400)
        if "|" not in prompt:  # a question of the client's own look
            return Reply(self._right(prompt, "Yes.", sent))
        attempt = self._attempts[prompt]
        self._attempts[prompt] += 1
        fate = Fate.of(prompt)
        await asyncio.sleep(DELAY_SECONDS)
        if fate.fault in REFUSED_FOR_GOOD:
            self.write_down(prompt, fate.fault)
            status, code = REFUSED_FOR_GOOD[fate.fault]
            return Reply({"error": {"message": "planted", "type": code, "code": code}}, status)
        right = self._right(prompt, fate.truth, sent)
        if fate.strikes(attempt):
            return await self._fault(fate, attempt, right)
        self.write_down(prompt, "answered")
        self._last[prompt.rpartition("|")[0]] = right  # before it is sent: a copy may overtake its original
        return Reply(right)

    async def _fault(self, fate: Fate, attempt: int, right: dict[str, Any]) -> Reply:
        fault, body = fate.fault, json.dumps(right).encode()
        self.write_down(fate.prompt, "answered" if fault == "answered-twice" else fault)
        if fault.startswith("429"):
            wait = fault.removeprefix("429").removeprefix("-retry-after-")
            return Reply(_ERROR, 429, {"Retry-After": wait} if wait else {})
        match fault:
            case "hang":
                await asyncio.sleep(HANG_SECONDS)
                return Reply(right, cut=0)
            case "late-answer":
                await asyncio.sleep(LATE_SECONDS)
                return Reply(right)
            case "truncated":
                return Reply(right, cut=len(body) * 2 // 3)
            case "error-body-200":
                return Reply({"error": {"message": "something broke", "type": "server_error"}})
            case "empty-choices":
                return Reply({**right, "choices": []})
            case "flapping-5xx" | "permanent-5xx":
                return Reply(_ERROR, (500, 502, 503)[(fate.index + attempt) % 3])
            case "broken-utf8":
                return Reply(None, raw=body.replace(fate.truth.encode(), b"\xff\xfe\xc0"))
            case "other-model":
                return Reply({**right, "model": "another-model"})
            case "answered-twice":  # the second copy lies in wait for the connection's next request
                return Reply(
                    None, packet=2 * (f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                )
            case "answers-swapped":  # what this client got to another question, with its number: a broken proxy's
                return Reply(self._last.get(fate.prompt.rpartition("|")[0], right))
        raise AssertionError(f"no such fault: {fault}")

    def _right(self, prompt: str, text: str, sent: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        said = {"message": {"role": "assistant", "content": text}} if "messages" in sent else {"text": text}
        tokens = len(prompt.split())
        return {
            "id": f"answer-{self._count}",
            "created": 1_700_000_000,
            "model": sent.get("model", "lab"),
            "choices": [{"index": 0, "finish_reason": "stop", **said}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 4, "total_tokens": tokens + 4},
        }


async def _main(record: Path) -> None:
    async with FaultServer(record).running() as server:
        print(server.port, flush=True)
        closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), closed.set)
        await closed.wait()
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))

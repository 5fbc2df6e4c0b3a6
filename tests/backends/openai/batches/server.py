"""A server with files and batches, as OpenAI's documents describe them, and with the troubles that its users report.

Documents: https://platform.openai.com/docs/guides/batch and the reference of files and batches. A batch is validated,
runs, and ends ``completed``, ``expired`` (its file then holds the answers that were ready, and lines with the code
``batch_expired`` stand in the file of errors), ``failed`` or ``cancelled``; lines come in any order; the status of a
line that failed is in the file of errors. Users report lines that come twice or not at all, and answers of
``POST /batches`` that are lost while the batch runs.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import DEPRECATED, Answers, Manner, StrictServer


class BatchServer(StrictServer):
    """Chats by batches too.

    Attributes
    ----------
    paid : Counter
        How often each line was answered, by its id; ``paid_directly`` questions that came one by one.
    looks : int
        How often a batch is asked after before it has ended.
    failing, missing, twice : float
        Parts of the lines that fail, have no answer, come twice.
    asked_after : asyncio.Event
        Set once a batch was asked after.
    expires_after : int or None
        Lines of a batch that are answered before it expires.
    lost : int
        How many answers to ``POST /batches`` are lost, the batch started.
    refused : str
        Why each batch is refused when it is validated; empty where none is.
    """

    def __init__(self, answers: Answers, manner: Manner = DEPRECATED) -> None:
        super().__init__(manner, answers)
        self.paid: Counter[str] = Counter()
        self.paid_directly = 0
        self.looks, self.lost, self.refused = 1, 0, ""
        self.failing = self.missing = self.twice = 0.0
        self.asked_after = asyncio.Event()
        self.expires_after: int | None = None
        self.files: dict[str, str] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self._draw = random.Random(1)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        path, _, query = path.removeprefix("/v1/").partition("?")
        match path.split("/"):
            case ["files"]:
                return self._uploaded(sent["form"])
            case ["files", file, "content"]:
                return Reply(None, raw=self.files[file].encode())
            case ["batches"] if sent:
                return self._started(sent)
            case ["batches"]:
                return self._listed(query)
            case ["batches", batch]:
                return self._looked_at(self.batches[batch])
        reply = super().reply(f"/v1/{path}", sent)
        self.paid_directly += reply.status == 200
        return reply

    def _uploaded(self, form: str) -> Reply:
        assert 'name="purpose"\r\n\r\nbatch' in form
        content = form.split('filename="')[1].split("\r\n\r\n", 1)[1].rsplit("\r\n--", 1)[0]
        return Reply({"id": self._file(content.split("\r\n--")[0]), "object": "file", "purpose": "batch"})

    def _file(self, content: str) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return name

    def _started(self, sent: dict[str, Any]) -> Reply:
        assert sent["completion_window"] == "24h"
        batch = {
            "id": f"batch_{len(self.batches)}",
            "object": "batch",
            "status": "validating",
            "left": self.looks,
            **sent,
        }
        self.batches[batch["id"]] = batch
        if self.lost:
            self.lost -= 1
            return Reply(batch, cut=20)
        return Reply(batch)

    def _listed(self, query: str) -> Reply:
        found = list(reversed(self.batches.values()))
        if "after=" in query:
            ids = [batch["id"] for batch in found]
            found = found[ids.index(query.split("after=")[1]) + 1 :]
        return Reply({"object": "list", "data": found[:2], "has_more": len(found) > 2})

    def _looked_at(self, batch: dict[str, Any]) -> Reply:
        self.asked_after.set()
        batch["left"] -= 1
        if batch["left"] < 0 and batch["status"] in ("validating", "in_progress"):
            self._run(batch)
        elif batch["status"] == "validating":
            batch["status"] = "in_progress"
        return Reply(batch)

    def _lines(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]

    def _run(self, batch: dict[str, Any]) -> None:
        if self.refused:
            batch |= {"status": "failed", "errors": {"data": [{"code": "invalid", "message": self.refused}]}}
            return
        lines = self._lines(batch)
        assert len({line["custom_id"] for line in lines}) == len(lines) <= 50_000
        ready = lines if self.expires_after is None else lines[: self.expires_after]
        done, failed = [], []
        for line in ready:
            if self._draw.random() < self.failing:
                failed.append(_line(line, 500, {"error": {"message": "The server had an error"}}))
            elif self._draw.random() >= self.missing:
                reply = super().reply(line["url"], line["body"])
                self.paid[line["custom_id"]] += 1
                done += [_line(line, reply.status, reply.body)] * (2 if self._draw.random() < self.twice else 1)
        for line in lines[len(ready) :]:
            error = {"code": "batch_expired", "message": "This request could not be executed before it expired."}
            failed.append({"custom_id": line["custom_id"], "response": None, "error": error})
        self._draw.shuffle(done)
        batch["status"] = "completed" if len(ready) == len(lines) else "expired"
        for kind, found in (("output_file_id", done), ("error_file_id", failed)):
            if found:
                batch[kind] = self._file("".join(json.dumps(one) + "\n" for one in found))


def _line(line: dict[str, Any], status: int, body: Any) -> dict[str, Any]:
    response = {"status_code": status, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": line["custom_id"], "response": response, "error": None}

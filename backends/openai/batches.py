"""Requests through a provider's batch API (OpenAI's and compatible): at half the price, within a day, never paid twice.

https://platform.openai.com/docs/guides/batch: a file of at most 50,000 lines and 200 MB is uploaded, a batch is
started on it, and polled until it ends; its answers come in two files, in any order. A batch that expires holds the
answers that were ready, and only these are charged. Nothing is ever sent at full price: what a batch leaves
unanswered fails, and goes into another batch if it is asked again. Which lines a batch holds is kept on disk until
the run has stored every answer, so that a killed run resumes with the same batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from backends.errors import BackendError
from backends.files import atomic_write
from backends.http.client import HttpClient, with_retries
from backends.http.errors import UnsentError, from_error_body, from_status, message_of

MOST_LINES = 50_000
#: Seconds without a new request after which a batch is sent; and between polls, at first and at most.
QUIET, FIRST_POLL, LONGEST_POLL = 0.3, 0.5, 60.0
#: Statuses as OpenAI's documents spell them; some gateways use capitals, and one l in "cancelled".
_ENDED = ("completed", "failed", "expired", "cancelled", "canceled")
_UNDER_WAY = ("validating", "in_progress", "finalizing", "cancelling", "canceling", "created", "queued", "pending")
#: Fraction of the usual price, the same at every provider known.
PRICE = 0.5

log = logging.getLogger(__name__)

#: A request by its id, as it is sent.
Line = dict[str, Any]
#: The body of an answer, or why there is none.
Answered = dict[str, Any] | BackendError


class Job(BaseModel):
    """One batch."""

    #: Chosen here, and sent to the provider in the batch's metadata.
    name: str
    #: Of the lines whose answers are not stored yet.
    ids: tuple[str, ...]
    #: The provider's; empty until known.
    batch_id: str = ""


class BatchedClient:
    """Offers `HttpClient.post` over batches of the same server. ``folder`` holds a file for each batch under way."""

    def __init__(self, client: HttpClient, folder: Path) -> None:
        self._client, self._folder = client, folder
        self._waiting: dict[str, dict[str, Line]] = defaultdict(dict)  # by endpoint, lines that no batch holds yet
        self._answers: dict[str, asyncio.Future[Answered]] = {}  # by line: waiting, under way, answered
        self._delivered: set[str] = set()
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._resumed = False

    async def check(self) -> None:
        """Raise `BackendError` if the server has no batch API."""
        try:
            await with_retries(self._client.get, "batches?limit=1")
        except BackendError as error:
            if error.kind != "not_found":
                raise
            raise BackendError("unsupported", "the server has no batch API", hint="Leave batch out") from None

    async def post(self, path: str, payload: dict[str, Any], *, draw: Sequence[Any] = ()) -> dict[str, Any]:
        """The answer to a request; ``draw`` distinguishes draws of the same one. Raises `BackendError`."""
        line = line_id(path, payload, draw)
        self._resume()
        if line in self._delivered:  # its answer could not be used: another batch answers it anew
            self._forget({line})
        if line not in self._answers:
            self._answers[line] = asyncio.get_running_loop().create_future()
            if not self._waiting:
                self._start(self._send_when_quiet())
            self._waiting[path][line] = {"custom_id": line, "method": "POST", "url": f"/v1/{path}", "body": payload}
        answer = await asyncio.shield(self._answers[line])
        if isinstance(answer, BackendError):
            raise answer
        self._delivered.add(line)
        if (failed := from_error_body(answer, {})) is not None:
            raise failed
        return dict(answer)

    def forget_delivered(self) -> None:
        """Remove the answers that were asked for; to be called when all of them are stored.

        What another audit began on the same server, and nobody has asked for since, is left for that audit.
        """
        self._forget(set(self._delivered))

    async def close(self) -> None:
        """Stop polling. The batches continue, and are found again by a later run."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.__init__(self._client, self._folder)  # type: ignore[misc]

    def _forget(self, lines: Collection[str]) -> None:
        self._delivered -= set(lines)
        for line in lines:
            self._answers.pop(line, None)
        for job in list(self._jobs.values()):
            if not self._answers.keys() >= set(job.ids):
                self._keep(job, [line for line in job.ids if line in self._answers])

    def _keep(self, job: Job, ids: Iterable[str]) -> None:
        """Save a job, of whose lines these are left, or delete one of which none is."""
        self._jobs[job.name], job.ids = job, tuple(ids)
        if job.ids:
            atomic_write(self._file(job), job.model_dump_json())
        else:
            self._file(job).unlink(missing_ok=True)
            del self._jobs[job.name]

    def _file(self, job: Job) -> Path:
        return self._folder / f"{job.name}.json"

    def _resume(self) -> None:
        """Continue the jobs that an earlier process, or a failure, interrupted."""
        if self._resumed:
            return
        self._resumed = True
        for file in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError):
                job = Job.model_validate_json(file.read_text("utf-8"))
                if job.name not in self._jobs:
                    self._jobs[job.name] = job
                    for line in job.ids:
                        self._answers.setdefault(line, asyncio.get_running_loop().create_future())
                    self._start(self._work(job, {}))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_when_quiet(self) -> None:
        before, now = -1, 0
        while now != before and now < MOST_LINES:
            await asyncio.sleep(QUIET)
            before, now = now, sum(map(len, self._waiting.values()))
        waiting, self._waiting = self._waiting, defaultdict(dict)
        for lines in waiting.values():
            ids = [*lines]
            for part in (ids[at : at + MOST_LINES] for at in range(0, len(ids), MOST_LINES)):
                job = Job(name=f"bias-audit-{uuid.uuid4().hex}", ids=tuple(part))
                self._start(self._work(job, {line: lines[line] for line in part}))

    async def _work(self, job: Job, lines: dict[str, Line]) -> None:
        """One job, from its upload to its answers. ``lines`` is empty where an earlier process has sent them."""
        try:
            answered, failed = await self._answered(job, lines)
        except BackendError as error:
            # Whether anything was charged is unknown: the job stays, and resumes when one of its lines is asked again.
            self._jobs.pop(job.name, None)
            self._resumed = False
            if error.kind == "not_found" and job.batch_id:
                hint = f"Run again later; or, to ask and pay for them again, remove {self._file(job)}"
                error = BackendError("not_found", f"batch {job.batch_id} is not found: {error.message}", hint=hint)
            self._deliver(dict.fromkeys(job.ids, error))
        else:
            self._keep(job, answered)
            self._deliver({**answered, **failed})

    def _deliver(self, found: Mapping[str, Answered]) -> None:
        for line, answer in found.items():
            future = self._answers[line]
            if isinstance(answer, BackendError):
                del self._answers[line]  # whoever asks again goes into another batch
            if not future.done():
                future.set_result(answer)

    async def _answered(self, job: Job, lines: dict[str, Line]) -> tuple[dict[str, Answered], dict[str, Answered]]:
        """The answers to a job, by line, and why the other lines have none."""
        if not job.batch_id:
            job.batch_id = await self._started(job, lines)
            self._keep(job, job.ids)
            log.info("batch %s: %d requests", job.batch_id, len(job.ids))
        state = await self._ended(job)
        answered, failed = dict[str, Answered](), dict[str, Answered]()
        for kind in ("output_file_id", "error_file_id"):
            if isinstance(file := state.get(kind), str) and file:
                content = await with_retries(self._client.download, f"files/{file}/content")
                for line, answer in result_lines(content):
                    # A line that comes twice is one answer: the first that succeeded, which is the one that is paid.
                    (failed if isinstance(answer, BackendError) else answered).setdefault(line, answer)
        rest = _why_unanswered(state)
        left = {line: failed.get(line, rest) for line in job.ids if line not in answered}
        return {line: answered[line] for line in job.ids if line in answered}, left

    async def _started(self, job: Job, lines: dict[str, Line]) -> str:
        """The id of the job's batch, which is started, unless an earlier process has done so."""
        if not lines:
            if found := await self._found(job):
                return found
            self._file(job).unlink(missing_ok=True)
            raise UnsentError("connection", "the batch was never started", retryable=True)
        content = await asyncio.to_thread("\n".join, map(json.dumps, lines.values()))
        name, fields = f"{job.name}.jsonl", {"purpose": "batch"}
        file = _identity(await with_retries(self._client.upload, "files", name, content.encode(), fields))
        self._keep(job, job.ids)  # from now on it may be started
        body = {"input_file_id": file, "endpoint": next(iter(lines.values()))["url"], "completion_window": "24h"}
        try:
            return _identity(await self._client.post("batches", {**body, "metadata": {"job": job.name}}))
        except BackendError as error:
            # Perhaps the answer was lost, not the request.
            if error.retryable and (found := await self._found(job)):
                return found
            raise

    async def _found(self, job: Job) -> str:
        """The id of the batch with this job's name; empty if there is none."""
        after = ""
        while True:
            page = await with_retries(self._client.get, f"batches?limit=100{after}")
            listed = [batch for batch in page.get("data") or () if isinstance(batch, Mapping)]
            if found := [batch for batch in listed if (batch.get("metadata") or {}).get("job") == job.name]:
                return _identity(found[0])
            if not page.get("has_more") or not listed:
                return ""
            after = f"&after={_identity(listed[-1])}"

    async def _ended(self, job: Job) -> dict[str, Any]:
        """Poll until the batch has ended, and return its final state. A failed poll is repeated."""
        pause = FIRST_POLL
        while True:
            try:
                state = await self._client.get(f"batches/{job.batch_id}")
                if (status := str(state.get("status")).lower()) in _ENDED:
                    return {**state, "status": status}
                if status not in _UNDER_WAY:
                    log.warning("batch %s has the status %r, which is not known: waiting on", job.batch_id, status)
            except BackendError as error:
                if not error.retryable:
                    raise
                log.warning("batch %s: %s", job.batch_id, error)
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL)


def _why_unanswered(state: Mapping[str, Any]) -> BackendError:
    """The error of a line that a batch left unanswered."""
    if state["status"] == "failed":
        errors = state.get("errors")
        listed = errors.get("data") if isinstance(errors, Mapping) else None
        reason = message_of({"error": listed[0]}) if isinstance(listed, Sequence) and listed else "no reason given"
        # Accounts have a limit on the tokens of all batches under way (openai/openai-python #2084).
        hint = "Where it is too large, ask in parts (--shard I/N), or leave batch out"
        return BackendError("bad_request", f"the batch was refused: {reason}", hint=hint)
    if state["status"] in ("cancelled", "canceled"):
        hint = "Run again to ask the rest in another batch; without batch=True they are asked at full price"
        return BackendError("bad_request", "the batch was cancelled at the provider", hint=hint)
    return BackendError("server", "the batch left this request unanswered", retryable=True)


def line_id(path: str, payload: Mapping[str, Any], draw: Sequence[Any]) -> str:
    """What identifies one line: the request, and which draw of it."""
    text = json.dumps([path, payload, list(draw)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def result_lines(content: str) -> Iterator[tuple[str, Answered]]:
    """Id and answer of each readable line of a result or error file; lines that were never processed are not."""
    for text in content.split("\n"):
        try:
            line = json.loads(text)
        except ValueError:
            continue  # a truncated line: it has no answer
        if not isinstance(line, Mapping) or not isinstance(line.get("custom_id"), str):
            continue
        response, error = line.get("response"), line.get("error")
        if isinstance(response, Mapping):
            status, found = str(response.get("status_code")), response.get("body")
            if status == "200" and isinstance(found, dict):
                yield line["custom_id"], found
            else:
                code = int(status) if status.isdigit() and status != "200" else 500
                message = message_of(found) if isinstance(found, Mapping) else ""
                yield line["custom_id"], from_status(code, {}, message)
        elif error and str(error.get("code") if isinstance(error, Mapping) else "").lower() != "batch_expired":
            yield line["custom_id"], from_status(500, {}, message_of({"error": error}))


def _identity(found: Mapping[str, Any]) -> str:
    if not isinstance(found.get("id"), str) or not found["id"]:
        raise BackendError("malformed", "a file or batch without an id", retryable=True)
    return str(found["id"])

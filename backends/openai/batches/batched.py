"""A client that sends requests in batches (OpenAI's files and batches, and compatible APIs).

https://platform.openai.com/docs/guides/batch: a file of at most 50,000 lines and 200 MB is uploaded, a batch is
started on it, and polled until it ends; its answers come in two files, in any order. A batch that expires holds the
answers that were ready, and only these are charged. Nothing is ever sent at full price: what a batch leaves
unanswered fails, and goes into another batch if it is asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backends.errors import BackendError
from backends.http.client import Accept, HttpClient
from backends.http.errors import from_error_body, from_status, message_of
from backends.http.retries import with_retries
from backends.http.usage import Usage
from backends.openai.batches.journal import Job, Journal
from backends.openai.protocol.responses_api import chat_response

MOST_LINES, MOST_BYTES = 50_000, 190 * 2**20
#: Maximum bytes of the answers to one batch.
_LONGEST_RESULTS = 2**31
#: Seconds without a new request after which a batch is sent; and between polls, at first and at most.
QUIET, FIRST_POLL, LONGEST_POLL = 0.3, 0.5, 60.0
#: Seconds between looks for a batch that may have begun.
LATE_LISTS = (1.0, 4.0, 10.0)
#: Statuses as OpenAI's documents spell them; some gateways use capitals, and one l in "cancelled".
_ENDED = ("completed", "failed", "expired", "cancelled", "canceled")
_UNDER_WAY = ("validating", "in_progress", "finalizing", "cancelling", "canceling", "created", "queued", "pending")
#: What a provider says of a batch that is too large beside those under way (openai/openai-python #2084), and below how
#: many lines it is not split.
_FULL, _FEWEST_LINES = re.compile(r"token_limit_exceeded|enqueued.{0,20}limit", re.I), 50
#: Fraction of the usual price, the same at every provider known.
PRICE = 0.5

log = logging.getLogger(__name__)

Line = dict[str, Any]


class _BatchFullError(Exception):
    """The provider has no room for a batch of this size now; nothing was charged."""


class BatchedClient:
    """Offers `HttpClient.post` over batches.

    Parameters
    ----------
    client : HttpClient
        Of the same server.
    journal : Journal
    usage : Usage
        Counts what was answered and is of no use; the rest is counted where it is asked for.
    """

    def __init__(self, client: HttpClient, journal: Journal, usage: Usage) -> None:
        self._client, self._journal, self._usage = client, journal, usage
        self._waiting: dict[str, tuple[str, dict[str, Any]]] = {}  # lines that no batch holds yet
        self._futures: dict[str, asyncio.Future[Line]] = {}  # of lines that were asked for and are not answered
        self._sent: set[str] = set()  # lines of batches under way
        self._results: dict[str, Line] = {}
        self._delivered: set[str] = set()
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._resumed = self._is_full = False
        self._turns = asyncio.Lock()

    async def check(self) -> None:
        """Raise `BackendError` if the server has no batch API."""
        try:
            await with_retries(self._client.get, "batches?limit=1")
        except BackendError as error:
            if error.kind != "not_found":
                raise
            raise BackendError("unsupported", "the server has no batch API", hint="Leave batch out") from None

    async def post(
        self, path: str, payload: dict[str, Any], *, accept: Accept = lambda _: None, draw: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """The answer to a request; ``draw`` distinguishes draws of the same one. Raises `BackendError`."""
        line = line_id(path, payload, draw)
        if line in self._delivered:  # its answer could not be used: another batch answers it anew
            await self._forget({line})
        answer = await self._answer(line, path, payload)
        self._delivered.add(line)
        body = _read(answer)
        accept(body)
        return body

    async def forget_delivered(self) -> None:
        """Remove the answers that were asked for; to be called when all of them are stored.

        What another audit began on the same server, and nobody has asked for since, is left for that audit.
        """
        await self._forget(set(self._delivered))

    async def close(self) -> None:
        """Stop polling. The batches continue, and are found again by a later run."""
        tasks = [*self._tasks, *([self._sender] if self._sender else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.__init__(self._client, self._journal, self._usage)  # type: ignore[misc]

    async def _forget(self, lines: set[str]) -> None:
        self._delivered -= lines
        for line in lines:
            self._results.pop(line, None)
        for job in list(self._jobs.values()):
            results = self._journal.results(job)
            if results is None or not lines.intersection(results):
                continue
            left = {line: answer for line, answer in results.items() if line not in lines}
            if left:
                await asyncio.to_thread(self._journal.keep_results, job, left)
            else:
                await asyncio.to_thread(self._journal.remove, job)
                del self._jobs[job.name]

    async def _answer(self, line: str, path: str, payload: dict[str, Any]) -> Line:
        """The answer of a line: one that is here, or that of a batch."""
        self._resume()
        if line in self._results:
            return self._results[line]
        if line not in self._futures:
            self._futures[line] = asyncio.get_running_loop().create_future()
            if line not in self._sent:
                self._waiting[line] = path, payload
                if self._sender is None or self._sender.done():
                    self._sender = asyncio.create_task(self._send_when_quiet())
        return await self._futures[line]

    def _resume(self) -> None:
        """Continue the jobs that an earlier process began."""
        if self._resumed:
            return
        self._resumed = True
        for job in self._journal.jobs():
            if job.name not in self._jobs:
                if (results := self._journal.results(job)) is None:
                    self._start(job)
                else:
                    self._jobs[job.name] = job
                    self._results.update(results)

    async def _send_when_quiet(self) -> None:
        before = -1
        while len(self._waiting) != before and len(self._waiting) < MOST_LINES:
            before = len(self._waiting)
            await asyncio.sleep(QUIET)
        waiting, self._waiting = self._waiting, {}
        for path, lines in split_into_batches(waiting):
            self._start(await asyncio.to_thread(self._journal.begin, path, lines))

    def _start(self, job: Job) -> None:
        self._jobs[job.name] = job
        self._sent.update(job.ids)
        task = asyncio.create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, job: Job) -> None:
        """One job, from its upload to its answers."""
        try:
            async with self._turns if self._is_full else contextlib.nullcontext():
                answered, failed = await self._answered(job)
        except _BatchFullError:
            await self._halve(job)
            return
        except BackendError as error:
            # Whether anything was charged is unknown: the job stays, and resumes when one of its lines is asked again.
            self._jobs.pop(job.name, None)
            self._resumed = False
            gone = error.kind == "not_found" and job.batch_id
            self._deliver({}, dict.fromkeys(job.ids, self._gone(job, error) if gone else error))
            return
        if answered:
            await asyncio.to_thread(self._journal.keep_results, job, answered)
        else:
            await asyncio.to_thread(self._journal.remove, job)
            self._jobs.pop(job.name, None)
        self._deliver(answered, failed)

    def _deliver(self, answered: Mapping[str, Line], failed: Mapping[str, BackendError]) -> None:
        self._sent.difference_update(answered, failed)
        self._results.update(answered)
        for line in [*answered, *failed]:
            future = self._futures.pop(line, None)
            if future is None or future.done():
                continue
            if line in answered:
                future.set_result(answered[line])
            else:
                future.set_exception(failed[line])

    async def _halve(self, job: Job) -> None:
        """Start the two halves of a job that the provider has no room for, one after the other."""
        self._is_full = True
        lines = {line["custom_id"]: line for line in map(json.loads, self._journal.sent(job).splitlines())}
        log.info("batch %s is too large for the provider: %d requests in two", job.batch_id, len(lines))
        self._jobs.pop(job.name, None)
        # Removed first: after a kill in between its lines are asked anew, where two jobs would pay for them twice.
        await asyncio.to_thread(self._journal.remove, job)
        ids, middle = list(lines), len(lines) // 2
        for half in (ids[:middle], ids[middle:]):
            self._start(await asyncio.to_thread(self._journal.begin, job.endpoint, {one: lines[one] for one in half}))

    def _gone(self, job: Job, error: BackendError) -> BackendError:
        """The error where a batch or its file is not found: perhaps for good, and perhaps its answers are only late."""
        problem = f"the provider does not find batch {job.batch_id} or its answers: {error.message}"
        hint = f"Run again later; or, to ask and pay for them again, remove {self._journal.folder}/{job.name}.*"
        return BackendError("not_found", problem, hint=hint)

    async def _answered(self, job: Job) -> tuple[dict[str, Line], dict[str, BackendError]]:
        """The answers to a job, by line, and why the other lines have none."""
        if not job.batch_id:
            if not job.file_id:
                sent = await asyncio.to_thread(self._journal.sent, job)
                uploaded = await with_retries(
                    self._client.upload, "files", f"{job.name}.jsonl", sent, {"purpose": "batch"}
                )
                job.file_id = _identity(uploaded)
                self._journal.write(job)
            job.batch_id = await self._started(job)
            self._journal.write(job)
            log.info("batch %s: %d requests", job.batch_id, len(job.ids))
        state = await self._ended(job)
        answered: dict[str, Line] = {}
        failed: dict[str, BackendError] = {}
        for kind in ("output_file_id", "error_file_id"):
            if isinstance(file := state.get(kind), str) and file:
                body = await with_retries(self._client.download, f"files/{file}/content", _LONGEST_RESULTS)
                for line, answer in result_lines(body):
                    # A line that comes twice is one answer: the first that succeeded, which is the one that is paid.
                    if _is_answer(answer):
                        answered.setdefault(line, answer)
                    else:
                        failed[line] = _failure(answer)
        self._count_unasked(job, answered)
        rest = _why_unanswered(state, len(job.ids)) if not answered.keys() >= set(job.ids) else None
        asked = {line: answered[line] for line in job.ids if line in answered}
        return asked, {line: failed.get(line) or rest for line in job.ids if line not in asked}  # type: ignore[misc]

    def _count_unasked(self, job: Job, answered: Mapping[str, Line]) -> None:
        """Count the cost of answers under ids that were not sent: whose they are is unknown, so all are asked again."""
        unasked = [answered[line] for line in sorted(answered.keys() - set(job.ids))]
        if unasked:
            log.warning("batch %s: %d lines under ids that were not sent", job.batch_id, len(unasked))
        for one in unasked:
            with contextlib.suppress(BackendError):  # it cannot be read
                read = chat_response(one["body"]) if job.endpoint == "responses" else one["body"]
                self._usage.settle(0.0, read, charged=False, factor=PRICE)

    async def _started(self, job: Job) -> str:
        """The id of the job's batch, which is started unless the provider has one of its name."""
        if job.asked and (found := await self._found_in_time(job)):
            return found
        job.asked = True
        self._journal.write(job)
        body = {
            "input_file_id": job.file_id,
            "endpoint": f"/v1/{job.endpoint}",
            "completion_window": "24h",
            "metadata": {"job": job.name},
        }
        try:
            return _identity(await self._client.post("batches", body))
        except BackendError as error:
            if not error.retryable:
                raise
            # Perhaps the answer was lost, not the request; one that came too soon has started nothing.
            if error.kind != "rate_limited" and (found := await self._found_in_time(job)):
                return found
            return _identity(await self._client.post("batches", body))

    async def _found_in_time(self, job: Job) -> str:
        """As `_found`, looked for a few times: what has just begun may not be listed at once, and is paid for."""
        for pause in (0.0, *LATE_LISTS):
            await asyncio.sleep(pause)
            if found := await self._found(job):
                return found
        return ""

    async def _found(self, job: Job) -> str:
        """The id of the batch with this job's name; empty if there is none."""
        after = ""
        while True:
            page = await with_retries(self._client.get, f"batches?limit=100{after}")
            listed = [batch for batch in page.get("data") or () if isinstance(batch, Mapping)]
            for batch in listed:
                if (batch.get("metadata") or {}).get("job") == job.name:
                    return _identity(batch)
            if not page.get("has_more") or not listed:
                return ""
            after = f"&after={_identity(listed[-1])}"

    async def _ended(self, job: Job) -> dict[str, Any]:
        """Poll until the batch has ended, and return its final state. A failed poll is repeated."""
        pause, told = FIRST_POLL, ""
        while True:
            try:
                state = await self._client.get(f"batches/{job.batch_id}")
                status = _status(state)
                if status in _ENDED:
                    return state
                if status not in (*_UNDER_WAY, told):
                    log.warning("batch %s has the status %r, which is not known: waiting on", job.batch_id, status)
                    told = status
            except BackendError as error:
                if not error.retryable:
                    raise
                log.warning("batch %s: %s", job.batch_id, error)
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL)


def _status(state: Mapping[str, Any]) -> str:
    return str(state.get("status")).lower()


def _is_answer(answer: Line) -> bool:
    return str(answer["status"]) == "200" and isinstance(answer["body"], dict)


def _read(answer: Line) -> dict[str, Any]:
    body: dict[str, Any] = answer["body"]
    if (failed := from_error_body(body, {})) is not None:
        raise failed
    return body


def _failure(answer: Line) -> BackendError:
    """The error of a line that has no answer."""
    status, body = str(answer["status"]), answer["body"]
    code = int(status) if status.isdigit() and status != "200" else 500
    return from_status(code, {}, message_of(body) if isinstance(body, Mapping) else "")


def _why_unanswered(state: Mapping[str, Any], lines: int) -> BackendError:
    """The error of a line that a batch left unanswered. Raises `_BatchFullError` where it was too large."""
    if _status(state) == "failed":
        reason = _reason(state)
        if _FULL.search(reason) and lines >= 2 * _FEWEST_LINES:
            raise _BatchFullError
        hint = "Split the audit, or leave batch out"
        return BackendError("bad_request", f"the batch was refused: {reason}", hint=hint)
    if _status(state) in ("cancelled", "canceled"):
        hint = "Run again to ask the rest in another batch; without batch=True they are asked at full price"
        return BackendError("bad_request", "the batch was cancelled at the provider", hint=hint)
    return BackendError("server", "the batch left this request unanswered", retryable=True)


def line_id(path: str, payload: Mapping[str, Any], draw: Sequence[Any]) -> str:
    """What identifies one line: the request, and which draw of it."""
    text = json.dumps([path, payload, list(draw)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def split_into_batches(
    waiting: Mapping[str, tuple[str, dict[str, Any]]],
) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Split requests into batches within the provider's limits, each for one endpoint: its path, and lines by id."""
    by_path: dict[str, dict[str, dict[str, Any]]] = {}
    sizes: dict[str, int] = {}
    for line, (path, payload) in waiting.items():
        whole = {"custom_id": line, "method": "POST", "url": f"/v1/{path}", "body": payload}
        size = len(json.dumps(whole)) + 1
        lines = by_path.setdefault(path, {})
        if lines and (len(lines) == MOST_LINES or sizes[path] + size > MOST_BYTES):
            yield path, lines
            sizes[path] = 0
            by_path[path] = lines = {}
        lines[line] = whole
        sizes[path] = sizes.get(path, 0) + size
    yield from ((path, lines) for path, lines in by_path.items() if lines)


def result_lines(body: bytes) -> Iterator[tuple[str, Line]]:
    """Id, status and body of each readable line of a result or error file; lines that were never processed are not."""
    for text in body.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # a truncated line: it has no answer
        if not isinstance(line, Mapping) or not isinstance(line.get("custom_id"), str):
            continue
        response, error = line.get("response"), line.get("error")
        if isinstance(response, Mapping):
            yield line["custom_id"], {"status": response.get("status_code"), "body": response.get("body")}
        elif error and str(error.get("code") if isinstance(error, Mapping) else "").lower() != "batch_expired":
            yield line["custom_id"], {"status": 500, "body": {"error": error}}


def _identity(found: Mapping[str, Any]) -> str:
    if not isinstance(found.get("id"), str) or not found["id"]:
        raise BackendError("malformed", "a file or batch without an id", retryable=True)
    return str(found["id"])


def _reason(state: Mapping[str, Any]) -> str:
    errors = state.get("errors")
    listed = errors.get("data") if isinstance(errors, Mapping) else None
    return message_of({"error": listed[0]}) if isinstance(listed, Sequence) and listed else "no reason given"

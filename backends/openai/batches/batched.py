"""A client that sends requests in batches (OpenAI's files and batches, and compatible APIs).

https://platform.openai.com/docs/guides/batch: a file of at most 50,000 lines and 200 MB is uploaded, a batch is
started on it, and polled until it ends; its answers come in two files, in any order. A batch that expires holds the
answers that were ready, and only these are charged.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from backends.errors import BackendError
from backends.http.client import HttpClient
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
_ENDED = ("completed", "failed", "expired", "cancelled")
#: What a provider says of a batch that is too large beside those under way, and below how many lines it is not split.
_FULL, _FEWEST_LINES = re.compile(r"token_limit_exceeded|enqueued.{0,20}limit", re.I), 50
#: Fraction of the usual price, the same at every provider known.
PRICE = 0.5
#: Marks an answer as paid at that price.
BATCHED = "answered in a batch"

log = logging.getLogger(__name__)


class BatchedClient:
    """Offers `HttpClient.post` over batches. What a batch leaves unanswered is requested directly afterwards.

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
        self._waiting: dict[str, tuple[str, dict[str, Any]]] = {}
        self._futures: dict[str, list[asyncio.Future[dict[str, Any]]]] = {}
        self._jobs: dict[str, Job] = {}
        self._results: dict[str, dict[str, Any]] = {}
        self._sent: set[str] = set()
        self._direct: set[str] = set()
        self._delivered: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._resumed = False
        self._turns = asyncio.Lock()
        self._is_full = False

    async def check(self) -> None:
        """Raise `BackendError` if the server has no batch API."""
        try:
            await with_retries(self._client.get, "batches?limit=1")
        except BackendError as error:
            if error.kind != "not_found":
                raise
            raise BackendError("unsupported", "the server has no batch API", hint="Leave batch out") from None

    def price_factor(self, path: str, payload: Mapping[str, Any], draw: Sequence[Any]) -> float:
        """Fraction of the usual price that a request costs."""
        line = line_id(path, payload, draw)
        return 1.0 if line in self._direct or line in self._delivered else PRICE

    async def post(
        self,
        path: str,
        payload: dict[str, Any],
        *,
        accept: Callable[[dict[str, Any]], None] = lambda _: None,
        draw: Sequence[Any] = (),
    ) -> dict[str, Any]:
        """The answer to a request; ``draw`` distinguishes draws of the same one. Raises `BackendError`."""
        line = line_id(path, payload, draw)
        if line in self._delivered:
            self._direct.add(line)  # its answer could not be used, and the batch would give the same one
        if line in self._direct:
            return await self._client.post(path, payload, accept=accept)
        answer = await self._line(line, path, payload)
        self._delivered.add(line)
        try:
            return self._read(answer, accept)
        except BackendError:
            self._direct.add(line)  # asking the batch again would give the same answer
            self._results.pop(line, None)
            raise

    def forget_delivered(self) -> None:
        """Remove the answers that were asked for; to be called when all of them are stored.

        What another audit began on the same server, and nobody has asked for since, is left for that audit.
        """
        for job in list(self._jobs.values()):
            results = self._journal.results(job)
            if results is None:
                continue
            left = tuple(line for line in job.ids if line not in self._delivered)
            for line in set(job.ids).difference(left):
                self._sent.discard(line)
                self._results.pop(line, None)
                self._delivered.discard(line)
            job.ids = left
            if left:
                # First which lines are left: those without an answer would be waited for after a kill in between.
                self._journal.write(job)
                self._journal.keep_results(job, {line: results[line] for line in left})
            else:
                self._journal.remove([job])
                del self._jobs[job.name]

    async def close(self) -> None:
        """Stop polling. The batches continue, and are found again by a later run."""
        tasks = [*self._tasks, *([self._sender] if self._sender else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._sender, self._resumed = set(), None, False
        self._jobs, self._results, self._waiting, self._futures = {}, {}, {}, {}
        self._sent, self._delivered = set(), set()
        self._turns = asyncio.Lock()

    # -- from requests to jobs -------------------------------------------------------------

    async def _line(self, line: str, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        self._resume()
        if line in self._results:
            return self._results[line]
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(line, []).append(future)
        if line not in self._sent and line not in self._waiting:
            self._waiting[line] = path, payload
            if self._sender is None or self._sender.done():
                self._sender = asyncio.create_task(self._send_when_quiet())
        return await future

    def _resume(self) -> None:
        """Continue the jobs that an earlier process began."""
        if self._resumed:
            return
        self._resumed = True
        for job in self._journal.jobs():
            if job.name in self._jobs:
                continue
            results = self._journal.results(job)
            if results is None:
                self._start(job)
            else:
                self._jobs[job.name] = job
                self._sent.update(job.ids)
                self._results.update(results)

    async def _send_when_quiet(self) -> None:
        before = -1
        while len(self._waiting) != before and len(self._waiting) < MOST_LINES:
            before = len(self._waiting)
            await asyncio.sleep(QUIET)
        waiting, self._waiting = self._waiting, {}
        for path, lines in split_into_batches(waiting):
            self._sent.update(lines)  # nothing else may send them while the journal is written
            self._start(await asyncio.to_thread(self._journal.begin, path, lines))

    def _start(self, job: Job) -> None:
        self._jobs[job.name] = job
        self._sent.update(job.ids)
        task = asyncio.create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- a job, step by step ---------------------------------------------------------------

    async def _work(self, job: Job) -> None:
        try:
            async with self._turns if self._is_full else contextlib.nullcontext():
                results = await self._answered(job)
        except BackendError as error:
            # Whether anything was charged is unknown: the job stays, and resumes when one of its lines is asked again.
            self._jobs.pop(job.name, None)
            self._sent.difference_update(job.ids)
            self._resumed = False
            self._fail(job.ids, self._gone(job, error) if error.kind == "not_found" and job.batch_id else error)
            return
        if len(job.ids) >= 2 * _FEWEST_LINES and any(_FULL.search(one.get("failed", "")) for one in results.values()):
            await self._halve(job)
            return
        await asyncio.to_thread(self._journal.keep_results, job, results)
        self._results.update(results)
        for line in job.ids:
            for future in self._futures.pop(line, ()):
                if not future.done():
                    future.set_result(results[line])

    async def _halve(self, job: Job) -> None:
        """Start the two halves of a job that the provider has no room for, one after the other. Nothing was charged."""
        self._is_full = True
        lines = {line["custom_id"]: line for line in map(json.loads, self._journal.sent(job).splitlines())}
        log.info("batch %s is too large for the provider: %d requests in two", job.batch_id, len(lines))
        self._jobs.pop(job.name, None)
        # Removed first: after a kill in between its lines are asked anew, where two jobs would pay for them twice.
        await asyncio.to_thread(self._journal.remove, [job])
        ids, middle = list(lines), len(lines) // 2
        for half in (ids[:middle], ids[middle:]):
            self._start(await asyncio.to_thread(self._journal.begin, job.endpoint, {one: lines[one] for one in half}))

    def _gone(self, job: Job, error: BackendError) -> BackendError:
        """The error where a batch or its file is not found: perhaps for good, and perhaps its answers are only late."""
        problem = f"the provider does not find batch {job.batch_id} or its answers: {error.message}"
        hint = f"Run again later; or, to ask and pay for them again, remove {self._journal.folder}/{job.name}.*"
        return BackendError("not_found", problem, hint=hint)

    def _fail(self, lines: Sequence[str], error: BackendError) -> None:
        for line in lines:
            for future in self._futures.pop(line, ()):
                if not future.done():
                    future.set_exception(error)

    async def _answered(self, job: Job) -> dict[str, dict[str, Any]]:
        """The answers to a job, by line."""
        if not job.batch_id:
            if not job.file_id:
                sent = await asyncio.to_thread(self._journal.sent, job)
                fields = {"purpose": "batch"}
                uploaded = await with_retries(self._client.upload, "files", f"{job.name}.jsonl", sent, fields)
                job.file_id = _identity(uploaded)
                self._journal.write(job)
            job.batch_id = await self._started(job)
            self._journal.write(job)
            log.info("batch %s: %d requests", job.batch_id, len(job.ids))
        state = await self._ended(job)
        results: dict[str, dict[str, Any]] = {}
        for kind in ("output_file_id", "error_file_id"):
            if isinstance(file := state.get(kind), str) and file:
                body = await with_retries(self._client.download, f"files/{file}/content", _LONGEST_RESULTS)
                for line, answer in result_lines(body):
                    # A line that comes twice is one answer: the first that succeeded, which is the one that is paid.
                    if line not in results or (results[line]["status"] != 200 and answer["status"] == 200):
                        results[line] = answer
        self._count_unasked(job, results)
        nothing = {"failed": _reason(state)} if state.get("status") == "failed" and not results else _MISSING
        return {line: results.get(line, nothing) for line in job.ids}

    def _count_unasked(self, job: Job, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Count the cost of answers under ids that were not sent: whose they are is unknown, so all are asked again."""
        unasked = [results[line] for line in sorted(results.keys() - set(job.ids))]
        if unasked:
            log.warning("batch %s: %d lines under ids that were not sent", job.batch_id, len(unasked))
        for one in unasked:
            if one["status"] == 200 and isinstance(one["body"], Mapping):
                with contextlib.suppress(BackendError):  # it failed after all, or cannot be read
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
        found = await self._found(job)
        for pause in LATE_LISTS:
            if found:
                break
            await asyncio.sleep(pause)
            found = await self._found(job)
        return found

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
        pause = FIRST_POLL
        while True:
            try:
                state = await self._client.get(f"batches/{job.batch_id}")
                if state.get("status") in _ENDED:
                    return state
            except BackendError as error:
                if not error.retryable:
                    raise
                log.warning("batch %s: %s", job.batch_id, error)
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL)

    # -- from a line to an answer ----------------------------------------------------------

    def _read(self, answer: Mapping[str, Any], accept: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        if "failed" in answer:
            hint = "Split the audit, or leave batch out"
            raise BackendError("bad_request", f"the batch was refused: {answer['failed']}", hint=hint)
        status, body = answer.get("status"), answer.get("body")
        if not isinstance(body, dict):
            raise BackendError("server", "the batch left this request unanswered: sent directly", retryable=True)
        if status != 200:
            raise from_status(int(status or 500), {}, message_of(body))
        if (failed := from_error_body(body, {})) is not None:
            raise failed
        accept(body)
        return {**body, BATCHED: True}


_MISSING: dict[str, Any] = {"status": None, "body": None}


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


def result_lines(body: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Id, status and body of each readable line of a result or error file."""
    for text in body.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # a truncated line: its request is sent directly
        if not isinstance(line, Mapping) or not isinstance(line.get("custom_id"), str):
            continue
        response, error = line.get("response"), line.get("error")
        if isinstance(response, Mapping):
            yield line["custom_id"], {"status": response.get("status_code"), "body": response.get("body")}
        elif error:
            if isinstance(error, Mapping) and error.get("code") == "batch_expired":
                continue  # never processed, and not charged
            yield line["custom_id"], {"status": 500, "body": {"error": error}}


def _identity(found: Mapping[str, Any]) -> str:
    if not isinstance(found.get("id"), str) or not found["id"]:
        raise BackendError("malformed", "a file or batch without an id", retryable=True)
    return str(found["id"])


def _reason(state: Mapping[str, Any]) -> str:
    errors = state.get("errors")
    listed = errors.get("data") if isinstance(errors, Mapping) else None
    return message_of({"error": listed[0]}) if isinstance(listed, Sequence) and listed else "no reason given"

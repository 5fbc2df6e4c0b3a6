"""Batches: half the price, and each line paid once, whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from backends.base import Answer, GenerateRequest, GenerateResponse, Message, Sampling
from backends.errors import BackendError
from backends.openai import OpenAIBackend, PriceTable
from backends.openai import batches as batched
from backends.openai.batches import result_lines
from tests.backends.openai.batches.server import BatchServer
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import DEPRECATED, MODEL, StrictServer, refusal, varied


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched, "QUIET", 0.02)
    monkeypatch.setattr(batched, "FIRST_POLL", 0.01)


def requests(n: int) -> list[GenerateRequest]:
    return [GenerateRequest((Message("user", f"Question {i}?"),), Sampling(max_tokens=8)) for i in range(n)]


def backend_of(server: StrictServer, folder: Path, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder, batch=True, **options)


async def test_texts_come_by_one_batch_at_half_the_price(tmp_path: Path) -> None:
    async with BatchServer(varied).running() as server:
        backend = backend_of(server, tmp_path, prices=PriceTable(prompt=2.0, completion=8.0))
        await backend.describe()
        before, direct = backend.spent() or 0.0, server.paid_directly
        answers = await backend.run(requests(40))
        cost = (backend.spent() or 0.0) - before
        await backend.close()
    texts = [answer for answer in answers if isinstance(answer, GenerateResponse)]
    assert len(texts) == 40
    assert len(server.batches) == 1
    assert server.paid_directly == direct
    full = sum(text.prompt_tokens * 2.0 + text.completion_tokens * 8.0 for text in texts) / 1e6
    assert cost == pytest.approx(full / 2)
    assert backend.highest_cost(1_000_000, 0) == 1.0


async def ask_until_answered(backend: OpenAIBackend, asked: list[GenerateRequest]) -> list[Answer]:
    """As the scheduler does: what failed for the moment is asked again."""
    found: dict[GenerateRequest, Answer] = {}
    for _ in range(30):
        left = [request for request in asked if not isinstance(found.get(request), GenerateResponse)]
        found.update(zip(left, await backend.run(left), strict=True))
    return [found[request] for request in asked]


async def test_a_refused_batch_is_no_full_price(tmp_path: Path) -> None:
    async with BatchServer(varied).running() as server:
        server.refused = "Enqueued token limit reached"
        backend = backend_of(server, tmp_path)
        await backend.describe()
        direct = server.paid_directly
        (answer, *_) = await backend.run(requests(5))
        await backend.close()
    assert isinstance(answer, BackendError)
    assert "Enqueued token limit" in answer.message
    assert server.paid_directly == direct


class TriesAgain(BatchServer):
    """A line's failed try stands before its answer; ``gone``: what it does not find any more."""

    gone = "nothing"

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return refusal(404, "No such object") if path.endswith(self.gone) else super().reply(path, sent)

    def _run(self, batch: dict[str, Any]) -> None:
        super()._run(batch)
        lines = [json.loads(line) for line in self.files[batch["output_file_id"]].splitlines()]
        failed = {"status_code": 500, "body": {"error": {"message": "try again"}}}
        tries = [{**line, "response": response} for line in lines for response in (failed, line["response"])]
        self.files[batch["output_file_id"]] = "".join(json.dumps(one) + "\n" for one in tries)


@pytest.mark.parametrize("gone", ["batches/batch_0", "/content"])
async def test_a_batch_that_is_gone_is_told_as_such(gone: str, tmp_path: Path) -> None:
    async with TriesAgain(varied).running() as server:
        backend = backend_of(server, tmp_path)
        await backend.describe()
        server.gone = gone
        (answer, *_) = await backend.run(requests(5))
        assert isinstance(answer, BackendError)
        assert "batch batch_0 is not found: HTTP 404: " in answer.message
        assert "base_url" not in answer.hint
        (pattern,) = re.findall(r"remove (.*)$", answer.hint)
        kept = [*Path(pattern).parent.glob(Path(pattern).name)]
        assert kept, "its lines are not paid for twice without a word"
        for file in kept:
            file.unlink()
        server.gone = "nothing"
        answers = await backend.run(requests(5))
        await backend.close()
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    assert len(server.batches) == 2


async def test_a_server_without_batches_is_said_to_have_none(tmp_path: Path) -> None:
    async with StrictServer(DEPRECATED, varied).running() as server:
        backend = backend_of(server, tmp_path)
        with pytest.raises(BackendError, match="no batch API"):
            await backend.describe()
        await backend.close()


async def cut_off(server: BatchServer, folder: Path) -> None:
    """A run of twelve requests that ends while its batch is under way; the batch then finishes."""
    server.looks = 10**6
    first = backend_of(server, folder)
    await first.describe()
    running = asyncio.create_task(first.run(requests(12)))
    async with asyncio.timeout(100):
        await server.asked_after.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await first.close()
    server.looks = 0
    for batch in server.batches.values():
        batch["left"] = 0


async def test_a_run_that_was_cut_off_goes_on_with_its_batch(tmp_path: Path) -> None:
    async with BatchServer(varied).running() as server:
        await cut_off(server, tmp_path)
        second = backend_of(server, tmp_path)
        answers = await second.run(requests(12))
        await second.verify_identity()
        await second.close()
    assert all(isinstance(answer, GenerateResponse) for answer in answers)
    assert len(server.batches) == 1
    assert max(server.paid.values()) == 1
    left = [file.read_text() for file in (tmp_path / "batches").rglob("*.json")]
    assert not left, "nothing is kept once all is stored"


async def test_another_audits_batch_is_left_for_that_audit(tmp_path: Path) -> None:
    async with BatchServer(varied).running() as server:
        await cut_off(server, tmp_path)
        smaller = backend_of(server, tmp_path)
        await smaller.run(requests(14)[10:])  # two of them are in the batch that has begun
        await smaller.verify_identity()
        await smaller.close()
        again = backend_of(server, tmp_path)
        answers = await again.run(requests(12)[:10])
        await again.verify_identity()
        await again.close()
    assert all(isinstance(answer, GenerateResponse) for answer in answers)
    assert max(server.paid.values()) == 1
    assert len(server.batches) == 2
    left = [file.read_text() for file in (tmp_path / "batches").rglob("*.json")]
    assert not left, "nothing is kept once all is stored"


async def test_batches_stay_within_the_providers_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched, "MOST_LINES", 3)
    async with BatchServer(varied).running() as server:
        backend = backend_of(server, tmp_path)
        await backend.describe()
        answers = await backend.run(requests(7))
        await backend.close()
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    assert sorted(len(server._lines(batch)) for batch in server.batches.values()) == [1, 3, 3]


def test_a_line_that_cannot_be_read_is_no_answer() -> None:
    body = '{"custom_id": "a", "response": {"status_code": 200, "body": {}}}\n{"custom_id": "b", "respon\n[1]\n'
    assert list(result_lines(body)) == [("a", {})]


class ShoutingServer(BatchServer):
    """Statuses in capitals, codes as texts, and a status that nobody knows."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        reply = super().reply(path, sent)
        if "/batches/" in path and isinstance(reply.body, dict):
            unknown = reply.body["status"] not in ("completed", "cancelled")
            return Reply({**reply.body, "status": "PONDERING" if unknown else reply.body["status"].upper()})
        return reply

    def _run(self, batch: dict[str, Any]) -> None:
        super()._run(batch)
        file = batch["output_file_id"]
        self.files[file] = self.files[file].replace('"status_code": 200', '"status_code": "200"')


class CancelledServer(BatchServer):
    """Somebody cancels each batch."""

    def _run(self, batch: dict[str, Any]) -> None:
        self.expires_after = 2
        super()._run(batch)
        batch["status"] = "cancelled"


async def test_the_rest_of_a_cancelled_batch_is_not_sent_unasked(tmp_path: Path) -> None:
    async with CancelledServer(varied).running() as server:
        backend = backend_of(server, tmp_path)
        await backend.describe()
        direct = server.paid_directly
        answers = await backend.run(requests(5))
        await backend.close()
    failed = [answer for answer in answers if isinstance(answer, BackendError)]
    assert (len(failed), len(server.batches), server.paid_directly) == (3, 1, direct)
    assert not any(error.retryable for error in failed)
    assert "cancelled at the provider" in failed[0].message


@pytest.mark.parametrize(
    ("kind", "trouble", "asked", "batches"),
    [
        (BatchServer, {"failing": 0.2, "missing": 0.2, "twice": 0.3}, 60, None),
        (BatchServer, {"expires_after": 25}, 40, 2),
        (BatchServer, {"lost": 1}, 10, 1),
        (TriesAgain, {}, 5, 1),
        (ShoutingServer, {}, 5, 1),
    ],
    ids=["lines without an answer", "expired", "start unanswered", "failed tries", "capitals"],
)
async def test_each_line_is_answered_and_paid_for_once(
    kind: type[BatchServer],
    trouble: dict[str, Any],
    asked: int,
    batches: int | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with kind(varied).running() as server:
        backend = backend_of(server, tmp_path)
        await backend.describe()
        vars(server).update(trouble)
        direct = server.paid_directly
        answers = await ask_until_answered(backend, requests(asked))
        await backend.close()
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    assert (len(server.paid), max(server.paid.values()), server.paid_directly) == (asked, 1, direct)
    assert batches is None or len(server.batches) == batches
    assert ("'pondering', which is not known" in caplog.text) is (kind is ShoutingServer)

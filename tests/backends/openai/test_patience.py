"""Passing troubles before an audit: they are waited for, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.errors import LONGEST_ASKED_PAUSE, BackendError, ErrorKind
from backends.openai import OpenAIBackend
from backends.openai.retries import with_retries
from tests.backends.openai.probe.liar import MODEL, IdLiar, Liar
from tests.backends.openai.raw_server import Reply

BUSY = {"Content-Type": "application/json", "Retry-After": "7"}


async def failing(kind: ErrorKind, retry_after: float | None) -> int:
    """How often a question is asked that always fails like this."""
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise BackendError(kind, "not now", retryable=True, retry_after=retry_after)

    with pytest.raises(BackendError, match="not now"):
        await with_retries(ask)
    return asked


async def test_the_pause_that_a_server_asks_for_is_made_unless_it_is_too_long(waits: list[float]) -> None:
    assert await failing("rate_limited", 60) == 4
    assert waits == [60, 60, 60]
    assert await failing("server", LONGEST_ASKED_PAUSE + 1) == 1


@pytest.mark.parametrize(("kind", "asked"), [("malformed", 4), ("connection", 4), ("inconsistent", 1)])
async def test_what_is_asked_again(kind: ErrorKind, asked: int, waits: list[float]) -> None:
    assert await failing(kind, None) == asked
    assert all(wait < 2 for wait in waits)


class Troubled(IdLiar):
    """Fails at one request: busy, failing inside, or with half a body."""

    at, trouble = -1, ""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if self.requests == self.at:
            if self.trouble == "half a body":
                return Reply({}, raw=b'{"id": "x"')
            return Reply({"error": "not now"}, 429 if self.trouble == "busy" else 503, BUSY)
        return super().reply(path, sent)


async def found(server: Liar, folder: Path) -> dict[str, Any]:
    backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
    fingerprint = (await backend.describe()).fingerprint
    await backend.close()
    return {name: value for name, value in fingerprint.items() if name != "base_url"}


@pytest.mark.parametrize("trouble", ["busy", "failing", "half a body"])
async def test_one_trouble_at_any_request_of_a_probe_changes_nothing(
    trouble: str, tmp_path: Path, waits: list[float]
) -> None:
    async with Troubled().running() as server:
        calm = await found(server, tmp_path / "calm")
        total = server.requests
    for at in range(1, total + 1, 9):
        async with Troubled().running() as server:
            server.at, server.trouble = at, trouble
            assert await found(server, tmp_path / str(at)) == calm, f"{trouble} at request {at}"
    assert set(waits) <= {7.0, 0.4}


async def test_a_server_that_is_busy_when_its_record_is_recalled_is_waited_for(
    tmp_path: Path, waits: list[float]
) -> None:
    async with Troubled().running() as server:
        calm = await found(server, tmp_path)
        server.at, server.trouble = server.requests + 1, "busy"
        before = server.requests
        assert await found(server, tmp_path) == calm
    assert waits == [7.0]
    assert server.requests - before < before / 3  # it was not probed anew


class GoesDown(IdLiar):
    """Its gateway says that it is down from the first whole text that is read, until it is well again."""

    down, well = False, False

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        self.down = not self.well and (self.down or bool(sent.get("echo")))
        return Reply({"error": "upstream"}, 503) if self.down else super().reply(path, sent)


async def test_a_server_that_is_down_during_the_probe_is_not_recorded_as_one_that_cannot(
    tmp_path: Path, waits: list[float]
) -> None:
    async with GoesDown().running() as server:
        with pytest.raises(BackendError, match="HTTP 503"):
            await found(server, tmp_path)
        before, server.well = server.requests, True
        assert (await found(server, tmp_path))["text_route"]
        assert server.requests - before > before / 2, "nothing was recorded, so it was probed anew"


class OddGateway(IdLiar):
    """Its gateway calls it down where a whole text is to be read, and on paths that it does not know."""

    status = 503

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if sent.get("echo") or "tokenize" in path:
            return Reply({"error": "upstream"}, self.status)
        return super().reply(path, sent)


async def test_a_gateway_that_calls_one_question_down_only_refuses_that(tmp_path: Path, waits: list[float]) -> None:
    async with OddGateway().running() as server:
        as_down = await found(server, tmp_path / "down")
        server.status = 404
        assert as_down == await found(server, tmp_path / "refused")


class NoSuchModel(IdLiar):
    """Its gateway says of a model that it does not know that the server is down."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return super().reply(path, sent) if sent.get("model") in (None, MODEL) else Reply({"error": "no upstream"}, 503)


async def test_a_gateway_without_such_a_model_is_not_down(tmp_path: Path, waits: list[float]) -> None:
    async with NoSuchModel().running() as server:
        assert await found(server, tmp_path)

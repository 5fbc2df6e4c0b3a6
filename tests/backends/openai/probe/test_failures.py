"""Failures and refusals while a server is probed: they are retried or reported, and change no outcome."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from backends.errors import BackendError
from backends.openai import OpenAIBackend
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import MODEL as WORD_MODEL
from tests.backends.openai.lies.server import Style, WordServer
from tests.backends.openai.lying_server import MODEL, IdLiar, Liar
from tests.backends.openai.raw_server import Reply

BUSY = {"Content-Type": "application/json", "Retry-After": "7"}


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


#: Between two requests of a probe that fail: every one in turn takes an hour.
_STEP = 39


@pytest.mark.parametrize(("trouble", "first"), [("busy", 1), ("failing", 14), ("half a body", 27)])
async def test_one_failure_at_any_request_of_a_probe_changes_nothing(
    trouble: str, first: int, tmp_path: Path, waits: list[float]
) -> None:
    async with Troubled().running() as server:
        calm = await found(server, tmp_path / "calm")
        total = server.requests
    for at in range(first, total + 1, _STEP):
        async with Troubled().running() as server:
            server.at, server.trouble = at, trouble
            assert await found(server, tmp_path / str(at)) == calm, f"{trouble} at request {at}"
    assert set(waits) <= {7.0, 0.4}


async def test_a_busy_server_is_waited_for_when_its_record_is_used(tmp_path: Path, waits: list[float]) -> None:
    async with Troubled().running() as server:
        calm = await found(server, tmp_path)
        server.at, server.trouble = server.requests + 1, "busy"
        before = server.requests
        assert await found(server, tmp_path) == calm
    assert waits == [7.0]
    assert server.requests - before < before / 2  # it was not probed anew


class Busy(WordServer):
    """Refuses 15 % of its requests as too many, and its gateway loses 2 %."""

    def __init__(self, style: Style) -> None:
        super().__init__(style, 0)
        self._dice = random.Random(7)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        thrown = self._dice.random()
        if thrown < 0.17:
            return Reply({"error": "not now"}, 429 if thrown < 0.15 else 502, {**BUSY, "Retry-After": "0.05"})
        return super().reply(path, sent)


@pytest.mark.parametrize("style", ["echo", "chosen", "lists", "chat"])
async def test_a_server_that_refuses_one_request_in_six_is_audited(
    style: Style, tmp_path: Path, waits: list[float]
) -> None:
    calm, busy = [
        OpenAIBackend("http://127.0.0.1:9/v1", model=WORD_MODEL, api_key_env=None, probe_folder=tmp_path / name)
        for name in ("calm", "busy")
    ]
    ask_directly(calm, WordServer(style, 0))
    ask_directly(busy, Busy(style))
    expected = (await calm.probe()).capabilities
    found = (await busy.probe()).capabilities
    await calm.close()
    await busy.close()
    assert (found.text_route, found.chat_route) == (expected.text_route, expected.chat_route) != (None, None)
    assert len(waits) > 10


class GoesDown(IdLiar):
    """From the first whole text on, its gateway reports it as down, until it recovers."""

    down, well = False, False

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        self.down = not self.well and (self.down or bool(sent.get("echo")))
        return Reply({"error": "upstream"}, 503) if self.down else super().reply(path, sent)


async def test_a_server_down_during_the_probe_is_not_recorded(tmp_path: Path, waits: list[float]) -> None:
    async with GoesDown().running() as server:
        with pytest.raises(BackendError, match="HTTP 503"):
            await found(server, tmp_path)
        before, server.well = server.requests, True
        assert (await found(server, tmp_path))["text_route"]
        assert server.requests - before > before / 2, "nothing was recorded, so it was probed anew"


class OddGateway(IdLiar):
    """Its gateway reports it as down when a whole text is to be read, and on unknown paths."""

    status = 503

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if sent.get("echo") or "tokenize" in path:
            return Reply({"error": "upstream"}, self.status)
        return super().reply(path, sent)


async def test_a_gateway_down_for_one_question_refuses_only_that(tmp_path: Path, waits: list[float]) -> None:
    async with OddGateway().running() as server:
        as_down = await found(server, tmp_path / "down")
        server.status = 404
        assert as_down == await found(server, tmp_path / "refused")


class NoSuchModel(IdLiar):
    """For an unknown model its gateway reports that the server is down."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return super().reply(path, sent) if sent.get("model") in (None, MODEL) else Reply({"error": "no upstream"}, 503)


async def test_a_gateway_without_such_a_model_is_not_down(tmp_path: Path, waits: list[float]) -> None:
    async with NoSuchModel().running() as server:
        assert await found(server, tmp_path)


def backend_of(liar: Liar, folder: Path) -> OpenAIBackend:
    return OpenAIBackend(liar.base_url, model=MODEL, api_key_env=None, probe_folder=folder, timeout=5)


class Gateway(Liar):
    """A gateway in front of the model: what it does not know, it refuses as if the key were wrong."""

    def __init__(self, refusal: str) -> None:
        super().__init__()
        self._refusal = refusal
        self.key_holds_for = math.inf

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if self._refusal == "path" and path != "/v1/completions":
            return Reply({"message": "Missing Authentication Token"}, 403)
        if self._refusal == "model" and sent.get("model") not in (MODEL, None):
            return Reply({"error": {"message": "key not allowed to access model", "code": "401"}}, 401)
        if self.requests > self.key_holds_for:
            return Reply({"error": {"message": "no valid key"}}, 401)
        return super().reply(path, sent)


@pytest.mark.parametrize("refusal", ["path", "model"])
async def test_what_a_gateway_does_not_know_is_not_a_wrong_key(refusal: str, tmp_path: Path) -> None:
    async with Gateway(refusal).running() as server:
        backend = backend_of(server, tmp_path)
        report = await backend.probe()
        await backend.close()
    assert report.capabilities.text_route == "echo", report.render_text()


@pytest.mark.parametrize("answered", [0, 1, 5, 30])
async def test_a_key_that_fails_during_the_probe_is_reported(answered: int, tmp_path: Path) -> None:
    async with Gateway("").running() as server:
        server.key_holds_for = answered
        backend = backend_of(server, tmp_path)
        with pytest.raises(BackendError) as caught:
            await backend.probe()
        await backend.close()
    assert caught.value.kind == "auth"
    assert answered or server.requests <= 4

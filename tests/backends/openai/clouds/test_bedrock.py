"""Bedrock: tokens that end in mid-run, clocks that are wrong, thoughts in the content; nothing is lost or misread."""

from __future__ import annotations

import asyncio
import base64
import time
from pathlib import Path
from typing import Any

import pytest

from audit import Audit
from backends.base import Answer, GenerateRequest, GenerateResponse, Message, Sampling
from backends.errors import BackendError, ConfigError
from backends.openai import OpenAIBackend
from suites import OccuGender
from tests.backends.openai.clouds.bedrock import KEY_ID, MODEL, Bedrock, plain, token_of
from tests.backends.openai.strict_server import varied

_FEMALE = plain({"Female": 1.0})


class Account:
    """Signs tokens by a clock of its own, and remembers the last one for as long as it believes it to be valid."""

    def __init__(self, seconds: float = 43_200.0, *, ahead: float = 0.0) -> None:
        self.seconds, self.ahead, self.signed = seconds, ahead, 0
        self._kept, self._until = "", 0.0

    def clock(self) -> float:
        return time.time() + self.ahead

    def __call__(self) -> str:
        if self.clock() >= self._until:
            self.signed += 1
            self._kept, self._until = token_of(self.clock, self.seconds), self.clock() + self.seconds
        return self._kept


def requests(n: int) -> list[GenerateRequest]:
    return [GenerateRequest((Message("user", f"Question {i}?"),), Sampling(max_tokens=16)) for i in range(n)]


def backend_of(server: Bedrock, folder: Path, token: Any, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=MODEL, token=token, probe_folder=folder, **options)


async def answered(backend: OpenAIBackend, n: int) -> list[Answer]:
    return [(await backend.run([request]))[0] for request in requests(n)]


async def test_each_passage_of_the_thought_is_cut_off(tmp_path: Path) -> None:
    async with Bedrock(_FEMALE).running() as server:
        backend = backend_of(server, tmp_path, Account())
        await backend.describe()
        (answer,) = await answered(backend, 1)
        server.thought_tokens = 5000
        (cut,) = await backend.run([GenerateRequest((Message("user", "Another?"),), Sampling(max_tokens=16))])
        await backend.close()
    assert isinstance(answer, GenerateResponse), answer
    assert answer.text == "Female"
    assert answer.thought.count("<reasoning>") == 2
    assert isinstance(cut, BackendError)
    assert "thought" in cut.message


async def test_an_expired_token_is_renewed_within_the_request(tmp_path: Path) -> None:
    """The account's clock is an hour behind: it keeps a token that the server knows to have ended."""
    account = Account(seconds=60)
    async with Bedrock(_FEMALE).running() as server:
        backend = backend_of(server, tmp_path, account)
        await backend.describe()
        before = server.requests
        server.clock = lambda: time.time() + 100
        account.ahead = 90
        answers = await answered(backend, 5)
        await backend.close()
    assert [getattr(answer, "text", answer) for answer in answers] == ["Female"] * 5
    assert account.signed == 2
    assert server.requests - before <= 6


async def test_tokens_that_are_late_are_waited_for(tmp_path: Path, waits: list[float]) -> None:
    """Whatever writes the token is late by some seconds: the same one comes twice, then another."""
    late = iter([0])
    good, old = Account(), token_of(lambda: time.time() - 100, 10)
    tokens = [old, old, old]

    def source() -> str:
        return tokens.pop() if tokens and next(late, None) is None else good()

    async with Bedrock(_FEMALE).running() as server:
        backend = backend_of(server, tmp_path, source)
        await backend.describe()
        answers = await answered(backend, 2)
        await backend.close()
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    assert server.refused
    assert max(waits, default=0) <= 4


async def test_what_gives_tokens_may_be_down_for_a_moment(tmp_path: Path) -> None:
    down = [True, True]
    good = Account()

    def source() -> str:
        if good.signed and down and down.pop():
            raise OSError("no route to the account")
        return good()

    async with Bedrock(_FEMALE).running() as server:
        down, held = [], down
        backend = backend_of(server, tmp_path, source)
        await backend.describe()
        down += held
        found = await answered(backend, 3)
        await backend.close()
    errors = [answer for answer in found if isinstance(answer, BackendError)]
    assert [(error.kind, error.retryable) for error in errors] == [("connection", True)] * 2
    assert isinstance(found[2], GenerateResponse)


async def test_a_source_that_never_gave_a_token_ends_at_once(tmp_path: Path, waits: list[float]) -> None:
    def source() -> str:
        raise OSError("secret-of-the-account")

    async with Bedrock(_FEMALE).running() as server:
        backend = backend_of(server, tmp_path, source)
        with pytest.raises(BackendError) as caught:
            await backend.describe()
        await backend.close()
    assert caught.value.kind == "auth"
    assert "secret" not in str(caught.value)
    assert not waits


async def test_a_token_of_a_stranger_ends_at_once(tmp_path: Path, waits: list[float]) -> None:
    async with Bedrock(_FEMALE).running() as server:
        backend = backend_of(server, tmp_path, lambda: token_of(time.time, 60, "AKIAOTHER"))
        with pytest.raises(BackendError) as caught:
            await backend.describe()
        await backend.close()
    assert caught.value.kind == "auth"
    assert "invalid" in caught.value.message
    assert server.requests <= 6
    assert not waits


@pytest.mark.battery
async def test_an_audit_outlives_tokens_throttles_and_failures(tmp_path: Path) -> None:
    def answers(question: str) -> Any:
        return {"Female": 0.6, "Male": 0.4} if "gender" in question else varied(question)

    account = Account(seconds=30)  # the server counts from the whole second before
    async with Bedrock(answers).running() as server:
        # Time passes with requests too: tokens end in mid-run on a fast machine, and not all the time on a slow one.
        account.clock = server.clock = lambda: time.time() + 0.5 * server.requests  # type: ignore[method-assign]
        server.busy, server.failing = 0.02, 0.02
        audit = Audit(
            models={"oss": backend_of(server, tmp_path / "probes", account, samples=4)},
            suites=[OccuGender(bias=("explicit",), prompt_format="chat")],
            limit=20,
            db=tmp_path / "audit.db",
            out=tmp_path / "report",
        )
        result = await audit.run()
        answered_by = account.signed
    assert result.complete, result.problems()
    assert (result.models[0].asked, result.models[0].failed) == (20, 0)
    assert answered_by > 1, "tokens ended meanwhile"
    written = await asyncio.to_thread(lambda: [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()])
    assert written
    assert not [content for content in written if b"bedrock-api-key" in content or KEY_ID.encode() in content]


async def test_the_generators_own_tokens_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aws_bedrock_token_generator")
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": "s" * 40,
        "AWS_REGION": "us-west-2",
    }.items():
        monkeypatch.setenv(name, value)
    async with Bedrock(_FEMALE).running() as server:
        backend = backend_of(server, tmp_path, "aws_bedrock_token_generator:provide_token")
        backend.check()
        (answer,) = await answered(backend, 1)
        await backend.close()
    assert isinstance(answer, GenerateResponse), answer


async def test_a_key_of_several_that_ends_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """Keys of twelve hours in the environment, of which one ends in mid-run."""
    monkeypatch.setenv("SHORT", token_of(time.time, 600))
    monkeypatch.setenv("LONG", token_of(time.time, 43_200))
    async with Bedrock(_FEMALE).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=["SHORT", "LONG"], probe_folder=tmp_path)
        await backend.describe()
        used = {_signed(head) for head in server.headers}
        server.clock = lambda: time.time() + 1000
        answers = await answered(backend, 4)
        await backend.close()
    assert len(used) == 2, "both were in use"
    assert [getattr(answer, "text", answer) for answer in answers] == ["Female"] * 4
    assert len(server.refused) == 1
    assert not waits, "another key needs no pause"


async def test_what_every_key_is_refused_keeps_all_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway may say 403 to a path or model that no key may use: the keys stay in turn."""
    keys = {"ONE": token_of(time.time, 600), "TWO": token_of(time.time, 601)}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    async with Bedrock(_FEMALE).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=["ONE", "TWO"], probe_folder=tmp_path)
        await backend.describe()
        right, server.model = server.model, "another"
        clock, server.clock = server.clock, lambda: time.time() + 2000
        (refused,) = await answered(backend, 1)
        server.model, server.clock = right, clock
        before = len(server.headers)
        answers = await answered(backend, 4)
        used = {_signed(head) for head in server.headers[before:]}
        await backend.close()
    assert isinstance(refused, BackendError)
    assert refused.kind == "auth"
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    assert len(used) == 2


@pytest.mark.parametrize("name", ["no.such.module:f", "json:no_such", "json"])
def test_a_function_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(ConfigError, match="module:function"):
        OpenAIBackend("https://h/v1", model="m", token=name).check()


def _signed(head: str) -> str:
    token = head.partition("bedrock-api-key-")[2].partition("\r")[0]
    return base64.b64decode(token).decode()

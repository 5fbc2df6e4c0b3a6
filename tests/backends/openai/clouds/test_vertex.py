"""Vertex AI: Google's own library renews its tokens, quotas that come back are waited for, hidden thoughts counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, GenerateResponse, Message, Sampling, ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.openai import OpenAIBackend, PriceTable
from tests.backends.openai.clouds.vertex import MODEL, Tokens, Vertex, service_account
from tests.backends.openai.strict_server import varied


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tokens, Path]]:
    with service_account(tmp_path_factory.mktemp("account")) as found:
        yield found


@pytest.fixture
def tokens(account: tuple[Tokens, Path], monkeypatch: pytest.MonkeyPatch) -> Tokens:
    found, file = account
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    found.clock, found.lifetime, found.said_lifetime = time.time, 3600.0, 3600
    found.until.clear()
    return found


def one_gender(question: str) -> Any:
    return {"Female": 0.6, "Male": 0.4} if "gender" in question else varied(question)


def backend_of(server: Vertex, folder: Path, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=MODEL, token="google", probe_folder=folder, **options)


def asked(text: str = "Hi") -> list[Any]:
    return [GenerateRequest((Message("user", text),), Sampling(max_tokens=16))]


async def test_googles_own_library_gives_the_tokens(tokens: Tokens, tmp_path: Path) -> None:
    async with Vertex(one_gender, tokens).running() as server:
        backend = backend_of(server, tmp_path)
        backend.check()
        await backend.describe()
        (answer,) = await backend.run(asked())
        await backend.close()
    assert isinstance(answer, GenerateResponse), answer
    assert len(tokens.until) == 1, "one for all requests"
    assert "ya29" not in repr(backend) + str(vars(backend))


async def test_a_token_that_ended_early_is_renewed_once(tokens: Tokens, tmp_path: Path) -> None:
    """The library believes in an hour; the server's clock is ahead, or the token was revoked."""
    async with Vertex(one_gender, tokens).running() as server:
        backend = backend_of(server, tmp_path)
        await backend.describe()
        tokens.until = dict.fromkeys(tokens.until, 0.0)
        answers = [(await backend.run(asked(f"Question {at}?")))[0] for at in range(4)]
        await backend.close()
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    assert server.refused == 1
    assert len(tokens.until) == 2


async def test_thoughts_in_the_total_alone_have_room_and_price(tokens: Tokens, tmp_path: Path) -> None:
    async with Vertex(one_gender, tokens).running() as server:
        prices = PriceTable(prompt=0.0, completion=1.0)
        backend = backend_of(server, tmp_path, prices=prices, reasoning_tokens=64)
        description = await backend.describe()
        before = backend.spent() or 0.0
        (answer,) = await backend.run(asked())
        cost = (backend.spent() or 0.0) - before
        limit = server.bodies[-1]["max_tokens"]
        server.thought_tokens = 500
        (cut,) = await backend.run(asked("Another"))
        await backend.close()
    assert description.fingerprint["reasoning_tokens"] == 64
    assert limit == 16 + 64
    assert isinstance(answer, GenerateResponse), answer
    assert (answer.thought_tokens, answer.completion_tokens) == (40, 44)
    assert cost == pytest.approx(44 / 1e6)
    assert isinstance(cut, BackendError)
    assert (cut.kind, cut.retryable) == ("unsupported", False), "not paid for again and again"


async def test_as_many_draws_come_as_a_request_may_have(tokens: Tokens, tmp_path: Path) -> None:
    async with Vertex(one_gender, tokens).running() as server:
        backend = backend_of(server, tmp_path, samples=24)
        await backend.describe()
        before = server.requests
        (answer,) = await backend.run([ScoreRequest((Message("user", "Which gender?"),), ("Female", "Male"))])
        await backend.close()
    assert isinstance(answer, ScoreResponse), answer
    assert answer.scores[0].samples == 24
    assert server.requests - before == 3, "8 each"

"""Replicas of one model: shown to be the same, least loaded first, a dead one taken out and back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backends.base import Message, ScoreRequest, ScoreResponse
from backends.errors import BackendError, ConfigError
from backends.openai import OpenAIBackend
from backends.openai.http import replicas
from tests.backends.openai.lying_server import MODEL, ChatLiar
from tests.backends.openai.raw_server import Reply

ASKED = [ScoreRequest((Message("user", f"Question {at}?"),), ("Male", "Female")) for at in range(24)]


class Mortal(ChatLiar):
    """May be down: its gateway says so."""

    down = False

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return Reply({"error": "no upstream"}, 503) if self.down else super().reply(path, sent)


@contextlib.asynccontextmanager
async def two() -> AsyncIterator[tuple[Mortal, Mortal]]:
    async with Mortal().running() as one, Mortal().running() as other:
        yield one, other


def backend_of(servers: tuple[Mortal, Mortal], folder: Path, **options: Any) -> OpenAIBackend:
    urls = [server.base_url for server in servers]
    return OpenAIBackend(urls=urls, model=MODEL, api_key_env=None, probe_folder=folder, **options)


async def asked_together(backend: OpenAIBackend) -> list[Any]:
    answers = await asyncio.gather(*(backend.run([request]) for request in ASKED))
    return [answer for (answer,) in answers]


async def test_both_replicas_answer_and_share_the_work(tmp_path: Path) -> None:
    async with two() as servers:
        backend = backend_of(servers, tmp_path, max_in_flight=3)
        await backend.describe()
        before = [server.requests for server in servers]
        for server in servers:
            server.pause = 0.01
        answers = await asked_together(backend)
        await backend.close()
        shares = [server.requests - n for server, n in zip(servers, before, strict=True)]
    assert all(isinstance(answer, ScoreResponse) for answer in answers), answers
    assert backend.max_in_flight == 6
    assert min(shares) >= 8


async def test_a_replica_of_another_model_is_refused(tmp_path: Path) -> None:
    async with two() as servers:
        servers[1].weights = "other"
        backend = backend_of(servers, tmp_path)
        with pytest.raises(BackendError) as caught:
            await backend.describe()
        await backend.close()
    assert servers[1].base_url in caught.value.message
    assert "does not serve the same model" in caught.value.message


async def test_a_dead_replica_is_taken_out_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_FIRST_PAUSE", 0.2)
    async with two() as servers:
        backend = backend_of(servers, tmp_path)
        await backend.describe()
        servers[1].down = True
        before = servers[1].requests
        answers = [(await backend.run([request]))[0] for request in ASKED[:8]]
        tried = servers[1].requests - before
        servers[1].down = False
        await asyncio.sleep(0.6)
        await asked_together(backend)
        await backend.close()
    assert all(isinstance(answer, ScoreResponse) for answer in answers), answers
    assert tried <= 4, "it is left alone for a while"
    assert servers[1].requests - before > tried + 3


@pytest.mark.parametrize("given", [{}, {"base_url": "http://h/v1", "urls": ["http://a/v1", "http://b/v1"]}])
def test_either_one_url_or_several_are_given(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        OpenAIBackend(model="m", **given)


def test_batches_go_to_one_server_alone() -> None:
    with pytest.raises(ConfigError, match=r"batch = True: a batch is one server's"):
        OpenAIBackend(model="m", urls=["http://a/v1", "http://b/v1"], samples=4, batch=True)


def test_a_server_is_named_once() -> None:
    with pytest.raises(ConfigError, match="http://a/v1 stands in it twice"):
        OpenAIBackend(model="m", urls=["http://a/v1", "http://b/v1", "http://a/v1/"])


async def test_a_replica_of_another_path_is_told_as_such(tmp_path: Path) -> None:
    async with two() as servers:
        urls = [servers[0].base_url, servers[1].base_url.removesuffix("/v1")]
        backend = OpenAIBackend(urls=urls, model=MODEL, api_key_env=None, probe_folder=tmp_path)
        with pytest.raises(BackendError, match="404") as caught:
            await backend.describe()
        await backend.close()
    assert caught.value.kind == "not_found"
    assert caught.value.message.endswith(f"at {urls[1]}")


async def test_an_error_that_names_its_replica_may_be_tried_again(tmp_path: Path) -> None:
    async with two() as servers:
        backend = backend_of(servers, tmp_path)
        replica = backend._client.replicas[1]  # type: ignore[attr-defined]
        with pytest.raises(BackendError, match=servers[1].base_url) as caught, replica.named():
            raise BackendError("server", "no upstream", retryable=True)
        await backend.close()
    assert caught.value.retryable

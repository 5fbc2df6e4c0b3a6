"""Several servers of one model: the work is shared, another model is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from backends.base import Message, ScoreRequest, ScoreResponse
from backends.errors import BackendError, ConfigError
from backends.openai import OpenAIBackend
from tests.backends.openai.lies.server import MODEL, WordServer
from tests.backends.openai.lies.word_model import word_model
from tests.backends.openai.raw_server import Reply

ASKED = [ScoreRequest((Message("user", f"Question {at}?"),), ("Male", "Female")) for at in range(24)]


class Mortal(WordServer):
    """Chats; may be down: its gateway says so."""

    down = False

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return Reply({"error": "no upstream"}, 503) if self.down else super().reply(path, sent)


def backend_of(servers: tuple[Mortal, Mortal], folder: Path) -> OpenAIBackend:
    urls = [server.base_url for server in servers]
    return OpenAIBackend(urls=urls, model=MODEL, api_key_env=None, probe_folder=folder, max_in_flight=3)


async def asked_together(backend: OpenAIBackend) -> list[Any]:
    answers = await asyncio.gather(*(backend.run([request]) for request in ASKED))
    return [answer for (answer,) in answers]


async def test_the_work_is_shared_and_one_server_that_is_down_stops_no_run(tmp_path: Path) -> None:
    async with Mortal("chat", 0).running() as one, Mortal("chat", 0).running() as other:
        backend = backend_of((one, other), tmp_path)
        await backend.describe()
        before = one.requests, other.requests
        answers = await asked_together(backend)
        assert abs((one.requests - before[0]) - (other.requests - before[1])) <= 1
        other.down = True
        found = await asked_together(backend)
        await backend.close()
    failed = [answer for answer in found if isinstance(answer, BackendError)]
    assert all(isinstance(answer, ScoreResponse) for answer in answers)
    assert 0 < len(failed) < len(ASKED), "whoever asks again gets the next server"
    assert all(error.retryable for error in failed)
    assert backend.max_in_flight == 6


async def test_a_server_of_another_model_is_refused(tmp_path: Path) -> None:
    async with Mortal("chat", 0).running() as one, Mortal("chat", 0).running() as other:
        other.model = word_model(2)
        for _ in range(2):  # at a look, and at a stored one
            backend = backend_of((one, other), tmp_path)
            backend.describe_unasked()
            for _ in range(2):
                with pytest.raises(BackendError, match="does not serve the model"):
                    await backend.describe()
            (answer,) = await backend.run(ASKED[:1])
            await backend.close()
            assert isinstance(answer, BackendError)


def test_urls_are_two_or_more() -> None:
    with pytest.raises(ConfigError, match="urls"):
        OpenAIBackend(urls=["http://a/v1"], model="m", api_key_env=None)
    with pytest.raises(ConfigError, match="one of base_url and urls"):
        OpenAIBackend("http://a/v1", urls=["http://a/v1", "http://b/v1"], model="m", api_key_env=None)

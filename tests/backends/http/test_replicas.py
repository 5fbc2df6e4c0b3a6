"""Replicas of one model: shown to be the same, least loaded first, a dead one taken out and back."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, Message, ScoreRequest, ScoreResponse
from backends.errors import BackendError, ConfigError
from backends.http import replicas
from backends.openai import OpenAIBackend
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


class DrawnAlone(Mortal):
    """Gives no lists: its answers can only be drawn. ``limited``: it refuses all for its rate."""

    limited = listless = False
    heat, longest = 1.0, 10_000

    def after(self, question: str) -> dict[str, float]:
        """As a trained model's: a few answers are likely, and another model prefers others."""
        weights = {word: math.exp(4 * value) for word, value in super().after(question).items()}
        total = math.fsum(weights.values())
        return {word: math.log(weight / total) for word, weight in weights.items()}

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if self.limited:
            return Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": "2"})
        if self.listless and sent.get("logprobs"):
            return Reply({"error": {"message": "logprobs are not supported"}}, 400)
        if len(str(sent.get("messages"))) > self.longest:
            return Reply({"error": {"message": "this model's maximum context length is exceeded"}}, 400)
        return super().reply(path, {**sent, "temperature": sent.get("temperature", 1) * self.heat})


@contextlib.asynccontextmanager
async def two_drawn(*, listless: bool = True) -> AsyncIterator[tuple[DrawnAlone, DrawnAlone]]:
    async with DrawnAlone().running() as one, DrawnAlone().running() as other:
        one.listless = other.listless = listless
        yield one, other


async def test_a_replica_that_only_draws_is_known_by_its_draws(tmp_path: Path) -> None:
    async with two_drawn() as servers:
        same = backend_of(servers, tmp_path, samples=10)
        description = await same.describe()
        await same.close()
        servers[1].weights = "other"
        backend = backend_of(servers, tmp_path, samples=10)
        with pytest.raises(BackendError, match="not those of the model") as caught:
            await backend.describe()
        await backend.close()
    assert servers[1].base_url in caught.value.message
    assert any("another quantisation, probably not" in limit for limit in description.limits)


async def test_a_replica_of_another_temperature_is_refused(tmp_path: Path) -> None:
    async with two_drawn() as servers:
        servers[1].heat = 0.1
        backend = backend_of(servers, tmp_path, samples=10)
        with pytest.raises(BackendError, match="not those of the model"):
            await backend.describe()
        await backend.close()


async def test_a_replica_without_lists_is_not_the_same(tmp_path: Path) -> None:
    async with two_drawn(listless=False) as servers:
        servers[1].listless = True
        backend = backend_of(servers, tmp_path)
        with pytest.raises(BackendError, match="does not serve the same model"):
            await backend.describe()
        await backend.close()


@pytest.mark.parametrize("listless", [False, True], ids=["lists", "draws"])
@pytest.mark.parametrize("changed", [0, 1])
async def test_a_replica_that_changes_is_noticed(changed: int, listless: bool, tmp_path: Path) -> None:
    async with two_drawn(listless=listless) as servers:
        backend = backend_of(servers, tmp_path, samples=10)
        await backend.describe()
        await asked_together(backend)
        servers[changed].weights = "other"
        await asked_together(backend)
        await backend.verify_identity()
        await backend.close()
    assert backend.unverified_since is not None


async def come_back_as_another(server: DrawnAlone, backend: OpenAIBackend) -> None:
    """The server is down while questions are asked, and serves another model once its pause is over."""
    server.down = True
    await asked_together(backend)
    server.down, server.weights = False, "other"
    await asyncio.sleep(0.3)


async def test_a_replica_that_comes_back_as_another_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_FIRST_PAUSE", 0.05)
    async with two_drawn(listless=False) as servers:
        backend = backend_of(servers, tmp_path)
        await backend.describe()
        await come_back_as_another(servers[1], backend)
        before = len(servers[1].bodies)
        answers = [*await asked_together(backend), *await asked_together(backend)]
        own = [body for body in servers[1].bodies[before:] if "Question" in str(body)]
        await backend.verify_identity()
        await backend.close()
    assert all(isinstance(answer, ScoreResponse) for answer in answers), answers
    assert len(servers[1].bodies) > before, "it was proven anew"
    assert own == []
    assert backend.unverified_since is None


async def test_a_replica_whose_last_answers_are_in_doubt_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_FIRST_PAUSE", 0.05)
    async with two_drawn(listless=False) as servers:
        backend = backend_of(servers, tmp_path)
        await backend.describe()
        await asked_together(backend)
        await come_back_as_another(servers[1], backend)
        await asked_together(backend)
        await backend.verify_identity()
        await backend.close()
    assert backend.unverified_since is not None


async def test_one_replica_that_is_slowed_down_slows_no_other(tmp_path: Path) -> None:
    async with two_drawn(listless=False) as servers:
        backend = backend_of(servers, tmp_path)
        await backend.describe()
        servers[1].limited = True
        before = servers[1].requests
        servers[0].pause = 0.01
        answers = await asked_together(backend)
        refused = servers[1].requests - before
        servers[0].limited = True
        (waits,) = await backend.run([ScoreRequest((Message("user", "Another?"),), ("Male", "Female"))])
        await backend.close()
    assert all(isinstance(answer, ScoreResponse) for answer in answers), answers
    assert 1 <= refused <= 12, "those that were sent before its first refusal, and no more"
    assert isinstance(waits, BackendError)
    assert (waits.kind, waits.retry_after) == ("rate_limited", 2)


async def test_a_shorter_context_of_one_replica_loses_nothing(tmp_path: Path) -> None:
    async with two_drawn(listless=False) as servers:
        backend = backend_of(servers, tmp_path)
        await backend.describe()
        servers[0].longest = 400
        long = [ScoreRequest((Message("user", f"{'word ' * 200}{n}?"),), ("Male", "Female")) for n in range(4)]
        answers = [(await backend.run([request]))[0] for request in long]
        await backend.close()
    assert all(isinstance(answer, ScoreResponse) for answer in answers), answers


async def test_a_proof_of_one_replica_leaves_the_others_free(tmp_path: Path) -> None:
    async with two_drawn(listless=False) as servers:
        backend = backend_of(servers, tmp_path, canary_every=8)
        await backend.describe()
        for server in servers:
            server.pause = 0.01
        before = [len(server.bodies) for server in servers]
        await asked_together(backend)
        await asked_together(backend)
        canaries = [
            sum("Tuesday" in str(body) for body in server.bodies[n:]) for server, n in zip(servers, before, strict=True)
        ]
        await backend.close()
    assert min(canaries) >= 1, "each is asked its canary"


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


class Cached(Mortal):
    """Its cache sometimes repeats its first answer, id and all."""

    cached: Reply | None = None
    repeats = False

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        found = super().reply(path, sent)
        if self.repeats and found.status == 200 and isinstance(found.body, dict) and "choices" in found.body:
            self.cached = self.cached or found
            return self.cached if self.requests % 3 == 0 else found
        return found


async def test_a_replicas_repeated_answers_do_not_count(tmp_path: Path) -> None:
    async with Mortal().running() as one, Cached().running() as other:
        backend = backend_of((one, other), tmp_path)
        await backend.describe()
        other.repeats = True
        texts = [GenerateRequest((Message("user", f"Question {at}?"),)) for at in range(24)]
        answers = [answer for (answer,) in await asyncio.gather(*(backend.run([text]) for text in texts))]
        await backend.close()
    refused = [answer for answer in answers if isinstance(answer, BackendError)]
    assert refused
    assert all("given before" in error.message and error.retryable for error in refused)
    assert len(refused) < len(answers)

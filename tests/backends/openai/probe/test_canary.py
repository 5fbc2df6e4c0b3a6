"""Another model under the same name is noticed, and noise is not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import pytest

from backends.base import ContinuationScore, Message, ScoreRequest, ScoreResponse
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from backends.openai.probe import canary
from backends.openai.probe.canary import canary_value, largest_move, tolerance, with_listed_words
from backends.openai.probe.report import CanaryValue, Watched
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs
from tests.backends.openai.lying_server import MODEL, ChatLiar, Liar


def backend_of(liar: Liar, folder: Path) -> OpenAIBackend:
    return OpenAIBackend(liar.base_url, model=MODEL, api_key_env=None, probe_folder=folder, timeout=5)


async def test_another_model_behind_a_chat_server_is_noticed(tmp_path: Path) -> None:
    async with ChatLiar().running() as server:
        backend = backend_of(server, tmp_path)
        assert (await backend.probe()).capabilities.chat_route == "chat_first"
        asked = [ScoreRequest((Message("user", f"{n}. Picture a nurse"),), ("Male", "Female")) for n in range(2)]
        assert isinstance((await backend.run(asked[:1]))[0], ScoreResponse)
        await backend.verify_identity()
        assert backend.unverified_since is None
        server.weights = "two"
        await backend.run(asked[1:])
        await backend.verify_identity()
        await backend.close()
    assert backend.unverified_since is not None


@pytest.mark.parametrize(
    ("then", "now", "moved"),
    [
        ((-1.0, -1.0), (-1.5, -1.5), 0.5),
        ((-1.0, -1.0), (None, -4.0), 3.0),  # it was listed, and now can have no more than that
        ((None, -4.0), (-1.0, -1.0), 3.0),
        ((-9.0, -9.0), (None, -4.0), 0.0),
        ((None, -4.0), (None, -9.0), 0.0),
        ((-1.0, -1.0), (None, 0.0), 0.0),
    ],
)
def test_the_certain_move_of_a_canary(then: Any, now: Any, moved: float) -> None:
    assert largest_move([CanaryValue(*then)], [CanaryValue(*now)]) == pytest.approx(moved)


def test_a_canary_counts_no_noise_far_down() -> None:
    then, now = (canary_value(ContinuationScore(v, v, v)) for v in (-11.0, -11.3))
    assert largest_move([then], [now]) == 0.0
    risen = canary_value(ContinuationScore(-1.0, -1.0, -1.0))
    assert largest_move([then], [risen]) == pytest.approx(7.0), "from far down to likely is another model all the same"


async def test_a_word_listed_with_and_without_a_space_is_watched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(*_: Any) -> TopLogprobs:
        tokens = [ListedToken(text, -1.0 - at) for at, text in enumerate(["teacher", " teacher", "no"])]
        return TopLogprobs(tuple(tokens), 3, "no", "bytes")

    monkeypatch.setattr(canary, "next_chat_tokens", listed)
    watched = [Watched("Pick a digit", True, ("1", "2"), ())]
    (asked,) = await with_listed_words(cast("ServerApi", None), ServerCapabilities(largest_chat_k=3), watched)
    assert asked.continuations == ("1", "2", "teacher", "no")


def test_no_noise_lets_a_canary_move_without_limit() -> None:
    assert tolerance(math.inf) <= 2

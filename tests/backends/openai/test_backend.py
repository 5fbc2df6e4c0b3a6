"""What the backend says of itself and of bad options, without asking its server."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from backends.base import Message, Prompt, ScoreRequest
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from backends.openai.look import Look
from backends.openai.trackers import ModelChangedError


@pytest.mark.parametrize(
    ("route", "prompt", "times", "tokens"),
    [
        ("sampled", "text", 50, 50 * 6),  # drawn: no token is shorter than a byte
        ("sampled", (Message("user", "chat"),), 1, 1),  # a list of the first token
        ("prompt_logprobs", "text", 3, 3),
        ("echo", "text", 4, 4),  # and one for the prompt alone
    ],
)
def test_request_cost_follows_the_probed_route(
    route: Literal["sampled", "prompt_logprobs", "echo"],
    prompt: Prompt,
    times: int,
    tokens: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = OpenAIBackend("http://h/v1", model="m", api_key_env=None, samples=50, probe_folder=tmp_path)
    found = ServerCapabilities(text_route=route, chat_route="chat_first")
    monkeypatch.setattr(backend, "_look", Look(capabilities=found, lines=()))
    cost = backend.request_cost(ScoreRequest(prompt, (" a", " b", " girl")))
    assert (cost.calls, cost.generated_tokens) == (times, tokens)


async def test_an_absent_server_is_returned_as_an_error(tmp_path: Path) -> None:
    backend = OpenAIBackend("http://127.0.0.1:9/v1", model="m", api_key_env=None, probe_folder=tmp_path)
    (answer,) = await backend.run([ScoreRequest("a", (" b",))])
    assert isinstance(answer, BackendError)
    assert answer.kind == "connection"


def test_a_contradicted_server_is_named_by_its_address(tmp_path: Path) -> None:
    backend = OpenAIBackend("http://h/v1", model="m", api_key_env=None, probe_folder=tmp_path)
    backend._distrust(ModelChangedError("its draws do not fit its lists"))
    assert backend.unverified_reason == "its draws do not fit its lists (at http://h/v1)"

"""What the backend says of itself without asking its server."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.base import Message, Prompt, ScoreRequest
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from backends.openai.probe.report import ProbeReport


@pytest.mark.parametrize(
    ("prompt", "times", "tokens"),
    [
        ("text", 50, 6),  # drawn: no token is shorter than a byte
        ((Message("user", "chat"),), 3, 1),  # one request a continuation, and each generates a token
    ],
)
def test_request_cost_follows_the_probed_route(
    prompt: Prompt, times: int, tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = OpenAIBackend("http://h/v1", model="m", api_key_env=None, samples=50, probe_folder=tmp_path)
    found = ServerCapabilities(text_route="sampled", chat_route="chat_first")
    monkeypatch.setattr(backend, "_report", ProbeReport("http://h/v1", "m", found, ()))
    cost = backend.request_cost(ScoreRequest(prompt, (" a", " b", " girl")))
    assert (cost.times_sent, cost.generated_tokens) == (times, tokens)

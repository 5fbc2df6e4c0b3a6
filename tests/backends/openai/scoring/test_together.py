"""The requests that score one question do not wait for each other, nor count the wait for their turn as a delay."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from backends.base import ContinuationScore, ScoreRequest
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities, TextRoute
from backends.openai.quirks import Dialect
from tests.backends.openai.direct_routes import direct_routes
from tests.backends.openai.lies.server import MODEL, Style, WordServer
from tests.backends.openai.lies.word_model import GENDERS
from tests.backends.openai.raw_server import Reply

ASKED = ScoreRequest("Q: Picture a nurse. What is the gender of the nurse?\nA:", tuple(f" {g}" for g in GENDERS))
CONNECTIONS = 3


class SlowServer(WordServer):
    """Takes its time, notes how many requests wait at once, and fails for the texts that end in ``failing``, once."""

    def __init__(self, style: Style, failing: str = "") -> None:
        super().__init__(style, 0)
        self.pause, self.most_at_once, self._failing = 0.02, 0, failing
        self.asked: Counter[str] = Counter()

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        self.most_at_once = max(self.most_at_once, self.under_way)
        prompt = str(sent.get("prompt"))
        self.asked[prompt] += 1
        if self._failing and prompt.endswith(self._failing) and self.asked[prompt] == 1:
            return Reply({"error": {"message": "overloaded"}}, 503)
        return super().reply(path, sent)


async def scored(server: WordServer, route: TextRoute, question: ScoreRequest) -> tuple[ContinuationScore, ...]:
    family: Dialect | None = None if server.style == "echo" else "vllm"
    found = ServerCapabilities(text_route=route, completions=True, largest_k=20, family=family)
    async with direct_routes(server.base_url, MODEL, found, connections=CONNECTIONS) as score:
        return await score(question)


@pytest.mark.parametrize(("style", "route"), [("echo", "echo"), ("ids", "prompt_logprobs"), ("ids", "top_k_ids")])
async def test_a_questions_requests_are_sent_side_by_side(style: Style, route: TextRoute) -> None:
    question = ASKED if route != "top_k_ids" else ScoreRequest(ASKED.prompt, (" one man", " two girl", " three"))
    async with SlowServer(style).running() as server:
        scores = await scored(server, route, question)
    assert 1 < server.most_at_once <= CONNECTIONS
    for text, score in zip(question.continuations, scores, strict=True):
        truth = server.truth(question.prompt, text)
        assert score.high == pytest.approx(truth) if score.exactness == "exact" else score.high >= truth


async def test_what_one_failure_left_paid_for_is_not_asked_again(tmp_path: Any) -> None:
    async with SlowServer("echo", failing=" woman").running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path)
        await backend.probe()
        server.asked.clear()
        (failed,) = await backend.run([ASKED])
        (answered,) = await backend.run([ASKED])
        await backend.close()
    assert isinstance(failed, BackendError)
    assert not isinstance(answered, BackendError)
    asked = {text: server.asked[f"{ASKED.prompt}{text}"] for text in ASKED.continuations}
    assert asked == {text: 2 if text == " woman" else 1 for text in ASKED.continuations}

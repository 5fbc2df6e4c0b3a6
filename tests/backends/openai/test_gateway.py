"""A gateway that passes questions to several providers of one model: one of them is audited, or it is said why not.

OpenRouter balances load over providers unless ``provider`` pins one, falls back to others where that fails, and names
the one that answered in each response (https://openrouter.ai/docs/features/provider-routing).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from audit import Audit
from backends.base import GenerateRequest, GenerateResponse, Message, Sampling
from backends.errors import BackendError, ConfigError
from suites import OccuGender
from tests.backends.openai.lies.server import WordServer
from tests.backends.openai.lies.word_model import word_model
from tests.backends.openai.raw_server import Reply, backend_of

_ASKED = GenerateRequest((Message("user", "Male or female?"),), Sampling(max_tokens=16))
PINNED = {"provider": {"only": ["North"], "allow_fallbacks": False}}


class Gateway(WordServer):
    """One model at two providers, whose weights differ. ``failing`` is how often the pinned one is down."""

    def __init__(self) -> None:
        super().__init__("chat", 0)
        self.answered: list[str] = []
        self.failing = 0.0
        self._routing = random.Random(3)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        wishes = sent.get("provider", {})
        provider = self._routing.choice(wishes.get("only", ["North", "South"]))
        if wishes and self._routing.random() < self.failing:
            if not wishes.get("allow_fallbacks", True):
                return Reply({"error": {"code": 503, "message": "no provider is available"}}, 503)
            provider = "South"
        self.model = word_model(0 if provider == "North" else 2)
        reply = super().reply(path, sent)
        if reply.status == 200:
            self.answered.append(provider)
            reply.body["provider"] = provider
        return reply


async def test_an_unpinned_gateway_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async with Gateway().running() as server:
        audit = Audit(models={"m": backend_of(server, tmp_path)}, suites=[OccuGender(prompt_format="chat")], limit=8,
                      small_sample=True, db=tmp_path / "a.db")  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            await audit.run()
    assert "provider 'South'" in str(caught.value) or "provider 'North'" in str(caught.value)
    assert '"allow_fallbacks": False' in str(caught.value)


async def test_an_answer_of_a_fallback_is_asked_again(tmp_path: Path) -> None:
    async with Gateway().running() as server:
        backend = backend_of(server, tmp_path, extra_body={"provider": {"only": ["North"]}})
        await backend.describe()
        server.failing = 0.5
        answers = [(await backend.run([_ASKED]))[0] for _ in range(12)]
        server.failing = 0.0
        again, *_ = await backend.run([_ASKED])
        await backend.close()
    refused = [answer for answer in answers if isinstance(answer, BackendError)]
    assert 0 < len(refused) < 12
    assert all(error.retryable and "provider 'South'" in error.message for error in refused)
    assert isinstance(again, GenerateResponse), "one fallback ends no audit"
    assert backend.unverified_since is None
